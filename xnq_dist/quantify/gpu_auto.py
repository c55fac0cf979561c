"""The kernels of `auto` on a GPU: all communities of a batch in one launch, any sizes.

Histograms and curves are the CPU's to the bit; sums over the grid are taken in another
order and exponentials are others in the last bit, so that answers agree to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xnq_dist.backend import GpuBackend, choose
from xnq_dist.quantify.intercept import (
    BINS,
    GRID,
    INVERSE_ODDS,
    NORMAL,
)
from xnq_dist.quantify.intercepts import Grids, Logits

__all__ = ["GpuIntercepts", "intercept_defines", "intercept_source", "read_source"]

BLOCK = 128
MOST_SLOPES = 12
"""Three sharpnesses times four spreads."""


@cache
def intercept_source() -> str:
    """The CUDA source."""
    return read_source("exponentials.cu", "sums.cu", "intercept.cu")


def read_source(*names: str) -> str:
    """CUDA files beside this module, one after the other."""
    here = Path(__file__)
    return "\n".join(here.with_name(name).read_text(encoding="utf-8") for name in names)


def intercept_defines(slopes: int = MOST_SLOPES) -> tuple[str, ...]:
    """What the compiler is told; a kernel's shared memory hangs on the slopes."""
    return (f"-DSLOPES={slopes}",)


@dataclass(frozen=True)
class GpuIntercepts:
    """`intercepts.Intercepts` on a GPU."""

    def evidence(
        self,
        logits: Logits,
        chosen: NDArray[np.int64],
        covariance: NDArray[np.float64],
        grids: Grids,
    ) -> NDArray[np.float64]:
        """As `intercepts.Intercepts.evidence`."""
        shape = (len(chosen), len(grids.hypotheses))
        if not shape[0]:
            return np.empty(shape)
        backend = cast(GpuBackend, choose("gpu"))
        found = backend.empty(shape, np.float64)
        self._kernel(backend, "evidence", grids)(
            (len(chosen),),
            (BLOCK,),
            (
                *_moved(backend, logits),
                backend.to_device(np.asarray(chosen, np.int64)),
                *_numbers(logits.prior, covariance),
                *_grids(backend, grids),
                found,
            ),
        )
        return np.asarray(backend.to_host(found))

    def answers(
        self,
        logits: Logits,
        covariance: NDArray[np.float64],
        grids: Grids,
        weights: NDArray[np.float64],
        tail: float,
    ) -> NDArray[np.float64]:
        """As `intercepts.Intercepts.answers`."""
        shape = (len(logits.offsets) - 1, 4)
        if not shape[0]:
            return np.empty(shape)
        backend = cast(GpuBackend, choose("gpu"))
        found = backend.empty(shape, np.float64)
        self._kernel(backend, "answers", grids)(
            shape[:1],
            (BLOCK,),
            (
                *_moved(backend, logits),
                *_numbers(logits.prior, covariance),
                *_grids(backend, grids),
                backend.to_device(weights),
                np.float64(tail),
                found,
            ),
        )
        return np.asarray(backend.to_host(found))

    def _kernel(self, backend: GpuBackend, name: str, grids: Grids) -> Any:
        # One compilation for as many slopes as there can be; more only if asked for.
        slopes = max(MOST_SLOPES, len(grids.slopes))
        return backend.kernel(intercept_source(), name, intercept_defines(slopes))


def _moved(backend: GpuBackend, logits: Logits) -> tuple[Any, ...]:
    # A kernel may not be given an empty array, whose address is 0.
    some = len(logits.values) > 0
    return (
        backend.to_device(logits.offsets),
        backend.to_device(logits.values if some else np.zeros(1)),
        backend.to_device(logits.codes if some else np.zeros(1, np.int8)),
    )


def _numbers(prior: float, covariance: NDArray[np.float64]) -> tuple[Any, ...]:
    own = covariance[0, 0], covariance[0, 1], covariance[1, 1]
    return np.float64(prior), *(np.float64(value) for value in own)


def _grids(backend: GpuBackend, grids: Grids) -> tuple[Any, ...]:
    tables = np.concatenate([BINS, GRID, INVERSE_ODDS, NORMAL])
    return (
        backend.to_device(tables),
        np.int32(len(grids.slopes)),
        backend.to_device(grids.slopes),
        backend.to_device(grids.sigmoid),
        backend.to_device(grids.log_sigmoid),
        np.int32(len(grids.hypotheses)),
        backend.to_device(grids.hypotheses),
        np.int32(len(grids.pseudo)),
        backend.to_device(grids.pseudo),
    )
