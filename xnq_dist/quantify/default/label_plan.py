"""Which nodes of a finished run to label next, as a probability sample with weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from scipy.special import ndtri

from xnq_dist.core.arrays import Floats, Ints, Ints32
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
from xnq_dist.quantify.default.allocation import Strata, allocate, choose, proportional
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.quantify.loading import load_groups, load_node_table
from xnq_dist.quantify.sources import open_memberships

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
    run = RunDirectory(location)
    manifest, settings, sources = _finished(run, budget, worst)
    stage = run.stage(QUANTIFY)
    arrays = stage.read_arrays(manifest.named("learnt-")[0])
    learnt = Learnt.from_arrays(load_groups(run).stacked, arrays)
    nodes, reference = load_node_table(run, run.complete("readout").facts["prior"])
    ids = layout.load_ids(run.stage("graph"), run.complete("graph"))
    rows = stage.read_table(manifest.named("prevalence-")[0], "prevalence")
    table = without_values(rows)
    names = table["community"].combine_chunks()[:: len(nodes.classes)]
    widths = _half_widths(table, len(nodes.classes))
    if communities is None:
        codes = _widest(widths, worst, run.uri)
    else:
        codes = _named(names, communities, widths, run.uri)
    _check_unchanged(run, sources, settings, manifest)
    chosen = _members(run, manifest, ids, sources, settings, codes)
    labels = names.take(pa.array(codes))
    inputs = nodes, reference, learnt, chosen, labels, widths[codes]
    return _plan(*inputs, ids, budget, settings, seed)


def cells(sets: list[Ints], n_nodes: int) -> Ints32:
    """A code for each combination of sets that has nodes, -1 in no set, shape (N,)."""
    cell = np.zeros(n_nodes, np.int64)
    codes = 1
    for members in sets:
        old, within = np.unique(cell[members], return_inverse=True)
        cell[members] = codes + within
        codes += len(old)
    # The first code is that of nodes in no set.
    index = np.unique(np.append(cell, 0), return_inverse=True)[1]
    return np.asarray(index[:-1] - 1, np.int32)


def _plan(
    nodes: NodeTable,
    reference: Reference,
    learnt: Learnt,
    sets: list[Ints],
    names: pa.Array,
    published: Floats,
    ids: NodeIds,
    budget: int,
    settings: Settings,
    seed: int,
) -> LabelPlan:
    """Plan labels for communities whose members have been read."""
    cell = cells(sets, len(nodes.labels))
    unlabelled = int(np.count_nonzero(nodes.unlabelled))
    budget = min(budget, unlabelled)
    strata = Strata.of(nodes, reference, learnt, sets, cell, budget, settings.labelled)
    labels = allocate(strata)
    chances = np.clip(labels / strata.sizes, 1e-12, 1.0)
    picked = choose(strata.stratum, chances, budget, seed)
    z = float(ndtri((1 + settings.intervals.level) / 2))
    now, planned, at_random = (
        z * strata.errors(each).max(axis=1)
        for each in (np.zeros(len(labels)), labels, proportional(strata))
    )
    order = np.argsort(-now, kind="stable")
    widest = np.full(len(nodes.labels), -1, np.int64)
    for s in order[::-1].tolist():
        widest[sets[s]] = s
    stratum = strata.stratum[picked]
    code = widest[picked]
    kind = pa.string() if ids.type == "string" else pa.int64()
    named = names if pa.types.is_integer(names.type) else names.cast(pa.string())
    table = pa.table(
        {
            "node_id": ids.values.take(pa.array(picked)).cast(kind),
            "community": named.take(pa.array(code, mask=code < 0)),
            "stratum": stratum,
            "inclusion_probability": chances[stratum],
            "label_weight": 1.0 / chances[stratum],
        }
    )
    expected = (strata.inside * labels).sum(axis=1)
    communities = [
        Predicted(
            str(names[s].as_py()),
            *(float(v[s]) for v in (expected, published, now, planned, at_random)),
        )
        for s in order.tolist()
    ]
    return LabelPlan(conform(table, "label_plan", "plan"), communities, unlabelled)


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


def _finished(
    run: RunDirectory, budget: int, worst: int
) -> tuple[Manifest, Settings, Sources]:
    """Return the manifest of the stage ``quantify``, with its settings and sources."""
    if budget < 1 or worst < 1:
        raise SettingsError("--budget and --worst must be 1 or more")
    record = RunRecord.read(run.folder)
    if record is None or not record.settings:
        raise RunDirectoryError(
            f"{run.uri} is not a run directory: name one made by xnq-dist run"
        )
    manifest = run.complete(QUANTIFY)
    if not manifest.named("learnt-"):
        raise SettingsError(
            f"{run.uri} does not have the variances that a label plan needs: run again "
            "with quantifier = auto and memberships.drawn = unknown"
        )
    path = record.sources.get
    nodes, edges = (str(path(name) or "") for name in ("nodes", "edges"))
    sources = Sources(nodes, edges, path("memberships"))
    return manifest, recorded_settings(record.settings), sources


def _check_unchanged(
    run: RunDirectory, sources: Sources, settings: Settings, manifest: Manifest
) -> None:
    """Raise an `InputError` if communities changed since the run."""
    source = str(manifest.inputs["communities"])
    id_type = run.complete("graph").facts["id_type"]
    now = answer_digests(run.folder, sources, settings, source, id_type)
    made = manifest.inputs.get("memberships") or {}
    if dict(now.get("memberships") or {}) != dict(made):
        raise InputError(
            f"the memberships changed since {run.uri} was made: run xnq-dist run "
            "again, then plan labels"
        )


def _half_widths(table: pa.Table, n_classes: int) -> Floats:
    """Half-width of the widest interval of any class, NaN without one, shape (S,)."""
    ends = [
        table[name].to_numpy().astype(np.float64).reshape(-1, n_classes)
        for name in ("lower", "upper")
    ]
    return np.asarray((ends[1] - ends[0]).max(axis=1) / 2)


def _widest(widths: Floats, worst: int, where: str) -> Ints:
    """Communities with the widest intervals, of those that are not suppressed."""
    eligible = np.flatnonzero(widths > 0)
    if not len(eligible):
        raise SettingsError(
            f"no community of {where} has an interval to narrow: give more members, or "
            "lower disclosure.min_size"
        )
    order = eligible[np.argsort(-widths[eligible], kind="stable")]
    return np.sort(order[: min(worst, MAX_COMMUNITIES)]).astype(np.int64)


def _named(names: pa.Array, requested: list[str], widths: Floats, where: str) -> Ints:
    text = names.cast(pa.string())
    codes = [int(pc.index(text, name).as_py()) for name in dict.fromkeys(requested)]
    if min(codes) < 0:
        raise SettingsError(
            f"there is no community {requested[codes.index(min(codes))]!r} in {where}: "
            "see the column community of prevalence.parquet"
        )
    if np.isnan(widths[codes]).any():
        without = requested[int(np.argmax(np.isnan(widths[codes])))]
        raise SettingsError(
            f"community {without!r} has no interval to narrow, or is suppressed: see "
            "the column note of prevalence.parquet, or name another one"
        )
    if len(codes) > MAX_COMMUNITIES:
        raise SettingsError(
            f"{len(codes)} communities are named with --community: name at most "
            f"{MAX_COMMUNITIES}"
        )
    return np.sort(np.array(codes, np.int64))


def _members(
    run: RunDirectory,
    manifest: Manifest,
    ids: NodeIds,
    sources: Sources,
    settings: Settings,
    codes: Ints,
) -> list[Ints]:
    """Read the members of communities from the input tables of the run."""
    source = str(manifest.inputs["communities"])
    if source == "leiden":
        stage = run.stage(QUANTIFY)
        table: Any = stage.read_table(manifest.named("communities-")[0], "communities")
        community = table["community"].to_numpy()
        return [
            np.sort(ids.index_of(table["node_id"].filter(pa.array(community == code))))
            for code in codes.tolist()
        ]
    found: dict[int, Ints] = {}
    inputs = run, run.complete("graph"), ids, sources, settings, source
    with open_memberships(*inputs) as memberships:
        for chunk in memberships.chunks():
            inside = (codes >= chunk.first) & (codes < chunk.last)
            for code in codes[inside].tolist():
                at = code - chunk.first
                members = chunk.minor[chunk.indptr[at] : chunk.indptr[at + 1]]
                found[code] = members.astype(np.int64)
    return [found[code] for code in codes.tolist()]
