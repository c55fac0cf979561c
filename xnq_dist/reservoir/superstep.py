"""One superstep of one partition on CPUs, independent of the halo exchange.

States are stored in float32 or float16; sums and products are always in float32.

The input drive ``W_in x + b`` of a node is stored, or computed where it is used. With
few features, computing a block of rows again in every superstep takes little longer
than reading it, and a node takes its features instead of d' values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xnq_dist.core.arrays import Floats32, Ints, Ints32
from xnq_dist.core.products import multiply, pack
from xnq_dist.core.threads import for_each_block
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import kernels
from xnq_dist.reservoir.weights import Recurrent, Weights, side_by_side

__all__ = ["Drive", "FeatureDrive", "OnHost", "drive_width", "first_states", "gather"]

FEW, SHARE = 32, 1 / 4
"""Maximum number of features from which the drive is computed, and as a part of d'. A
superstep then takes .94 to 1.14 times as long (see docs/results.md)."""

_NO_WEIGHTS = np.empty(0, dtype=np.float32)
Edges = tuple[Ints, Ints32, Floats32, Any, Any]
"""Row pointers, indices and weights (empty without), values of owned and halo rows."""
RowsStep = Callable[[int, int, Floats32, Floats32], None]
"""``step(first, last, drive, out)``: the states of a block of rows."""


@dataclass(frozen=True)
class FeatureDrive:
    """The input drive of nodes, computed from their features a block at a time.

    The bits of a row do not depend on other rows.
    """

    features: Floats32
    """Features and a one, shape (n, F + 1), C-contiguous."""
    panels: NDArray[np.float32]
    """``[W_in, b]`` of all reservoirs, packed. A product adds in the order of columns,
    so the sum ends with b."""
    dim: int
    """d'."""

    @classmethod
    def of(cls, features: Floats32, drawn: Sequence[Weights]) -> FeatureDrive:
        """The drive of nodes with these features, shape (n, F)."""
        ones = np.ones((len(features), 1), np.float32)
        inputs = [np.column_stack([weights.inputs, weights.bias]) for weights in drawn]
        matrix = np.concatenate(inputs)
        return cls(np.hstack([features, ones]), pack(matrix.T), len(matrix))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d')."""
        return len(self.features), self.dim

    def __getitem__(self, rows: slice) -> Floats32:
        """These rows."""
        features = self.features[rows]
        out = np.empty((len(features), self.dim), np.float32)
        multiply(features, self.panels, out)
        return out

    def stored(self, threads: int = 1) -> Floats32:
        """All rows, shape (n, d')."""
        out = np.empty(self.shape, np.float32)

        def work(first: int, last: int) -> None:
            multiply(self.features[first:last], self.panels, out[first:last])

        for_each_block(len(out), threads, work)
        return out


Drive: TypeAlias = Floats32 | FeatureDrive
"""Stored, shape (n, d'), or computed."""


def drive_width(features: int, dim: int) -> int:
    """Number of values that a CPU keeps of a node's drive: d' if it is stored."""
    return features + 1 if features <= min(FEW, SHARE * dim) else dim


class OnHost:
    """Supersteps of a worker's partitions on CPUs.

    Parameters
    ----------
    recurrent
        Recurrent matrix of each of the independent reservoirs.
    threads
        Threads of a superstep; each processes blocks of rows.
    """

    def __init__(self, recurrent: Sequence[Recurrent], threads: int = 1) -> None:
        self._recurrent, self._threads = side_by_side(recurrent), threads

    def superstep(
        self,
        partition: Partition,
        owned: Floats32,
        halo: Floats32,
        drive: Drive,
        out: Floats32,
    ) -> None:
        """Write the states after one more update to `out`.

        One block of rows is gathered and updated at a time, which stays in cache.

        Parameters
        ----------
        owned, halo
            States before of the owned rows and of the halo rows, shapes (n_owned, d')
            and (n_halo, d').
        drive
            ``W_in x + b`` of the owned rows, shape (n_owned, d').
        out
            Shape (n_owned, d'), C-contiguous, of the type of `owned`; not `owned`.
            Every row is rounded to the type, so that states do not depend on the
            partitioning.
        """
        half = out.dtype == np.float16
        edges = _edges(partition, owned, halo)
        if self._recurrent[0].columns is None:
            step = _dense(self._recurrent, edges)
        else:
            step = _sparse(self._recurrent[0], edges)

        def work(first: int, last: int) -> None:
            after = out[first:last]
            wide = np.empty(after.shape, np.float32) if half else after
            step(first, last, drive[first:last], wide)
            if half:
                kernels.narrow(wide, after.view(np.uint16))

        for_each_block(len(out), self._threads, work)


def first_states(
    drive: Drive, dtype: DTypeLike = np.float32, threads: int = 1
) -> Floats32:
    """States after superstep 1, from states of zero: tanh(drive), (n_owned, d')."""
    states = np.zeros(drive.shape, dtype=np.float32)

    def work(first: int, last: int) -> None:
        kernels.tanh_add(states[first:last], drive[first:last])

    for_each_block(len(states), threads, work)
    return states.astype(dtype, copy=False)


def gather(
    partition: Partition,
    owned: Floats32,
    halo: Floats32,
    out: Floats32,
    threads: int = 1,
) -> None:
    """Write the weighted sums of in-neighbours' values to `out`, shape (n_owned, w).

    `owned` and `halo`, shapes (n_owned, w) and (n_halo, w), and `out` are C-contiguous.
    """
    edges = _edges(partition, owned, halo)

    def work(first: int, last: int) -> None:
        kernels.gather_add(*edges, first, last, out[first:last])

    for_each_block(owned.shape[0], threads, work)


def _edges(partition: Partition, owned: Floats32, halo: Floats32) -> Edges:
    """In-neighbours and their values as arguments of the kernels: float16 as bits."""
    weights = _NO_WEIGHTS if partition.weights is None else partition.weights
    if owned.dtype == np.float16:
        owned, halo = owned.view(np.uint16), halo.view(np.uint16)
    return partition.indptr, partition.indices, weights, owned, halo


def _sparse(recurrent: Recurrent, edges: Edges) -> RowsStep:
    """Gather and update in one kernel."""
    columns, values, dim = recurrent.columns, recurrent.values, recurrent.dim

    def step(first: int, last: int, drive: Floats32, out: Floats32) -> None:
        tile = np.empty((dim, kernels.LANES), np.float32)
        total = np.empty((kernels.WIDTH, kernels.LANES), np.float32)
        scratch: tuple[Any, ...] = columns, values, drive, tile, total, out
        kernels.sparse_superstep(*edges, first, last, *scratch)

    return step


def _dense(recurrent: Sequence[Recurrent], edges: Edges) -> RowsStep:
    """Gather to a block that stays in cache for the products."""
    panels = [pack(part.values.T) for part in recurrent]
    ends = np.cumsum([part.dim for part in recurrent]).tolist()
    columns = [slice(*both) for both in pairwise([0, *ends])]

    def step(first: int, last: int, drive: Floats32, out: Floats32) -> None:
        gathered = np.empty(out.shape, np.float32)
        kernels.gather_add(*edges, first, last, gathered)
        for at, packed in zip(columns, panels, strict=True):
            multiply(gathered[:, at], packed, out[:, at])
        kernels.tanh_add(out, drive)

    return step
