"""The history of a run directory: the prevalence of every community in every run.

Every published version holds ``history.parquet``: the rows of the version before it and
those of its own run. So the history outlives the removal of old versions, and the
newest table that can be read has everything. Runs are of one series if a name means the
same community in them, and their estimates can be compared.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Bools, Floats
from xnq_dist.core.errors import RunDirectoryError, SettingsError, XnqError
from xnq_dist.core.inputs import PREVIOUS
from xnq_dist.core.schemas import class_column
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Published, RunDirectory, Version, fingerprint
from xnq_dist.quantify.checks.changes import reveals
from xnq_dist.report.changed import Changed
from xnq_dist.report.earlier import ResultFacts, read_version
from xnq_dist.report.view import QUALITIES, PrevalenceView

__all__ = [
    "History",
    "NewRun",
    "RunOfHistory",
    "history_rows",
    "past_rows",
    "read_history",
]

log = logging.getLogger(__name__)

NAME = "history"
HISTORY_ROWS = 1_000_000
"""Maximum number of rows (run, community, class) of the table."""
VALUES = ("prevalence", "lower", "upper")
EFFECTS = ("effect", "effect_lower", "effect_upper", "changed")


@dataclass(frozen=True)
class NewRun:
    """A run that is being published."""

    run_id: str
    created: str
    results: str
    """Fingerprint of its results, without the page."""


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
            rows = rows.filter(_is(rows["class"], of_class))
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
            some = rows.filter(_is(rows[column], name))
            if not some.num_rows:
                known = pc.unique(rows[column])
                names = ", ".join(map(str, known.slice(0, 8).to_pylist()))
                raise SettingsError(
                    f"there is no {column} {name!r} in the history: choose one of "
                    f"{names}{', ...' if len(known) > 8 else ''}"
                )
            rows = some
        return rows


def _is(values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    return pc.equal(pc.cast(values, pa.string()), name)


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
    earlier = read_version(version, version.folder.uri)
    series = earlier.facts, earlier.settings
    return run_rows(earlier.view, *series, (version.run_id, earlier.created))


def run_rows(
    view: PrevalenceView,
    facts: ResultFacts,
    settings: Mapping[str, Any],
    run: tuple[str, str],
    changed: Changed | None = None,
) -> pa.Table:
    """Rows of one run.

    Parameters
    ----------
    view
        Its estimates, without values of suppressed communities.
    facts, settings
        They decide on the series.
    run
        Its run id and date.
    changed
        Comparison with the run before; None: not compared.
    """
    communities = np.repeat(np.arange(len(view.names)), len(view.classes))
    number = len(communities)
    values = dict(zip(VALUES, view.estimates(), strict=True))
    flags: Bools = np.zeros(view.prevalence.shape, np.bool_)
    unknown = np.full(view.prevalence.shape, np.nan)
    values |= dict.fromkeys(EFFECTS[:3], unknown)
    qvalue = unknown
    if changed is not None:
        effects = changed.changes
        found = effects.effect, effects.lower, effects.upper
        values |= dict(zip(EFFECTS, found, strict=False))
        qvalue = effects.qvalue
        rate = float(settings.get("anomalies", {}).get("rate", 0.05))
        flags = qvalue <= rate
    suppressed = np.isnan(view.prevalence).ravel()
    quality = pa.array(QUALITIES).take(pa.array(view.quality.ravel()))
    return pa.table(
        {
            "run": pa.repeat(run[0], number),
            "created": pa.repeat(run[1], number),
            "series": pa.repeat(_series(view, facts, settings), number),
            "community": view.texts(communities),
            "class": class_column(view.labels, len(view.names)),
            "n_nodes": view.n_nodes[communities],
            "n_labelled": pa.array(view.n_labelled[communities], mask=suppressed),
            **{name: _column(matrix) for name, matrix in values.items()},
            "changed": pa.array(flags.ravel(), mask=np.isnan(qvalue).ravel()),
            "quality": pc.if_else(pc.equal(quality, ""), None, quality),
        }
    )


def _series(
    view: PrevalenceView, facts: ResultFacts, settings: Mapping[str, Any]
) -> str:
    """What must be equal for names and estimates to be comparable (`why_not`)."""
    columns = settings.get("columns") or {}
    source = facts.source if facts.source.startswith("column:") else ""
    parts = [settings.get(name) for name in ("quantifier", "labelled")]
    parts += [columns.get("label"), None]  # None: node weights, in earlier versions
    return fingerprint(*parts, source, facts.detected, sorted(view.classes))[:16]


def history_rows(
    run: RunDirectory,
    own: NewRun,
    view: PrevalenceView,
    changed: Changed | str | None,
    facts: ResultFacts,
    settings: Settings,
) -> pa.Table:
    """Rows of all runs, those of a run that is being published last.

    Earlier values of communities that are suppressed now, or whose members differ by so
    few that the two shares would show them (`reveals`), are removed.

    Parameters
    ----------
    run
        Its directory. Where it is compared with the results of another one, their
        history precedes.
    own, view, changed, facts
        The run: its estimates, and their comparison with earlier ones.
    settings
        `anomalies`, `disclosure.min_size` and `retention` are used.
    """
    places = [Published(run)]
    last, before = settings.anomalies.last, None
    if isinstance(changed, Changed) and last not in (None, PREVIOUS):
        places.append(Published(RunDirectory(str(last))))
    past, newest = past_rows(*places), next(places[0].history(), None)
    run_id = own.run_id
    if past and newest and newest.manifest.facts.get("results") == own.results:
        # The same results are published again: they are one run.
        run_id = past["run"][-1].as_py()
        past = past.filter(pc.not_equal(past["run"], run_id))
    if past and isinstance(changed, Changed):
        is_last = changed.earlier.created == past["created"][-1].as_py()
        before = changed if is_last else None
    values = settings.model_dump(mode="json")
    now = run_rows(view, facts, values, (run_id, own.created), before)
    if not past:
        return now
    if len(view.names):
        noise = before.changes.noise if before else None
        past = _without_revealing(past, view, noise, settings.disclosure.min_size)
    return _bounded(_joined([past, now]), settings.retention.versions)


def _without_revealing(
    past: pa.Table, view: PrevalenceView, noise: Floats | None, min_size: int
) -> pa.Table:
    names = view.names.cast(pa.string())
    place = pc.index_in(pc.cast(past["community"], pa.string()), value_set=names)
    at = pc.fill_null(place, -1).to_numpy()
    typical = np.zeros(len(names))
    if noise is not None:
        typical = np.nan_to_num(noise).min(axis=1)
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


def _bounded(table: pa.Table, versions: int, most: int = HISTORY_ROWS) -> pa.Table:
    """The table with at most `most` rows, of complete runs.

    Where there are more, runs older than the kept versions are thinned to the last of
    each week; then the oldest runs go. The last two stay.
    """
    if len(table) <= most:
        return table
    runs = pc.value_counts(table["run"])
    names, counts = runs.field("values"), runs.field("counts").to_numpy()
    first = pc.index_in(names, table["run"].combine_chunks())
    created = table["created"].take(first).to_pylist()
    weeks = [datetime.fromisoformat(date).isocalendar()[:2] for date in created]
    old = max(len(weeks) - versions, 0)
    keep = np.array([k >= old or weeks[k] != weeks[k + 1] for k in range(len(weeks))])
    # Rows of each kept run and of those after it.
    after = np.cumsum((counts * keep)[::-1])[::-1]
    keep &= (after <= most) | (np.arange(len(keep)) >= len(keep) - 2)
    return table.filter(pc.is_in(table["run"], names.filter(pa.array(keep))))


def _column(values: Floats) -> pa.Array:
    flat = values.ravel()
    return pa.array(flat.astype(np.float32), mask=np.isnan(flat))
