"""Seconds of each stage: amounts of work times what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from xnq_dist.groups.own_groups import ROUNDS
from xnq_dist.plan.unit_costs import Costs
from xnq_dist.quantify.default.surroundings import WALKS

__all__ = ["Amounts", "NeighbourSums", "stage_seconds"]

SEARCH_FITS = 3
"""Values of C that each candidate of the scales' search is judged by."""
PASSES = 12
"""Passes over the rows that a fit takes."""
TREES = 250
"""Boosted trees of a model, one a class where there are more than two."""
SECOND_FITS = 4
"""Values of C that the second stage of xnq+ tries."""
BLOCK_COPIES = 4
"""Times that a halo row is copied: twice as its block is cut, as it arrives, and as it
is put in local order."""


@dataclass(frozen=True)
class NeighbourSums:
    """Rounds of sums over neighbours, `width` values a node."""

    rounds: int
    width: int


@dataclass(frozen=True)
class Amounts:
    """Amounts that a run's time is made of."""

    nodes: int
    edges: int
    """Directed."""
    features: int
    """Input features of a node."""
    classes: int
    labelled: int
    memberships: int
    exchanged: int
    """Bytes that cross between workers, or go through files, in one superstep."""
    halo_bytes: int
    """Bytes of the halo rows of all partitions in one superstep."""
    partitions: int
    most_nodes: int
    """Of the busiest worker: the others wait for it."""
    most_edges: int
    """The same, directed edges."""
    workers: int
    threads: int
    """Cores of a worker that share a superstep."""
    lanes: int
    """Tasks that run beside each other in a worker, one a partition."""
    dim: int
    columns: int
    """Of the embedding."""
    products: int
    """Values of a state that one new value is made from."""
    sparse: bool
    """Whether they are few of many."""
    supersteps: int
    item: int
    """Bytes of a value of the embeddings."""
    candidates: int
    """Scales that are tried, with at most `candidate_dim` units; 0: they are given."""
    candidate_dim: int
    folds: int
    fits: int
    """Values of C that the readout tries."""
    turns: int
    """Turns that the folds of one C take, in parallel on all threads."""
    beside: tuple[NeighbourSums, ...]
    """Of xnq+, for blocks of the embedding beside the reservoir; none for xnq."""
    sums: tuple[NeighbourSums, ...]
    """Of its readout."""
    seen: tuple[int, ...]
    """Columns that each kind of second-stage trees sees; empty: none compete."""
    second: int
    """Label features of xnq+ in one variant; 0 for xnq."""
    auto: bool
    """Whether the quantifier is ``auto``."""
    detects: bool
    """Whether communities are detected."""
    leiden: bool
    """Whether Leiden finds the graph's own groups; else label propagation does."""
    disk: int
    """Bytes that the workers write as they are: checkpoints, kept rounds, spills."""


def stage_seconds(work: Amounts, costs: Costs) -> dict[str, float]:
    """Seconds of each stage; ingest and cut run in one process, the rest in all.

    Parameters
    ----------
    work
        Amounts.
    costs
        Of a core, or of a GPU.
    """
    values = float(work.nodes) * work.columns
    return {
        "fixed": costs.fixed,
        "ingest": work.nodes * costs.node + work.edges * costs.edge,
        "supersteps": _embed(work, costs, work.dim)
        + _search(work, costs)
        + _sums(work, costs, work.beside),
        "readout": _readout(work, costs) + _plus(work, costs),
        "quantify": _quantify(work, costs),
        "write": (work.disk * costs.disk + values * work.item * costs.table)
        / (work.workers * work.lanes),
    }


def _embed(work: Amounts, costs: Costs, dim: int) -> float:
    """Supersteps with so many units, loading the partitions included."""
    share = dim / work.dim
    values = float(work.most_nodes) * dim
    products = work.products if work.sparse else work.products * share
    product = costs.nonzero if work.sparse else costs.flop
    superstep = (
        work.most_edges * (costs.visit + dim * costs.gather)
        + 2.0 * values * products * product
        + values * costs.value
        + values * 4.0 * costs.copy
    ) / work.threads
    lanes = work.workers * work.lanes
    halo = BLOCK_COPIES * share * work.halo_bytes * costs.copy / lanes
    # Each worker receives its own share; what all receive crosses side by side.
    exchange = share * work.exchanged * costs.wire / work.workers
    overhead = 3.0 * work.partitions * costs.task
    drive = (2.0 * values * work.features * costs.flop) / work.threads
    load = _load(work, costs) + values * 4.0 * costs.copy / work.lanes + drive
    return load + work.supersteps * (superstep + halo + exchange + overhead)


def _load(work: Amounts, costs: Costs) -> float:
    """The partitions' edges read once."""
    return work.most_edges * 4.0 * costs.load / work.lanes


def _search(work: Amounts, costs: Costs) -> float:
    """Scales tried with a smaller reservoir each; one task judges them."""
    if not work.candidates:
        return 0.0
    rows = work.labelled * (work.folds - 1.0)
    judged = _moments(work, costs, work.candidate_dim)
    judged += SEARCH_FITS * _fit(work, costs, rows, work.candidate_dim)
    return work.candidates * (_embed(work, costs, work.candidate_dim) + judged)


def _fit(work: Amounts, costs: Costs, rows: float, dim: int) -> float:
    """One fit to some rows, or several fits to as many in all."""
    outputs = 1 if work.classes == 2 else work.classes
    return rows * dim * outputs * PASSES * costs.row


def _moments(work: Amounts, costs: Costs, dim: int) -> float:
    """The covariance of the labelled rows, for all fits."""
    return float(work.labelled) * dim * dim * costs.square


def _readout(work: Amounts, costs: Costs) -> float:
    """Rows read twice, folds fitted, posteriors written; xnq+ reads once more."""
    values = float(work.most_nodes) * work.columns
    reads = 3 if work.sums else 2
    read = reads * values * work.item * costs.read / work.lanes
    score = (reads - 1) * values * costs.score / work.lanes
    write = work.most_nodes * costs.posterior / work.lanes
    rows = work.labelled * (work.folds - 1.0) / max(1, work.folds)
    fits = work.fits * work.turns * _fit(work, costs, rows, work.dim)
    fits += _moments(work, costs, work.dim)
    if not work.sums:
        fits += _fit(work, costs, work.labelled, work.dim)
    return read + score + write + fits + _groups(work, costs)


def _groups(work: Amounts, costs: Costs) -> float:
    """The graph's own groups by Leiden, or by label propagation in rounds."""
    if work.leiden:
        return work.edges * costs.leiden
    visited = work.most_edges * costs.visit / work.lanes
    return ROUNDS * (visited + _load(work, costs))


def _sums(work: Amounts, costs: Costs, rounds: tuple[NeighbourSums, ...]) -> float:
    """Rounds of sums over neighbours, one halo exchange each."""
    found = 0.0
    for sums in rounds:
        visited = (
            work.most_edges * (costs.visit + sums.width * costs.gather) / work.lanes
        )
        # Each task reads the edges of its partition, for its rows and for its block.
        once = visited + 2 * _load(work, costs) + 4 * work.partitions * costs.task
        found += sums.rounds * once
    return found


def _plus(work: Amounts, costs: Costs) -> float:
    """What xnq+ does beside: sums over neighbours, features, the second stage."""
    found = _sums(work, costs, work.sums)
    each = float(work.most_nodes)
    found += 2 * each * work.second * costs.feature / work.lanes
    if work.second:
        rows = work.labelled * (work.folds - 1.0)
        found += SECOND_FITS * _fit(work, costs, rows, work.second)
    trees = TREES * (1 if work.classes == 2 else work.classes)
    for columns in work.seen:
        rows = work.labelled * (work.folds - 1.0) / work.folds
        model = trees * (costs.tree + rows * columns * costs.bin)
        found += work.folds * model / (work.workers * work.lanes)
        found += each * trees * costs.leaf / work.lanes
    return found


def _quantify(work: Amounts, costs: Costs) -> float:
    """Every worker reads all nodes."""
    member = costs.judged if work.auto else costs.member
    found = work.nodes * (costs.known + costs.name)
    found += work.memberships * member / (work.workers * work.lanes)
    if work.auto:
        # Labels around every node, to study how they were chosen.
        found += WALKS * (work.most_edges * costs.visit / work.lanes)
        found += WALKS * _load(work, costs)
    if work.detects:
        found += work.edges * costs.leiden
    return found
