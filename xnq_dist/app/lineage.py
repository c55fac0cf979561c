"""OpenLineage events of a run: START, then COMPLETE or FAIL, to a file or a server.

Events are plain JSON of the specification 2-0-2. Sending them never fails a run: the
first event that cannot be sent is one warning, and no other follows.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import Any
from urllib import request
from urllib.parse import urlsplit

import pyarrow as pa

from xnq_dist._version import __version__
from xnq_dist.core.errors import XnqError
from xnq_dist.core.redaction import redacted, split_query
from xnq_dist.core.schemas import TABLES
from xnq_dist.core.settings import TITLES, LineageSettings, Settings
from xnq_dist.core.store import Manifest, RunDirectory, read_published
from xnq_dist.graph.tables import Sources, open_table

__all__ = ["lineage"]

log = logging.getLogger(__name__)

PRODUCER = f"https://pypi.org/project/xnq-dist/{__version__}"
SPEC = "https://openlineage.io/spec"
SECONDS = 5
"""Maximum time that a server may take for an event."""
NEVER_NULL = {
    "nodes": ("node_id",),
    "edges": ("src", "dst"),
    "memberships": ("community", "member"),
}
"""Settings in `columns` whose columns a completed run found without nulls."""


@contextmanager
def lineage(sources: Sources, out: str, settings: Settings) -> Iterator[None]:
    """Send START before the block and COMPLETE or FAIL after it; none by default."""
    if settings.lineage.to is None:
        yield
        return
    run = RunDirectory(out)
    events = _Events(settings.lineage, str(redacted(run.uri)))
    inputs = _inputs(sources, settings, None)
    events.send("START", inputs, [])
    try:
        yield
    except BaseException as error:
        text = type(error).__name__ if isinstance(error, Exception) else "interrupted"
        if isinstance(error, XnqError):
            text = str(error)
        message = {"message": redacted(text), "programmingLanguage": "Python"}
        facet = _facet("1-0-1/ErrorMessageRunFacet", **message)
        events.send("FAIL", inputs, [], errorMessage=facet)
        raise
    events.send("COMPLETE", _inputs(sources, settings, run), _outputs(run))


class _Events:
    """Sends the events of one run."""

    def __init__(self, settings: LineageSettings, name: str) -> None:
        self._to, self._name = str(settings.to), name
        self._namespace, self._works = settings.namespace, True
        self._run = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {_now()}"))

    def send(
        self,
        kind: str,
        inputs: list[dict[str, Any]],
        outputs: list[dict[str, Any]],
        **run_facets: Any,
    ) -> None:
        """Send one event; after a failure, none."""
        if not self._works:
            return
        event = {
            "eventType": kind,
            "eventTime": _now(),
            "run": {"runId": self._run, "facets": run_facets},
            "job": {"namespace": self._namespace, "name": self._name, "facets": {}},
            "inputs": inputs,
            "outputs": outputs,
            "producer": PRODUCER,
            "schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        }
        try:
            self._post(json.dumps(event).encode())
        except (OSError, ValueError, HTTPException) as error:
            self._works = False
            log.warning(
                "lineage.to %s does not take events (%s); the run goes on without them",
                redacted(self._to),
                redacted(" ".join(str(error).split())),
            )

    def _post(self, body: bytes) -> None:
        if "://" not in self._to:
            with Path(self._to).expanduser().open("ab") as file:
                file.write(body + b"\n")
            return
        # The path that servers of OpenLineage use, unless another one is in the URL.
        path = "" if urlsplit(self._to).path.strip("/") else "/api/v1/lineage"
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        url = f"{self._to.rstrip('/')}{path}"
        post = request.Request(url, body, headers)  # noqa: S310 - checked in settings
        with request.urlopen(post, timeout=SECONDS):  # noqa: S310
            pass


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _facet(schema: str, **values: Any) -> dict[str, Any]:
    name = schema.partition("/")[2]
    url = f"{SPEC}/facets/{schema}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url, **values}


def _dataset(address: str, columns: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """A table's name, without credentials, and its columns."""
    fields = [{"name": name, "type": str(kind)} for name, kind in columns.items()]
    place = split_query(str(redacted(address)))[0].replace("***@", "")
    uri = urlsplit(place)
    local = not uri.netloc
    return {
        "namespace": "file" if local else f"{uri.scheme}://{uri.netloc}",
        "name": str(Path(place).absolute()) if local else uri.path.lstrip("/"),
        "facets": {"schema": _facet("1-2-0/SchemaDatasetFacet", fields=fields)},
    }


def _inputs(
    sources: Sources, settings: Settings, run: RunDirectory | None
) -> list[dict[str, Any]]:
    """The input tables with their columns; of a completed run also rows and checks."""
    found = []
    for name, columns in NEVER_NULL.items():
        path = getattr(sources, name)
        if path is None:
            continue
        try:
            table = open_table(path, TITLES[name], settings.input)
            kinds = dict(chain(*(schema.items() for schema in table.schemas.values())))
        except XnqError:
            kinds = {}  # the run refuses it with a sentence of its own
        dataset = _dataset(path, kinds)
        if run is not None:
            named = [str(getattr(settings.columns, column)) for column in columns]
            dataset["inputFacets"] = _quality(name, named, run)
        found.append(dataset)
    return found


def _quality(name: str, columns: list[str], run: RunDirectory) -> dict[str, Any]:
    """Rows of an input table, and what the run has checked of its columns."""
    rows = None
    for stage in ("graph", "quantify"):
        manifest: Manifest | None = run.stage(stage).manifest()
        digest = manifest.inputs.get(name) if manifest else None
        rows = digest.get("rows") if isinstance(digest, dict) else rows
    counts = {} if rows is None else {"rowCount": rows}
    checks = [{"assertion": "not_null", "success": True, "column": c} for c in columns]
    if name == "nodes":
        checks.append({"assertion": "unique", "success": True, "column": columns[0]})
    nulls = {column: {"nullCount": 0} for column in columns}
    metrics = "1-0-3/DataQualityMetricsInputDatasetFacet"
    return {
        "dataQualityMetrics": _facet(metrics, columnMetrics=nulls, **counts),
        "dataQualityAssertions": _facet(
            "1-1-0/DataQualityAssertionsDatasetFacet", assertions=checks
        ),
    }


def _outputs(run: RunDirectory) -> list[dict[str, Any]]:
    """The published tables with their columns, rows, bytes and checked columns."""
    version, found = read_published(run.location), []
    for name, record in version.tables().items():
        schema = version.schema(name)
        kinds = dict(zip(schema.names, schema.types, strict=True))
        dataset = _dataset(run.folder.uri_of(f"{name}.parquet"), kinds)
        # Columns that are never null are checked on writing.
        full = (column.name for column in TABLES[name].columns if not column.nullable)
        dataset["facets"]["dataQualityMetrics"] = _facet(
            "1-0-1/DataQualityMetricsDatasetFacet",
            rowCount=record.rows,
            bytes=record.bytes,
            columnMetrics={column: {"nullCount": 0} for column in full},
        )
        statistics = {"rowCount": record.rows, "size": record.bytes, "fileCount": 1}
        facet = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", **statistics)
        found.append({**dataset, "outputFacets": {"outputStatistics": facet}})
    return found
