"""Today's prevalences next to those of the runs before, in the same run directory.

Every published version holds ``history.parquet``: the rows of the version before it and
those of its own run. So the history outlives the removal of old versions, and the
newest table that can be read has everything. ``changes.parquet`` compares a run with
the one before. Runs are of one series if a name means the same community in them, and
their estimates can be compared.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import RunDirectoryError, SettingsError, XnqError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory, Version, fingerprint
from xnq_dist.quantify.quality import SUPPRESSED, VALUES, blanked, without_values
from xnq_dist.steps.changes import find_changes
from xnq_dist.steps.results import Results

__all__ = ["History", "RunOfHistory", "is_named", "make", "read_history", "series_of"]

log = logging.getLogger(__name__)

HISTORY_ROWS = 1_000_000
"""Number of rows (run, community, class) of the table, beyond two runs."""
ESTIMATE = ("prevalence", "lower", "upper")
EFFECT = {"effect": "effect", "lower": "effect_lower", "upper": "effect_upper"}
"""Columns of ``changes``, and their names in ``history``."""
HIDDEN = (*ESTIMATE, *EFFECT.values(), "n_labelled", "changed")
"""Columns without values in rows that are suppressed now."""


def series_of(
    settings: Settings, facts: Mapping[str, Any], classes: Sequence[str]
) -> dict[str, Any]:
    """Values that are the same in two runs with comparable estimates.

    Parameters
    ----------
    facts
        ``source`` of the communities (``given``, ``leiden`` or ``column:NAME``), and
        the checksum of ``detected`` communities, empty when they were given.
    """
    source, prior = facts["source"], settings.labels.prior
    return ({} if prior is None else {"labels.prior": prior}) | {
        "quantifier": settings.quantifier,
        "memberships.drawn": settings.memberships.drawn,
        "auto.pooled": str(settings.auto.pooled).lower(),
        "labelled": settings.labelled,
        "columns.label": settings.columns.label,
        "intervals.level": settings.intervals.level,
        "communities": source if source.startswith("column:") else "",
        "detected communities": facts["detected"],
        "classes": sorted(classes),
    }


def make(results: Results) -> dict[str, Any]:
    """The tables ``history`` and, if there are comparable results, ``changes``.

    The fact ``not_compared`` is why earlier results are not comparable, or empty.
    """
    now, before = without_values(results.tables["prevalence"]), results.earlier
    reason = _why_not(before, results) if before is not None else ""
    made: dict[str, Any] = {"not_compared": reason}
    found = dict.fromkeys((*EFFECT, "changed"), pa.nulls(len(now)))
    if reason:
        log.warning("not compared with earlier results: %s", reason)
    elif before is not None:
        then, settings = before.read("prevalence"), results.settings
        then = blanked(without_values(then), _small(then, settings), VALUES)
        rates = settings.intervals.level, settings.anomalies.rate
        found, made["changes"] = _compared(now, then, *rates)
    return made | {"history": _history(results, now, found)}


def _why_not(before: Version, results: Results) -> str:
    """Why two results cannot be compared, in a sentence; empty when they can."""
    then, now = before.manifest.facts.get("series") or {}, results.facts["series"]
    for name, value in (dict.fromkeys(then) | now).items():
        if then.get(name) != value:
            return (
                f"the results before had {name} = {_short(then.get(name))} and this "
                f"run {_short(value)}: use the same in both (--memberships, where "
                "communities were detected)"
            )
    if not results.view.has_intervals:
        return (
            "without intervals a change cannot be distinguished from chance: choose a "
            "quantifier that computes intervals"
        )
    return ""


def _small(table: pa.Table, settings: Settings) -> pa.ChunkedArray:
    """Whether rows are about too few members for the present `disclosure.min_size`."""
    size = table["n_nodes"]
    if settings.labelled == "exclude":
        size = pc.subtract(size, pc.fill_null(table["n_labelled"], 0))
    return pc.less(size, settings.disclosure.min_size)


def _short(value: Any) -> str:
    return ", ".join(value[:6]) if isinstance(value, list) else str(value or "none")


def _compared(
    now: pa.Table, then: pa.Table, level: float, rate: float
) -> tuple[dict[str, pa.Array], pa.Table]:
    """Join two tables ``prevalence`` by community and class, compared as text.

    Returns the change of each row of `now`, and the table ``changes``: the largest
    effects come first, then communities that could not be compared, new communities,
    and last those that are gone.
    """
    keys, keys_then = (
        pc.binary_join_element_wise(_texts(t["community"]), _texts(t["class"]), "\0")
        for t in (now, then)
    )
    place = pc.index_in(keys, value_set=keys_then)
    # Earlier values of communities that are suppressed now are not compared.
    hidden = pc.fill_null(pc.equal(now["quality"], SUPPRESSED), False)
    before = then.take(pc.if_else(hidden, None, place))
    changes = find_changes(now, before, level)
    found = {name: pa.array(v, from_pandas=True) for name, v in changes.items()}
    found["changed"] = pc.less_equal(found["qvalue"], rate)
    names = ("community", "class", "n_nodes", "prevalence")
    rows = pa.table(
        {
            **{name: now[name] for name in names},
            "status": pc.if_else(pc.is_valid(place), "both", "new"),
            "n_nodes_before": then["n_nodes"].take(place),
            "before": before["prevalence"],
            **found,
        }
    )
    new = np.asarray(pc.is_null(place))
    size = np.abs(changes["effect"])  # NaN is sorted last
    rows = rows.take(np.lexsort((-now["n_nodes"].to_numpy(), -size, new)))
    gone = then.filter(pc.invert(pc.is_in(keys_then, value_set=keys)))
    classes = pc.unique(now["class"])
    same = pc.index_in(_texts(gone["class"]), _texts(classes))
    others = pa.table(
        {
            "community": gone["community"],
            "class": classes.take(same),
            "status": pa.repeat("gone", len(gone)),
            "n_nodes_before": gone["n_nodes"],
            "before": gone["prevalence"],
        }
    )
    return found, _joined(rows, others)


def _texts(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Names or classes as they are printed."""
    known = pc.unique(values)
    texts = pa.array([str(each) for each in known.to_pylist()], pa.string())
    return texts.take(pc.index_in(values, value_set=known))


def is_named(values: pa.ChunkedArray, name: str) -> pa.Array:
    """Whether each of some names or classes is printed so."""
    return pc.equal(_texts(values), name)


def _joined(*tables: pa.Table) -> pa.Table:
    """Tables below each other; names and classes as text where their types differ."""
    for name in ("community", "class"):
        if len({table[name].type for table in tables}) > 1:
            tables = tuple(
                table.set_column(
                    table.column_names.index(name), name, _texts(table[name])
                )
                for table in tables
            )
    return pa.concat_tables(tables, promote_options="default")


def _history(results: Results, now: pa.Table, found: dict[str, pa.Array]) -> pa.Table:
    """Rows of all runs, those of the run that is being published last.

    `found` are its changes since the run before. Earlier values of communities that
    are suppressed now, or were as small, are removed.
    """
    facts, number = results.facts, len(now)
    series = fingerprint(facts["series"])[:16]
    run = {"run": results.run_id, "created": facts["created"], "series": series}
    names = ("community", "class", "n_nodes", "n_labelled", "quality")
    rows = pa.table(
        {
            **{name: pa.repeat(value, number) for name, value in run.items()},
            **{name: now[name] for name in names},
            **{name: now[name].cast(pa.float32()) for name in ESTIMATE},
            **{EFFECT[name]: found[name].cast(pa.float32()) for name in EFFECT},
            "changed": found["changed"].cast(pa.bool_()),
        }
    )
    past = _past_rows(results.directory)
    if past is None:
        return rows
    newest = results.directory.history()[0]
    if newest.manifest.facts["results"] == facts["results"]:
        # The same results are published again: they are one run.
        past = past.filter(pc.not_equal(past["run"], past["run"][-1]))
    gone = rows.filter(pc.equal(rows["quality"], SUPPRESSED))["community"]
    hidden = pc.is_in(_texts(past["community"]), value_set=_texts(gone))
    hidden = pc.or_(hidden, _small(past, results.settings))
    past = blanked(past, hidden, HIDDEN)
    runs = max(HISTORY_ROWS // max(len(rows), 1), 2)
    table = _joined(past, rows)
    return table.filter(pc.is_in(table["run"], pc.unique(table["run"])[-runs:]))


def _past_rows(run: RunDirectory) -> pa.Table | None:
    """Rows of all runs published in a place; None if there are none.

    The newest table has the rows of all versions before it. One that is damaged is
    named in a warning, and the rows of its run are left out.
    """
    for version in run.history():
        try:
            return version.read("history").drop_columns("run_id")
        except (XnqError, OSError) as error:
            log.warning("left out of the history: %s", error)
    return None


@dataclass(frozen=True)
class RunOfHistory:
    """One run, and how its communities differ from those of the run before."""

    run: str
    """Its run id."""
    created: str
    communities: int
    new: int
    gone: int
    changed: int | None
    """Communities that are flagged as changed, in any class; None: not compared."""


class History:
    """The runs of the newest series of a table ``history``."""

    def __init__(self, table: pa.Table) -> None:
        own = table.filter(pc.equal(table["series"], table["series"][-1]))
        self.table = own
        """Its rows, from the first run to the last."""
        self.others = len(pc.unique(table["run"])) - len(pc.unique(own["run"]))
        """Runs of other series, which are left out."""

    def runs(self) -> list[RunOfHistory]:
        """All runs, from the first to the last."""
        found: list[RunOfHistory] = []
        before: set[Any] = set()
        for run in pc.unique(self.table["run"]).to_pylist():
            rows = self.table.filter(pc.equal(self.table["run"], run))
            names = set(pc.unique(rows["community"]).to_pylist())
            then = before if found else names
            moved = None
            if rows["changed"].null_count < len(rows):
                moved = len(pc.unique(rows.filter(rows["changed"])["community"]))
            counts = len(names), len(names - then), len(then - names), moved
            found.append(RunOfHistory(run, rows["created"][0].as_py(), *counts))
            before = names
        return found

    def changed(self, of_class: str = "") -> pa.Table:
        """Rows of the last run that are flagged as changed, largest effects first."""
        rows, last = self.select(of_class=of_class), self.table["run"][-1]
        flagged = pc.and_(pc.equal(rows["run"], last), rows["changed"])
        rows = rows.filter(flagged)
        return rows.take(pc.sort_indices(pc.negate(pc.abs(rows["effect"]))))

    def select(self, community: str = "", of_class: str = "") -> pa.Table:
        """Rows of a community and of a class; empty texts: of all.

        Raises
        ------
        SettingsError
            When there are none.
        """
        rows = self.table
        for column, name in (("community", community), ("class", of_class)):
            known = rows[column]
            rows = rows.filter(is_named(known, name)) if name else rows
            if not rows.num_rows:
                names = ", ".join(map(str, pc.unique(known)[:8].to_pylist()))
                raise SettingsError(
                    f"there is no {column} {name!r} in the history: choose one of "
                    f"{names}, ..."
                )
        return rows


def read_history(location: str) -> History:
    """Read the history of a run directory.

    Raises
    ------
    RunDirectoryError
        When nothing is published there, or no version can be read.
    """
    run = RunDirectory(location)
    table = _past_rows(run)
    if table is None:
        raise RunDirectoryError(
            f"{run.uri} has no published results: complete it with xnq-dist run"
        )
    return History(table)
