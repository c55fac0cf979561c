"""Prefect events of a publication: what is newly anomalous, and what quality fell.

`deploy/automations.yaml` has examples of automations that act on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.store import Published, RunDirectory, Version

__all__ = ["Event", "emit_news", "news"]

SHOWN = 100
"""Maximum number of events of one kind; the event of the run counts all."""
KEYS = ["community", "class"]


@dataclass(frozen=True)
class Event:
    """One event, before it is sent."""

    name: str
    resource: str
    payload: dict[str, Any]


def news(run: RunDirectory, shown: int = SHOWN) -> list[Event]:
    """Events of the current version: one of the run, and those of communities.

    Communities are compared with the version before; without one, only the event of
    the run is there. Suppressed communities are in no event.

    Parameters
    ----------
    shown
        Maximum number of events of each kind, those with the largest effect first.
    """
    versions = list(islice(Published(run).history(), 2))
    if not versions:
        return []
    now = versions[0]
    kinds: dict[str, pa.Table] = {}
    if len(versions) == 2:
        kinds = {
            "xnq.community.anomalous": _newly_anomalous(*versions),
            "xnq.community.quality-fell": _falls(*versions),
        }
    counts = {name.rsplit(".", 1)[1]: rows.num_rows for name, rows in kinds.items()}
    report = now.folder.uri_of("report.html")
    of_run = Event(
        "xnq.run.published",
        f"xnq.run.{quote(run.uri, safe='')}",
        {"run_id": now.run_id, "report": report, **counts},
    )
    return [of_run, *chain(*(_events(*kind, shown) for kind in kinds.items()))]


def emit_news(run: RunDirectory, before: str | None) -> None:
    """Send the events of a run, if it has published since.

    Parameters
    ----------
    before
        ``run_id`` of the published results before the run; None: there were none.
    """
    from prefect.events import emit_event

    if Published(run).pointer().get("run_id") == before:
        return
    for event in news(run):
        emit_event(
            event=event.name,
            resource={"prefect.resource.id": event.resource},
            payload=event.payload,
        )


def _events(name: str, rows: pa.Table, shown: int) -> Iterator[Event]:
    for row in rows.slice(0, shown).to_pylist():
        resource = f"xnq.community.{quote(str(row['community']), safe='')}"
        yield Event(name, resource, row)


def _newly_anomalous(now: Version, before: Version) -> pa.Table:
    """Rows that are anomalous now and were not, by size of the effect."""
    if "anomalies" not in now.tables():
        return pa.table({})
    shown = _keyed(now, "prevalence", ["quality"])
    shown = shown.filter(pc.not_equal(shown["quality"], "suppressed"))
    values = ["prevalence", "effect", "rank_effect"]
    rows = _anomalous(now, values).join(shown, KEYS, join_type="left semi")
    if "anomalies" in before.tables():
        rows = rows.join(_anomalous(before, []), KEYS, join_type="left anti")
    return rows.sort_by("rank_effect").drop_columns(["rank_effect"])


def _anomalous(version: Version, values: list[str]) -> pa.Table:
    rows = _keyed(version, "anomalies", ["anomalous", *values])
    return rows.filter(pc.fill_null(rows["anomalous"], False)).select([*KEYS, *values])


def _falls(now: Version, before: Version) -> pa.Table:
    """Rows that were publishable and no longer are, those suppressed now left out."""
    rows = _keyed(before, "prevalence", ["quality"])
    rows = rows.filter(pc.equal(rows["quality"], "publishable")).select(KEYS)
    fallen = _keyed(now, "prevalence", ["quality"])
    kept = pa.array(["publishable", "suppressed"])
    fallen = fallen.filter(pc.invert(pc.is_in(fallen["quality"], kept)))
    return fallen.join(rows, KEYS, join_type="left semi").sort_by("community")


def _keyed(version: Version, table: str, values: list[str]) -> pa.Table:
    """Columns of a table; classes as text, as versions may have other types of them."""
    rows = version.read(table, [*KEYS, *values])
    at = rows.schema.get_field_index("class")
    return rows.set_column(at, "class", pc.cast(rows["class"], pa.string()))
