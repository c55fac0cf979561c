"""OpenLineage events: as the field's own client writes them, and never in the way."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.conftest import write_graph
from xnq_dist.app.lineage import lineage
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.tables import Sources


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return write_graph(tmp_path_factory.mktemp("lineage"), nodes=20, edges=30).sources


def settings_to(place: object) -> Settings:
    return load_settings(overrides=[f"lineage.to={place}"])


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["eventType"] for event in events]


def events_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@contextmanager
def listening(status: int = 201) -> Iterator[tuple[str, list[Any]]]:
    """A server on loopback, and the requests that it gets: path, headers, event."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_run_is_started_and_completed_with_its_tables(
    published: RunDirectory, sources: Sources, tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    for _ in range(2):
        with lineage(sources, published.location, settings_to(file)):
            assert kinds(events_in(file))[-1] == "START"
    started, completed, *again = events_in(file)
    assert kinds([started, completed, *again]) == ["START", "COMPLETE"] * 2
    assert started["run"] == completed["run"]
    assert again[0]["run"] != started["run"]
    assert again[0]["job"] == started["job"]
    assert started["job"]["namespace"] == "xnq-dist"
    assert [table["name"] for table in started["inputs"]] == [
        sources.nodes,
        sources.edges,
    ]
    fields = started["inputs"][0]["facets"]["schema"]["fields"]
    assert {"name": "node_id", "type": "int64"} in fields
    checks = completed["inputs"][0]["inputFacets"]["dataQualityAssertions"]
    assert {"assertion": "unique", "success": True, "column": "node_id"} in checks[
        "assertions"
    ]
    outputs = {Path(table["name"]).name: table for table in completed["outputs"]}
    table = outputs["prevalence.parquet"]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 6
    assert table["facets"]["dataQualityMetrics"]["columnMetrics"]["community"] == {
        "nullCount": 0
    }
    assert "class" in [column["name"] for column in table["facets"]["schema"]["fields"]]


def test_a_failure_is_sent_as_one_sentence_without_credentials(
    sources: Sources, tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    secret = "s3://KEY:SECRET@bucket/nodes.parquet"
    hidden = Sources(secret, sources.edges)
    with (
        pytest.raises(InputError),
        lineage(hidden, str(tmp_path / "run"), settings_to(file)),
    ):
        raise InputError(f"{secret} cannot be read: check it")
    with (
        pytest.raises(KeyboardInterrupt),
        lineage(sources, str(tmp_path / "run"), settings_to(file)),
    ):
        raise KeyboardInterrupt
    events = events_in(file)
    assert kinds(events) == ["START", "FAIL"] * 2
    error = events[1]["run"]["facets"]["errorMessage"]
    assert error["message"] == "s3://***@bucket/nodes.parquet cannot be read: check it"
    assert "stackTrace" not in error
    assert "SECRET" not in file.read_text()
    assert events[1]["inputs"][0]["namespace"] == "s3://bucket"
    assert events[1]["inputs"][0]["name"] == "nodes.parquet"
    assert events[3]["run"]["facets"]["errorMessage"]["message"] == "interrupted"


def test_a_server_gets_the_events(
    published: RunDirectory, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "abc")
    with listening() as (url, seen):
        with lineage(sources, published.location, settings_to(url)):
            pass
        with lineage(sources, published.location, settings_to(f"{url}/own/path")):
            pass
    paths = ["/api/v1/lineage"] * 2 + ["/own/path"] * 2
    assert [path for path, _, _ in seen] == paths
    assert seen[0][1]["Authorization"] == "Bearer abc"
    assert kinds([event for _, _, event in seen]) == ["START", "COMPLETE"] * 2


@pytest.mark.parametrize("place", ["nobody", "refusing", "folder"])
def test_a_place_that_refuses_events_is_one_warning(
    place: str,
    published: RunDirectory,
    sources: Sources,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with listening(500) as (url, seen):
        to = {"nobody": "http://127.0.0.1:9", "refusing": url, "folder": tmp_path}
        with lineage(sources, published.location, settings_to(to[place])):
            pass
    assert len(seen) == (place == "refusing")
    assert len(caplog.records) == 1
    assert "the run goes on without them" in caplog.text


def test_events_are_off_by_default_and_take_known_addresses_alone(
    published: RunDirectory, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xnq_dist.app.lineage._Events", None)
    with lineage(sources, published.location, Settings()):
        pass
    with pytest.raises(SettingsError, match="path of a file, or an http"):
        settings_to("s3://bucket/events")


def _facet_classes() -> dict[str, Any]:
    """Classes of the client's facets by the address of their schema."""
    import openlineage.client.generated as generated

    found = {}
    for module in pkgutil.iter_modules(generated.__path__):
        for kind in vars(import_module(f"{generated.__name__}.{module.name}")).values():
            if isinstance(kind, type) and hasattr(kind, "_get_schema"):
                found[kind._get_schema()] = kind
    return found


@pytest.mark.oracle
def test_events_are_those_that_the_client_writes(
    published: RunDirectory, sources: Sources, tmp_path: Path
) -> None:
    pytest.importorskip("openlineage.client")
    from openlineage.client import event_v2
    from openlineage.client.serde import Serde

    classes = _facet_classes()

    def facets(of: dict[str, Any]) -> dict[str, Any]:
        return {
            name: classes[values["_schemaURL"]](
                producer=values["_producer"],
                **{k: v for k, v in values.items() if not k.startswith("_")},
            )
            for name, values in of.items()
        }

    file = tmp_path / "events.jsonl"
    with lineage(sources, published.location, settings_to(file)):
        pass
    with (
        pytest.raises(InputError),
        lineage(sources, published.location, settings_to(file)),
    ):
        raise InputError("wrong")
    for event in events_in(file):
        theirs = event_v2.RunEvent(
            eventType=event_v2.RunState(event["eventType"]),
            eventTime=event["eventTime"],
            run=event_v2.Run(
                event["run"]["runId"], facets=facets(event["run"]["facets"])
            ),
            job=event_v2.Job(event["job"]["namespace"], event["job"]["name"]),
            inputs=[
                event_v2.InputDataset(
                    each["namespace"],
                    each["name"],
                    facets=facets(each["facets"]),
                    inputFacets=facets(each.get("inputFacets", {})),
                )
                for each in event["inputs"]
            ],
            outputs=[
                event_v2.OutputDataset(
                    each["namespace"],
                    each["name"],
                    facets=facets(each["facets"]),
                    outputFacets=facets(each["outputFacets"]),
                )
                for each in event["outputs"]
            ],
            producer=event["producer"],
        )
        assert without_empty(json.loads(Serde.to_json(theirs))) == without_empty(event)


def without_empty(value: Any) -> Any:
    """A value without empty mappings, which the client leaves out or not."""
    if isinstance(value, dict):
        plain = {key: without_empty(each) for key, each in value.items()}
        return {key: each for key, each in plain.items() if each != {}}
    return [without_empty(each) for each in value] if isinstance(value, list) else value
