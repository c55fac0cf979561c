"""Parameters of a reservoir, and the partitions' vectors and places on workers.

The number of supersteps is set, or follows from the effective diameter. After L
supersteps a state depends on the nodes within L steps of its node. 90 % of the pairs
lie within the effective diameter; `EXTRA` more steps let the states settle.

References
----------
M. E. J. Newman, S. H. Strogatz, D. J. Watts, "Random graphs with arbitrary degree
distributions and their applications", Physical Review E 64, 2001 (distances in random
graphs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest
from xnq_dist.graph.distances import MAX_STEPS, SHARE
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.weights import Reservoir

__all__ = [
    "MAX_STEPS",
    "ReservoirSpec",
    "expected_diameter",
    "feature_matrix",
    "join",
    "matrix_of",
    "number_of_supersteps",
    "place",
]

W = TypeVar("W", int, str)

EXTRA = 2
"""Supersteps beyond the effective diameter."""


@dataclass(frozen=True)
class ReservoirSpec:
    """All parameters, besides the graph, that the states depend on."""

    parts: tuple[Reservoir, ...]
    """Independent reservoirs, side by side; each has the states that it has alone."""
    supersteps: int
    exchange_dtype: str
    """Type of exchanged and stored states; on GPUs ``float32``."""
    backend: str = "cpu"
    """``cpu`` or ``gpu``; ``auto`` until the workers' backends are known."""

    @property
    def dim(self) -> int:
        """Units of all reservoirs, d'."""
        return sum(part.units for part in self.parts)


def feature_matrix(graph: Manifest, number: int) -> Floats32:
    """Features of a partition's owned rows, float32, shape (n_owned, F)."""
    column = load_nodes(graph, number, ["features"])["features"]
    return np.ascontiguousarray(matrix_of(column), dtype=np.float32)


def matrix_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The rows of a column of vectors, shape (n, width); one chunk is not copied."""
    values = np.asarray(pc.list_flatten(column))
    return values.reshape(len(column), column.type.list_size)


def join(pieces: Sequence[NDArray[Any]], places: Sequence[Ints]) -> NDArray[Any]:
    """Join rows of partitions in canonical order, from the places of each one's."""
    count = sum(map(len, places))
    joined = np.empty((count, *pieces[0].shape[1:]), pieces[0].dtype)
    # Rows go to their places piece by piece: a sorted copy of all takes twice as much.
    for piece, at in zip(pieces, places, strict=True):
        joined[at] = piece
    return joined


def place(edges: Sequence[int], workers: Sequence[W]) -> list[W]:
    """A worker for every partition: by falling number of edges, to the least loaded."""
    load = dict.fromkeys(sorted(workers), 0)
    chosen = [workers[0]] * len(edges)
    for number in sorted(range(len(edges)), key=lambda p: (-edges[p], p)):
        worker = min(load, key=lambda w: (load[w], w))
        chosen[number] = worker
        load[worker] += edges[number] + 1
    return chosen


def expected_diameter(nodes: int, edges: int) -> int:
    """Effective diameter of a random graph with as many nodes and directed edges.

    Of n nodes with mean degree k, a share of 1 - exp(-k^d / n) lies within d steps.

    Examples
    --------
    >>> [expected_diameter(1_000_000, edges) for edges in (10**6, 10**7, 10**8)]
    [30, 7, 4]
    """
    degree = edges / nodes
    if degree <= 1:
        return MAX_STEPS
    reached = -math.log(1 - SHARE) * nodes
    return min(MAX_STEPS, math.ceil(math.log(reached) / math.log(degree)))


def number_of_supersteps(settings: Settings, diameter: int | None) -> int:
    """The supersteps as set, or for a graph of this effective diameter.

    None: it is not known yet, and the maximum is returned. The stage ``graph`` measures
    it if the settings ask for it.
    """
    wanted = settings.reservoir.supersteps
    if wanted != "auto":
        return wanted
    return MAX_STEPS if diameter is None else min(diameter + EXTRA, MAX_STEPS)
