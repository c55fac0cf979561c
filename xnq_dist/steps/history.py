"""The history of a run directory: the prevalence of every community in every run.

Every published version holds ``history.parquet``: the rows of the version before it and
those of its own run. So the history outlives the removal of old versions, and the
newest table that can be read has everything. Runs are of one series if a name means the
same community in them, and their estimates can be compared.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import RunDirectoryError, SettingsError, XnqError
from xnq_dist.core.inputs import PREVIOUS
from xnq_dist.core.schemas import class_column
from xnq_dist.core.store import Published, RunDirectory, fingerprint
from xnq_dist.steps.changes import Changed, changes_table, compare
from xnq_dist.steps.earlier import what_must_agree
from xnq_dist.steps.results import Results, Run
from xnq_dist.steps.view import QUALITIES, PrevalenceView, nulls_for_nan

__all__ = ["History", "RunOfHistory", "is_named", "make", "read_history"]

log = logging.getLogger(__name__)

HISTORY_ROWS = 1_000_000
"""Maximum number of rows (run, community, class) of the table."""
VALUES = ("prevalence", "lower", "upper", "effect", "effect_lower", "effect_upper")


def make(results: Results) -> dict[str, pa.Table]:
    """The tables ``history`` and, if there are earlier results, ``changes``."""
    if not isinstance(results.earlier, Run):
        return {"history": _history_table(results, None)}
    changed = compare(results.view, results.earlier, results.settings)
    rate = results.settings.anomalies.rate
    return {
        "changes": changes_table(results.view, changed, rate),
        "history": _history_table(results, changed),
    }


@dataclass(frozen=True)
class RunOfHistory:
    """One run, and how its communities differ from those of the run before."""

    run: str
    """Its run id."""
    created: str
    communities: int
    new: int
    gone: int
    changed: int
    """Communities that are flagged as changed, in any class."""


@dataclass(frozen=True, eq=False)
class History:
    """The runs of the newest series."""

    table: pa.Table
    """Rows of the schema ``history``, from the first run to the last."""
    others: int = 0
    """Runs of other series, which are left out."""

    @classmethod
    def of(cls, table: pa.Table) -> History:
        """Select the rows of the newest series of a table ``history``."""
        if not table.num_rows:
            return cls(table)
        own = table.filter(pc.equal(table["series"], table["series"][-1]))
        every = len(pc.unique(table["run"]))
        return cls(own, every - len(pc.unique(own["run"])))

    def runs(self) -> list[RunOfHistory]:
        """All runs, from the first to the last."""
        found: list[RunOfHistory] = []
        before: pa.ChunkedArray | None = None
        for run in pc.unique(self.table["run"]).to_pylist():
            rows = self.of_run(run)
            names = pc.unique(rows["community"])
            flagged = rows.filter(pc.fill_null(rows["changed"], False))["community"]
            found.append(
                RunOfHistory(
                    run,
                    rows["created"][0].as_py(),
                    len(names),
                    0 if before is None else _missing(names, before),
                    0 if before is None else _missing(before, names),
                    len(pc.unique(flagged)),
                )
            )
            before = names
        return found

    def of_run(self, run: str) -> pa.Table:
        """Rows of one run."""
        return self.table.filter(pc.equal(self.table["run"], run))

    def changed(self, of_class: str = "") -> pa.Table:
        """Rows of the last run that are flagged as changed, largest effects first."""
        rows = self.of_run(self.table["run"][-1].as_py())
        rows = rows.filter(pc.fill_null(rows["changed"], False))
        if of_class:
            rows = rows.filter(is_named(rows["class"], of_class))
        sizes = pc.negate(pc.abs(rows["effect"]))
        return rows.take(pc.sort_indices(sizes))

    def select(self, community: str = "", of_class: str = "") -> pa.Table:
        """Rows of a community and of a class; empty texts: of all.

        Raises
        ------
        SettingsError
            When there are none.
        """
        rows = self.table
        for column, name in (("community", community), ("class", of_class)):
            if not name:
                continue
            some = rows.filter(is_named(rows[column], name))
            if not some.num_rows:
                known = pc.unique(rows[column])
                names = ", ".join(map(str, known.slice(0, 8).to_pylist()))
                raise SettingsError(
                    f"there is no {column} {name!r} in the history: choose one of "
                    f"{names}{', ...' if len(known) > 8 else ''}"
                )
            rows = some
        return rows


def is_named(values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Whether each of some names or classes is printed so."""
    known = pc.unique(values)
    same = [str(one) == name for one in known.to_pylist()]
    return pc.is_in(values, value_set=known.filter(pa.array(same, pa.bool_())))


def _missing(names: pa.Array, among: pa.Array) -> int:
    """Number of the names that are not in `among`."""
    return int(pc.sum(pc.invert(pc.is_in(names, among))).as_py() or 0)


def read_history(location: str) -> History:
    """Read the history of a run directory.

    Raises
    ------
    RunDirectoryError
        When nothing is published there, or no version can be read.
    """
    run = RunDirectory(location)
    published = Published(run)
    if not published.pointer():
        raise RunDirectoryError(
            f"{run.uri} has no published results: complete it with xnq-dist run"
        )
    table = _past_rows(published)
    if table is None:
        raise RunDirectoryError(
            f"{run.uri}: no published version can be read: run again to publish"
        )
    return History.of(table)


def _past_rows(published: Published) -> pa.Table | None:
    """Rows of all runs published in a place; None if there are none.

    The newest table has the rows of all versions before it. One that is damaged is
    named in a warning, and the rows of its run are left out.
    """
    for version in published.history():
        try:
            return version.read("history").drop_columns("run_id")
        except (XnqError, OSError) as error:
            log.warning("left out of the history: %s", error)
    return None


def _rows_of(run: Run, changed: Changed | None, rate: float) -> pa.Table:
    """Rows of one run, without values of suppressed communities.

    `changed` is the comparison with the run before, None where there is none; `rate` is
    the false discovery rate of the flagged changes.
    """
    view = run.view
    communities = np.repeat(np.arange(len(view.names)), len(view.classes))
    number = len(communities)
    unknown = np.full(view.prevalence.shape, np.nan)
    effects, qvalue = (unknown, unknown, unknown), unknown
    if changed is not None:
        effects, qvalue = changed.changes[:3], changed.changes.qvalue
    suppressed = np.isnan(view.prevalence).ravel()
    quality = pa.array(QUALITIES).take(pa.array(view.quality.ravel()))
    return pa.table(
        {
            "run": pa.repeat(run.run_id, number),
            "created": pa.repeat(run.created, number),
            "series": pa.repeat(_series(run), number),
            "community": view.texts(communities),
            "class": class_column(view.labels, len(view.names)),
            "n_nodes": view.n_nodes[communities],
            "n_labelled": pa.array(view.n_labelled[communities], mask=suppressed),
            **{
                name: nulls_for_nan(matrix.ravel().astype(np.float32))
                for name, matrix in zip(
                    VALUES, (*view.estimates(), *effects), strict=True
                )
            },
            "changed": pa.array(
                (qvalue <= rate).ravel(), mask=np.isnan(qvalue).ravel()
            ),
            "quality": pc.if_else(pc.equal(quality, ""), None, quality),
        }
    )


def _series(run: Run) -> str:
    """Fingerprint of what must be equal for names and estimates to be comparable."""
    *settings, source, classes = what_must_agree(run).values()
    # None: node weights, in earlier versions.
    return fingerprint(*settings, None, source, run.detected, classes)[:16]


def _history_table(results: Results, changed: Changed | None) -> pa.Table:
    """Rows of all runs, those of a run that is being published last.

    Earlier values of communities that are suppressed now are removed. The first run of
    a directory that is compared with another directory continues the other's history.
    """
    now, settings = results.now, results.settings.anomalies
    published = Published(results.directory)
    past, newest = _past_rows(published), next(iter(published.history()), None)
    if past is None and changed is not None and settings.last not in (None, PREVIOUS):
        past = _past_rows(Published(RunDirectory(str(settings.last))))
    elif past and newest and newest.manifest.facts["results"] == now.facts["results"]:
        # The same results are published again: they are one run.
        now = replace(now, run_id=past["run"][-1].as_py())
        past = past.filter(pc.not_equal(past["run"], now.run_id))
    if not past:
        return _rows_of(now, None, settings.rate)
    earlier, newest_then = results.earlier, past["created"][-1].as_py()
    was_last = isinstance(earlier, Run) and earlier.created == newest_then
    rows = _rows_of(now, changed if was_last else None, settings.rate)
    return _bounded(_joined([_without_suppressed(past, results.view), rows]))


def _without_suppressed(past: pa.Table, view: PrevalenceView) -> pa.Table:
    """Earlier rows, without the values of communities that are suppressed now."""
    names = view.texts(np.flatnonzero(view.suppressed)).cast(pa.string())
    hidden = pc.is_in(pc.cast(past["community"], pa.string()), value_set=names)
    for name in (*VALUES, "n_labelled", "changed"):
        at, field = past.schema.get_field_index(name), past.schema.field(name)
        kept = pc.if_else(hidden, pa.scalar(None, field.type), past[name])
        past = past.set_column(at, field, kept)
    return past


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables below each other; names and classes as text where their types differ."""
    for name in ("community", "class"):
        at = tables[0].schema.get_field_index(name)
        if len({table.schema.types[at] for table in tables}) > 1:
            text = pa.field(name, pa.string())
            tables = [table.cast(table.schema.set(at, text)) for table in tables]
    return pa.concat_tables(tables)


def _bounded(table: pa.Table, most: int = HISTORY_ROWS) -> pa.Table:
    """The newest runs, with at most `most` rows together; the last two stay."""
    if len(table) <= most:
        return table
    runs = pc.value_counts(table["run"])
    names, counts = runs.field("values"), runs.field("counts").to_numpy()
    # Rows of each run and of those after it.
    after = np.cumsum(counts[::-1])[::-1]
    keep = (after <= most) | (np.arange(len(after)) >= len(after) - 2)
    return table.filter(pc.is_in(table["run"], names.filter(pa.array(keep))))
