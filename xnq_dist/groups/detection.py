"""Communities of a graph: by Leiden, or contracted first where edges do not fit.

Nodes join the communities of their neighbours where modularity gains most, in passes
over edges on disk: label propagation with modularity's penalty for large communities
(Barber and Clark) and a maximum size. The communities form a weighted graph, which is
contracted again until Leiden can hold it. Leiden's communities are then refined by
passes over the edges of each earlier graph. Nodes move one after the other
(`graph.clustering`), so the result depends on the graph, the seed and the memory only.

References
----------
M. J. Barber, J. W. Clark, "Detecting network communities by propagating labels under
constraints", Physical Review E 80, 026129, 2009.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import streams
from xnq_dist.core.store import Manifest
from xnq_dist.graph import layout
from xnq_dist.graph.clustering import FIRST, numbered, propagate
from xnq_dist.graph.csr import Csr, write_csr
from xnq_dist.graph.sort import PairSorter
from xnq_dist.groups.leiden import leiden, number_by_size, optimise

__all__ = [
    "Level",
    "detect",
    "detect_streamed",
    "groups_by_all_edges",
]

log = logging.getLogger(__name__)

LEIDEN_PAIR = 220
"""Bytes of an undirected edge while Leiden runs (measured)."""
PASSES = 6
"""Maximum number of passes over all nodes before a graph is contracted or returned.

Before contraction `FIRST` passes come first, each over a random part of the
nodes: in canonical order alone, communities of a grid grow along its rows."""
MOVED_AT_END = 0.01
"""Passes end after one that moved at most this share of the nodes."""
QUICK_MOVED, QUICK_EDGES = 0.05, 250_000
"""The same, and the edges that Leiden gets at most, where communities need not be the
best: 10 M edges took 8 s instead of 24."""
MAX_SHARE = 1 / 20
"""Maximum share of all edges that communities have before contraction."""
MIN_SHRINKAGE = 0.9
"""Contraction ends when it leaves more than this share of the nodes."""

REFERENCE_EDGES = 5_000_000
"""Edges up to which Leiden finds the groups that intervals are learnt on from all of
them, in 800 MB; larger graphs are contracted first."""


def detect(graph: Manifest, settings: Settings, folder: Path) -> Ints:
    """Community of every node of a stage ``graph``, numbered by decreasing size.

    `folder`: for temporary files where edges do not fit in memory.
    """
    chosen = settings.leiden.resolution, settings.seed
    if streams(settings, int(graph.facts["n_edges"])):
        memory = settings.input.memory_bytes
        return detect_streamed(graph, folder, memory, *chosen)
    return leiden(layout.read_adjacency(graph), *chosen)


def groups_by_all_edges(edges: int) -> bool:
    """Whether Leiden holds all edges for the groups that intervals are learnt on."""
    return edges <= REFERENCE_EDGES


def detect_streamed(
    graph: Manifest,
    folder: Path,
    memory: int,
    resolution: float = 1.0,
    seed: int = 0,
    quick: bool = False,
) -> Ints:
    """Community of every node of a stage ``graph``, whose edges stay on disk.

    Parameters
    ----------
    graph
        The manifest of the stage.
    folder
        For temporary files.
    memory
        Bytes, in addition to about 60 a node and the edges of one partition.
    resolution, seed
        As for `leiden`.
    quick
        Fewer passes, at most `QUICK_EDGES` edges for Leiden whatever the memory, and no
        refinement of its communities: for groups of which any similar ones will do.

    Returns
    -------
    Community numbers, shape (N,), as from `leiden`.
    """
    with TemporaryDirectory(dir=folder) as own:
        level = _undirected(graph, Path(own), memory)
        labels = _communities(level, Path(own), memory, resolution, seed, quick)
    return number_by_size(labels)


@dataclass(frozen=True)
class Level:
    """An undirected graph."""

    csr: Csr
    """Each edge in both directions, without loops."""
    strength: Floats
    """Sum of the weights of a node's edges, loops counted twice, shape (N,)."""


def _communities(
    level: Level,
    folder: Path,
    memory: int,
    resolution: float,
    seed: int,
    quick: bool = False,
    depth: int = 0,
) -> Ints32:
    """Community of every node of an undirected graph, shape (N,).

    The arguments are those of `detect_streamed`.
    """
    n, pairs = len(level.strength), int(level.csr.indptr[-1]) // 2
    total = float(level.strength.sum())
    label: Ints32 = np.arange(n, dtype=np.int32)
    if not pairs or total == 0:
        return label
    if pairs <= (QUICK_EDGES if quick else memory // LEIDEN_PAIR):
        log.info("Leiden on %d nodes and %d edges", n, pairs)
        return _leiden(level, resolution, seed, quick)
    penalty = resolution / total
    settled = n * (QUICK_MOVED if quick else MOVED_AT_END)
    csr, strength, last = level.csr, level.strength, FIRST + PASSES
    chosen = penalty, total * MAX_SHARE, settled, seed + depth
    propagate(csr, label, strength, range(last), *chosen)
    label, found = numbered(label)
    if found < MIN_SHRINKAGE * n:
        with TemporaryDirectory(dir=folder) as below:
            small = _contracted(level, label, Path(below), memory)
            same = memory, resolution, seed, quick
            label = _communities(small, folder, *same, depth + 1)[label]
    if not quick:
        turns = range(FIRST, last)
        propagate(csr, label, strength, turns, penalty, settled=settled)
    return label


def _contracted(level: Level, label: Ints32, folder: Path, memory: int) -> Level:
    """The weighted graph between the communities 0, 1, ... of a graph's nodes."""
    strength = np.bincount(label, level.strength).astype(np.float64)
    n = len(strength)
    weighted = level.csr.weighted
    sorter = PairSorter(n, n, memory, folder, weighted)
    for rows in level.csr.chunks():
        ends, others = label[rows.targets], label[rows.indices]
        across = ends != others
        weights = rows.weights[across] if weighted else None
        sorter.add(ends[across], others[across], weights)
    csr = write_csr(sorter.chunks(), n, folder, weighted=True)
    return Level(csr, strength)


def _leiden(level: Level, resolution: float, seed: int, quick: bool) -> Ints32:
    """Leiden's communities of a graph that fits in memory."""
    from scipy import sparse

    indices, weights = level.csr.arrays()
    values = weights if len(weights) else np.ones(len(indices))
    strength = level.strength
    shape = len(strength), len(strength)
    edges = sparse.csr_array((values, indices, level.csr.indptr), shape)
    return optimise(edges, strength, resolution, seed, quick).astype(np.int32)


def _undirected(graph: Manifest, folder: Path, memory: int) -> Level:
    """The graph with both directions of its edges added up, from its partitions."""
    n = int(graph.facts["n_nodes"])
    weighted = bool(graph.facts["weighted"])
    both = weighted or not graph.facts["symmetric"]
    loops = np.zeros(n)
    sorter = PairSorter(n, n, memory, folder, weighted)
    for rows, edges in layout.canonical_rows(graph):
        for part in edges.chunks():
            ends, others = rows[part.targets], part.indices
            apart = ends != others
            loops[ends[~apart]] = part.weights[~apart]
            ends, others, values = ends[apart], others[apart], part.weights[apart]
            sorter.add(ends, others, values)
            if both:
                sorter.add(others, ends, values)
    csr = write_csr(sorter.chunks(), n, folder, weighted=both)
    # A loop counts twice, and every other edge in both directions.
    strength = loops * (4 if both else 2)
    for part in csr.chunks():
        weights = part.weights if both else None
        found = np.bincount(part.targets - part.first, weights, part.last - part.first)
        strength[part.first : part.last] += found
    return Level(csr, strength)
