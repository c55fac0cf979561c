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
from xnq_dist.core.store import Published, RunDirectory, Version, fingerprint
from xnq_dist.steps.changes import Changed, changes_table, compare, reveals
from xnq_dist.steps.results import Results, Run
from xnq_dist.steps.view import QUALITIES, PrevalenceView, nulls_for_nan

__all__ = ["History", "RunOfHistory", "is_named", "make", "past_rows", "read_history"]

log = logging.getLogger(__name__)

NAME = "history"
HISTORY_ROWS = 1_000_000
"""Maximum number of rows (run, community, class) of the table."""
VALUES = ("prevalence", "lower", "upper")
EFFECTS = ("effect", "effect_lower", "effect_upper", "changed")


def make(results: Results) -> dict[str, pa.Table]:
    """The tables ``history`` and, if there are earlier results, ``changes``."""
    if not isinstance(results.earlier, Run):
        return {"history": history_table(results)}
    changed = compare(results.view, results.earlier, results.settings)
    rate = results.settings.anomalies.rate
    return {
        "changes": changes_table(results.view, changed, rate),
        "history": history_table(results, changed),
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
    table = past_rows(published)
    if table is None:
        raise RunDirectoryError(
            f"{run.uri}: no published version can be read: run again to publish"
        )
    return History.of(table)


def past_rows(*places: Published) -> pa.Table | None:
    """Rows of all runs published in some places; None if there are none.

    The table ``history`` of a version has the rows of those before it. A version that
    is damaged is named in a warning and left out. The runs of later places come first.
    """
    tables: list[pa.Table] = []
    known: set[str] = set()
    for published in places:
        for version in published.history():
            if version.run_id in known:
                break
            table = None
            for read in (_history_table, _from_prevalence):
                try:
                    table = table or read(version)
                except (XnqError, OSError) as error:
                    log.warning("left out of the history: %s", error)
            if table is not None:
                new = pc.invert(pc.is_in(table["run"], pa.array(known, pa.string())))
                tables.append(table.filter(new))
                known.update(pc.unique(table["run"]).to_pylist())
    return _joined(tables[::-1]) if tables else None


def _history_table(version: Version) -> pa.Table | None:
    if NAME not in version.tables():  # of an earlier release
        return None
    return version.read(NAME).drop_columns("run_id")


def _from_prevalence(version: Version) -> pa.Table:
    return run_rows(Run.read(version, version.folder.uri))


def run_rows(run: Run, changed: Changed | None = None, rate: float = 0.0) -> pa.Table:
    """Rows of one run.

    Parameters
    ----------
    run
        Its estimates, without values of suppressed communities.
    changed
        Comparison with the run before; None: not compared.
    rate
        False discovery rate of the flagged changes.
    """
    view = run.view
    communities = np.repeat(np.arange(len(view.names)), len(view.classes))
    number = len(communities)
    unknown = np.full(view.prevalence.shape, np.nan)
    effects, qvalue = (unknown, unknown, unknown), unknown
    if changed is not None:
        effects, qvalue = changed.changes[:3], changed.changes.qvalue
    values = zip((*VALUES, *EFFECTS[:3]), (*view.estimates(), *effects), strict=True)
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
                for name, matrix in values
            },
            "changed": pa.array(
                (qvalue <= rate).ravel(), mask=np.isnan(qvalue).ravel()
            ),
            "quality": pc.if_else(pc.equal(quality, ""), None, quality),
        }
    )


def _series(run: Run) -> str:
    """What must be equal for names and estimates to be comparable (`why_not`)."""
    columns = run.settings.get("columns") or {}
    source = run.source if run.source.startswith("column:") else ""
    parts = [run.settings.get(name) for name in ("quantifier", "labelled")]
    parts += [columns.get("label"), None]  # None: node weights, in earlier versions
    return fingerprint(*parts, source, run.detected, sorted(run.view.classes))[:16]


def history_table(results: Results, changed: Changed | None = None) -> pa.Table:
    """Rows of all runs, those of a run that is being published last.

    Earlier values of communities that are suppressed now, or whose members differ by so
    few that the two shares would show them (`reveals`), are removed. Where a run is
    compared with the results of another directory, their history precedes.
    """
    directory, settings = results.directory, results.settings
    places = [] if directory is None else [Published(directory)]
    last, earlier = settings.anomalies.last, results.earlier
    if changed is not None and last not in (None, PREVIOUS):
        places.append(Published(RunDirectory(str(last))))
    past, now, before = past_rows(*places), results.now, None
    newest = next(places[0].history(), None) if places else None
    if (
        past
        and newest
        and newest.manifest.facts.get("results") == now.facts.get("results")
    ):
        # The same results are published again: they are one run.
        now = replace(now, run_id=past["run"][-1].as_py())
        past = past.filter(pc.not_equal(past["run"], now.run_id))
    if past and isinstance(earlier, Run):
        is_last = earlier.created == past["created"][-1].as_py()
        before = changed if is_last else None
    rows = run_rows(now, before, settings.anomalies.rate)
    if not past:
        return rows
    view = results.view
    if len(view.names):
        past = _without_revealing(past, view, before, settings.disclosure.min_size)
    return _bounded(_joined([past, rows]))


def _without_revealing(
    past: pa.Table, view: PrevalenceView, changed: Changed | None, min_size: int
) -> pa.Table:
    names = view.names.cast(pa.string())
    place = pc.index_in(pc.cast(past["community"], pa.string()), value_set=names)
    at = pc.fill_null(place, -1).to_numpy()
    typical = np.zeros(len(names))
    if changed is not None:
        typical = np.nan_to_num(changed.changes.noise).min(axis=1)
    then = past["n_nodes"].to_numpy()
    hidden = reveals(typical[at], view.n_nodes[at], then, min_size)
    hidden = (hidden | view.suppressed[at]) & (at >= 0)
    # An effect and one of its two shares give the other one.
    of_community = np.zeros(len(names) + 1, np.bool_)
    of_community[at[hidden]] = True
    for some, columns in (
        (hidden, (*VALUES, "n_labelled")),
        (of_community[at], EFFECTS),
    ):
        for name in columns:
            kind = past.schema.field(name).type
            kept = pc.if_else(pa.array(some), pa.scalar(None, kind), past[name])
            past = past.set_column(past.schema.get_field_index(name), name, kept)
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
