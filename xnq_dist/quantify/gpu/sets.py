"""SLD and mean posteriors of all communities of a batch in one launch on a GPU.

Same definitions as on the CPU (`sld`, `counts`). Sums are in float64 in another order,
so results agree up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.backend import GpuBackend, choose
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.counts import Counts
from xnq_dist.quantify.classic.members import check_posteriors
from xnq_dist.quantify.classic.sld import Sld, guarded_prior
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["GpuCounts", "GpuSld", "make", "sets_source"]

BLOCK, WARPS = 256, 8
LARGE = 1024
"""Members above which a community gets a block of threads instead of a warp."""

_TABLES: WeakKeyDictionary[NodeTable, tuple[Any, Any]] = WeakKeyDictionary()
"""Posteriors and the mask of unlabelled nodes on the device, while the table exists."""


@cache
def sets_source() -> str:
    """Return the CUDA source."""
    return Path(__file__).with_name("sets.cu").read_text(encoding="utf-8")


@dataclass(frozen=True)
class _Batch:
    """A batch on the device, and the assignment of its communities to blocks."""

    arrays: tuple[Any, ...]
    """Offsets, members, unlabelled, posteriors."""
    order: Any
    """Communities, large ones first."""
    count: int
    """Number of communities."""
    large: int
    """Number of large communities."""

    @property
    def grid(self) -> tuple[int]:
        """Blocks of the launch."""
        return (self.large + -(-(self.count - self.large) // WARPS),)

    @property
    def spread(self) -> tuple[Any, ...]:
        """Arguments that assign communities to blocks and warps."""
        return self.order, np.int32(self.count), np.int32(self.large)


def _moved(backend: GpuBackend, batch: Communities, nodes: NodeTable) -> _Batch:
    if nodes not in _TABLES:
        posteriors = np.asarray(nodes.posteriors, np.float32)
        _TABLES[nodes] = (
            backend.to_device(nodes.unlabelled),
            backend.to_device(posteriors),
        )
    return _spread(backend, batch, _TABLES[nodes])


def _spread(backend: GpuBackend, batch: Communities, table: tuple[Any, ...]) -> _Batch:
    """Copy a batch to the device; `table` (mask, posteriors) is there already."""
    sizes = np.diff(batch.offsets)
    order = np.argsort(sizes <= LARGE, kind="stable").astype(np.int32)
    # The address of an empty array is 0, which kernels do not accept.
    members = batch.members if len(batch.members) else np.zeros(1, np.int64)
    return _Batch(
        (backend.to_device(batch.offsets), backend.to_device(members), *table),
        backend.to_device(order),
        len(batch),
        int(np.count_nonzero(sizes > LARGE)),
    )


def _classes(nodes: NodeTable) -> tuple[str]:
    return (f"-DCLASSES={nodes.posteriors.shape[1]}",)


def _em(
    backend: GpuBackend,
    moved: _Batch,
    prior: Floats,
    rule: tuple[float, int],
    defines: tuple[str, ...],
) -> Estimates:
    """Run SLD on a batch; `rule` is the tolerance and the maximum of iterations."""
    prevalence = backend.empty((moved.count, len(prior)), np.float64)
    iterations = backend.empty((moved.count,), np.int32)
    converged = backend.empty((moved.count,), np.uint8)
    backend.kernel(sets_source(), "sld", defines)(
        moved.grid,
        (BLOCK,),
        (
            *(*moved.arrays, backend.to_device(guarded_prior(prior))),
            *(np.float64(rule[0]), np.int32(rule[1])),
            *(*moved.spread, prevalence, iterations, converged),
        ),
    )
    return Estimates(
        backend.to_host(prevalence),
        backend.to_host(iterations),
        backend.to_host(converged).astype(np.bool_),
    )


@dataclass(frozen=True)
class GpuSld(Sld):
    """The quantifier ``sld`` on a GPU."""

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        check_posteriors(self.name, batch, nodes)
        shape = (len(batch), nodes.posteriors.shape[1])
        if not shape[0]:
            return Estimates(np.empty(shape), np.empty(0, np.int32), np.empty(0, bool))
        backend = cast(GpuBackend, choose("gpu"))
        moved = _moved(backend, batch, nodes)
        rule = self.tolerance, self.max_iterations
        return _em(backend, moved, reference.prior, rule, _classes(nodes))


@dataclass(frozen=True)
class GpuCounts(Counts):
    """The quantifiers ``cc``, ``pcc``, ``acc`` and ``pacc``, counted on a GPU."""

    def means(self, batch: Communities, nodes: NodeTable) -> Floats:
        """Mean vote or posterior of every community, shape (S, C)."""
        shape = (len(batch), nodes.posteriors.shape[1])
        if not shape[0]:
            return np.empty(shape)
        backend = cast(GpuBackend, choose("gpu"))
        moved = _moved(backend, batch, nodes)
        means = backend.empty(shape, np.float64)
        backend.kernel(sets_source(), "means", _classes(nodes))(
            moved.grid,
            (BLOCK,),
            (*moved.arrays, np.int32(self.hard), *moved.spread, means),
        )
        return np.asarray(backend.to_host(means))


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier from its settings."""
    return GpuSld() if name == "sld" else GpuCounts(name)
