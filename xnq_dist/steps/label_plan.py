"""Which nodes of a finished run to label next, as a probability sample with weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from scipy.special import ndtri

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.config import recorded_settings
from xnq_dist.core.errors import InputError, RunDirectoryError, SettingsError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.schemas import conform
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.contents import answer_digests
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Sources
from xnq_dist.quantify.checks.quality import without_values
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.loading import load_groups, load_node_table
from xnq_dist.quantify.sources import open_memberships
from xnq_dist.steps.allocation import Strata, allocate, choose, proportional

__all__ = ["LabelPlan", "Predicted", "plan_labels", "write_plan"]

QUANTIFY = "quantify"
MAX_COMMUNITIES = 1000


@dataclass(frozen=True)
class Predicted:
    """Predicted intervals of one target community.

    Predictions are for labels that are a random or a planned sample and declared so
    (`labels.drawn`). The published interval is wider where the labels may have been
    chosen by class, because it then contains the estimates of both scenarios.
    """

    community: str
    labels: float
    """Expected number of new labels."""
    published: float
    """Half-width of its widest class's published interval."""
    now: float
    """Half-width predicted from the run's labels, as if they were such a sample."""
    planned: float
    """Predicted half-width with the labels of the plan."""
    random: float
    """Predicted half-width with as many labels of a simple random sample."""


@dataclass(frozen=True, eq=False)
class LabelPlan:
    """Nodes to label, and the predicted intervals."""

    table: pa.Table
    """Schema ``label_plan``."""
    communities: list[Predicted]
    """Widest first."""
    unlabelled: int
    """Nodes that could be chosen."""


def plan_labels(
    location: str,
    budget: int,
    communities: list[str] | None = None,
    worst: int = 20,
    seed: int = 0,
) -> LabelPlan:
    """Choose the nodes to label next.

    Parameters
    ----------
    location
        The run directory; its memberships table must be unchanged.
    budget
        Number of nodes to label.
    communities
        Names of the communities whose intervals are to be narrowed, as text; None:
        those with the widest intervals.
    worst
        How many communities with the widest intervals.
    seed
        Seed of the draw: the same seed gives the same nodes.

    Raises
    ------
    SettingsError
        When the budget is not positive, a community is unknown, no community has an
        interval to narrow, or the run was not made with `auto`.
    InputError
        When the memberships changed since the run.
    StageError
        When the run is not complete.

    Notes
    -----
    The new labels represent all nodes that are unlabelled now, each ``label_weight`` of
    them; nodes that were labelled before represent themselves and have the weight 1.
    """
    if budget < 1 or worst < 1:
        raise SettingsError("--budget and --worst must be 1 or more")
    run = _Finished.open(RunDirectory(location))
    stage = run.directory.stage(QUANTIFY)
    arrays = stage.read_arrays(run.manifest.named("learnt-")[0])
    learnt = Learnt.from_arrays(load_groups(run.directory).stacked, arrays)
    prior = run.directory.complete("readout").facts["prior"]
    nodes, reference = load_node_table(run.directory, prior)
    rows = stage.read_table(run.manifest.named("prevalence-")[0], "prevalence")
    names = rows["community"].combine_chunks()[:: len(nodes.classes)]
    widths = _half_widths(without_values(rows), len(nodes.classes))
    where = run.directory.uri
    if communities is None:
        codes = _widest(widths, min(worst, MAX_COMMUNITIES), where)
    else:
        codes = _named(names.cast(pa.string()), communities, widths, where)
    sets = run.members(codes)
    unlabelled = int(np.count_nonzero(nodes.unlabelled))
    budget = min(budget, unlabelled)
    counted = run.settings.labelled
    strata = Strata.of(nodes, reference, learnt, sets, budget, counted)
    labels = allocate(strata)
    chances = np.clip(labels / strata.sizes, 1e-12, 1.0)
    picked = choose(strata.stratum, chances, budget, seed)
    z = float(ndtri((1 + run.settings.intervals.level) / 2))
    now, planned, at_random = (
        z * strata.errors(each).max(axis=1)
        for each in (np.zeros(len(labels)), labels, proportional(strata))
    )
    order = np.argsort(-now, kind="stable").tolist()
    widest = np.full(len(nodes.labels), -1, np.int64)
    for s in reversed(order):
        widest[sets[s]] = s
    named = names.take(pa.array(codes))
    if not pa.types.is_integer(named.type):
        named = named.cast(pa.string())
    table = _table(run.ids, picked, strata.stratum, chances, widest, named)
    expected = (strata.inside * labels).sum(axis=1)
    figures = expected, widths[codes], now, planned, at_random
    predicted = [
        Predicted(str(named[s].as_py()), *(float(each[s]) for each in figures))
        for s in order
    ]
    return LabelPlan(table, predicted, unlabelled)


def _table(
    ids: NodeIds,
    picked: Ints,
    stratum: Ints,
    chances: Floats,
    community: Ints,
    names: pa.Array,
) -> pa.Table:
    """Rows of the nodes to label; `community` -1: in none of those to be improved."""
    kind = pa.string() if ids.type == "string" else pa.int64()
    code, chance = community[picked], chances[stratum[picked]]
    table = pa.table(
        {
            "node_id": ids.values.take(pa.array(picked)).cast(kind),
            "community": names.take(pa.array(code, mask=code < 0)),
            "stratum": stratum[picked],
            "inclusion_probability": chance,
            "label_weight": 1.0 / chance,
        }
    )
    return conform(table, "label_plan", "plan")


def write_plan(plan: LabelPlan, path: str) -> None:
    """Write the table of a plan as Parquet or CSV, by the path's suffix.

    Raises
    ------
    SettingsError
        For another suffix, or a path that cannot be written.
    """
    if not path.endswith((".parquet", ".csv")):
        raise SettingsError(
            f"--out {path} ends neither in .parquet nor in .csv: use one of both"
        )
    write = pacsv.write_csv if path.endswith(".csv") else pq.write_table
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write(plan.table, path)
    except OSError as error:
        raise SettingsError(
            f"--out {path} cannot be written ({error}): name another file"
        ) from error


@dataclass(frozen=True, eq=False)
class _Finished:
    """A finished run with the variances that `auto` learnt."""

    directory: RunDirectory
    manifest: Manifest
    settings: Settings
    sources: Sources

    @classmethod
    def open(cls, run: RunDirectory) -> _Finished:
        """Read what the run was made from."""
        record = RunRecord.read(run.folder)
        if record is None or not record.settings:
            raise RunDirectoryError(
                f"{run.uri} is not a run directory: name one made by xnq-dist run"
            )
        manifest = run.complete(QUANTIFY)
        if not manifest.named("learnt-"):
            raise SettingsError(
                f"{run.uri} does not have the variances that a label plan needs: run "
                "again with quantifier = auto and memberships.drawn = unknown"
            )
        path = record.sources.get
        nodes, edges = (str(path(name) or "") for name in ("nodes", "edges"))
        sources = Sources(nodes, edges, path("memberships"))
        return cls(run, manifest, recorded_settings(record.settings), sources)

    @cached_property
    def ids(self) -> NodeIds:
        """Ids of the nodes."""
        run = self.directory
        return layout.load_ids(run.stage("graph"), run.complete("graph"))

    def members(self, codes: Ints) -> list[Ints]:
        """Read the members of communities; an `InputError` if they changed since."""
        run, source = self.directory, str(self.manifest.inputs["communities"])
        graph, made = run.complete("graph"), self.manifest.inputs.get("memberships")
        inputs = self.sources, self.settings, source
        now = answer_digests(run.folder, *inputs, graph.facts["id_type"])
        if dict(now.get("memberships") or {}) != dict(made or {}):
            raise InputError(
                f"the memberships changed since {run.uri} was made: run xnq-dist run "
                "again, then plan labels"
            )
        if source == "leiden":
            record = self.manifest.named("communities-")[0]
            table: Any = run.stage(QUANTIFY).read_table(record, "communities")
            community, nodes = table["community"].to_numpy(), table["node_id"]
            return [
                np.sort(self.ids.index_of(nodes.filter(pa.array(community == code))))
                for code in codes.tolist()
            ]
        found: dict[int, Ints] = {}
        with open_memberships(run, graph, self.ids, *inputs) as memberships:
            for chunk in memberships.chunks():
                inside = (codes >= chunk.first) & (codes < chunk.last)
                for code in codes[inside].tolist():
                    ends = chunk.indptr[code - chunk.first :]
                    found[code] = chunk.minor[ends[0] : ends[1]].astype(np.int64)
        return [found[code] for code in codes.tolist()]


def _half_widths(table: pa.Table, n_classes: int) -> Floats:
    """Half-width of the widest interval of any class, NaN without one, shape (S,)."""
    lower, upper = (
        table[name].to_numpy().astype(np.float64).reshape(-1, n_classes)
        for name in ("lower", "upper")
    )
    return np.asarray((upper - lower).max(axis=1) / 2)


def _widest(widths: Floats, worst: int, where: str) -> Ints:
    """Communities with the widest intervals, of those that are not suppressed."""
    eligible = np.flatnonzero(widths > 0)
    if not len(eligible):
        raise SettingsError(
            f"no community of {where} has an interval to narrow: give more members, or "
            "lower disclosure.min_size"
        )
    order = eligible[np.argsort(-widths[eligible], kind="stable")]
    return np.sort(order[:worst]).astype(np.int64)


def _named(names: pa.Array, requested: list[str], widths: Floats, where: str) -> Ints:
    codes = {name: int(pc.index(names, name).as_py()) for name in requested}
    for name, code in codes.items():
        if code < 0:
            raise SettingsError(
                f"there is no community {name!r} in {where}: see the column community "
                "of prevalence.parquet"
            )
        if not widths[code] > 0:
            raise SettingsError(
                f"community {name!r} has no interval to narrow, or is suppressed: see "
                "the column note of prevalence.parquet, or name another one"
            )
    if len(codes) > MAX_COMMUNITIES:
        raise SettingsError(
            f"{len(codes)} communities are named with --community: name at most "
            f"{MAX_COMMUNITIES}"
        )
    return np.sort(np.array(list(codes.values()), np.int64))
