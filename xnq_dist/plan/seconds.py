"""The expected time of a complete run from six costs, good to a factor of two.

The costs, and two weights of the work of a superstep, are those of two cores of an AMD
EPYC, fitted to runs of 1,500 to 10 million nodes in one process (``docs/results.md``).
Progress within a stage shows the run's own pace.
"""

from __future__ import annotations

from dataclasses import replace

from xnq_dist.core.need import RunSize
from xnq_dist.core.settings import Settings
from xnq_dist.groups.detection import groups_by_all_edges
from xnq_dist.readout.needs import candidates_of, fitted_rows
from xnq_dist.readout.select import UNITS
from xnq_dist.reservoir.length import expected_diameter
from xnq_dist.reservoir.needs import blocks_of, supersteps_of

__all__ = ["MEASURED_EDGES", "expected_seconds"]

FIXED = 4.5
"""Imports, kernels, the report."""
EDGE = 3e-7
"""One directed edge read, sorted and partitioned."""
GROUPED = 2e-6
"""One directed edge in one detection of communities by Leiden."""
VALUE = 7e-10
"""One value added into a sum over neighbours, on one thread."""
BYTE = 9e-9
"""One byte of the run directory written and read again, on one thread."""
ROW = 1.8e-7
"""One value of a labelled row, for one class, in all fits."""

ACCESS = 64
"""Values of a neighbour's state that are added in the time of finding the first."""
UPDATED = 10
"""Values that are added in the time of updating or receiving one value of a state."""
UNDIRECTED = 0.7
"""Directed edges over two for each row of an undirected table, which may list an edge
once or in both directions: the middle, by ratio."""
MEASURED_EDGES = 100_000_000
"""Directed edges of the largest graph that the costs were fitted to."""


def expected_seconds(size: RunSize, settings: Settings, run_disk: int) -> float:
    """Expected time of a complete run on CPUs.

    Parameters
    ----------
    size
        Counts of the graph; bounds of edges and diameter are replaced by likely ones.
    run_disk
        Bytes of the run directory.
    """
    size = _likely(size, settings.input.directed)
    busy = min(size.partitions, size.workers.count)
    threads = busy * size.workers.threads
    # Runs of Leiden: coarse groups, fine ones of small graphs, and communities.
    groupings = 1 + groups_by_all_edges(size.edges) + size.detects
    rows = fitted_rows(size) * sum(blocks_of(size, settings)) * size.classes
    return (
        FIXED
        + EDGE * size.edges
        + GROUPED * size.edges * groupings
        + VALUE * _values(size, settings, busy, threads)
        + BYTE * run_disk / (busy * size.lanes)
        + ROW * rows / threads
    )


def _likely(size: RunSize, directed: bool) -> RunSize:
    """The counts with the edges and the diameter that are likely."""
    edges, diameter = size.edges, size.diameter
    if size.partition_counts is None and not directed:
        edges = round(edges * UNDIRECTED)
    if diameter is None:
        diameter = expected_diameter(size.nodes, edges)
    return replace(size, edges=edges, diameter=diameter)


def _values(size: RunSize, settings: Settings, busy: int, threads: int) -> float:
    """Values that a thread adds into sums over neighbours, in the time of all rounds.

    Parameters
    ----------
    busy, threads
        Workers that have a partition, and their threads.
    """
    steps, dim = supersteps_of(size, settings), settings.reservoir.dim
    rounds = (
        (steps.turns * steps.length, steps.units),
        (candidates_of(settings) * steps.length, min(dim, UNITS)),
    )
    edges, rows = size.edges / threads, size.nodes / threads + steps.moves.moved / busy
    return sum(
        count * (edges * (width + ACCESS) + rows * width * UPDATED)
        for count, width in rounds
    )
