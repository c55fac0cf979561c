"""HDy, DyS and DMy on a GPU: all communities of a batch in one launch, any sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from xnq_dist.backend import GpuBackend, choose
from xnq_dist.quantify.gpu_simplex import BLOCK, MOST_CLASSES, read_source, solve
from xnq_dist.quantify.histograms import (
    HDY_BINS,
    HDY_GRID,
    MOST_STEPS,
    TERNARY_TOLERANCE,
    TOLERANCE,
    Histograms,
    roots_of_mixtures,
)
from xnq_dist.quantify.interface import Estimates
from xnq_dist.quantify.members import Usable

__all__ = ["GpuHistograms", "matching_source"]

MOST_CELLS = 1024
"""Of a community's histograms; more: the CPU."""


@cache
def matching_source() -> str:
    """The CUDA source."""
    return read_source("exponentials.cu", "sums.cu", "matching.cu")


@dataclass(frozen=True)
class GpuHistograms(Histograms):
    """The quantifiers ``hdy``, ``dys`` and ``dmy`` on a GPU."""

    def match(
        self,
        usable: Usable,
        places: NDArray[np.int32],
        shares: NDArray[np.float64],
        found: Estimates,
    ) -> None:
        """As `Histograms.match`."""
        count, cells = len(usable.offsets) - 1, shares.shape[1]
        # A kernel may not be given an empty array, whose address is 0.
        large = cells > MOST_CELLS or len(shares) > MOST_CLASSES
        if large or not count or not len(usable.members):
            super().match(usable, places, shares, found)
            return
        backend = cast(GpuBackend, choose("gpu"))
        if self.name == "dmy":
            channels = places.shape[1]
            given = (
                backend.to_device(places),
                *(np.int32(channels), np.int32(cells)),
                backend.to_device(shares / channels),
            )
            solve(backend, "topsoe", usable, given, (TOLERANCE, MOST_STEPS), found)
            return
        # Rows of communities without members stay as they are.
        prevalence = backend.to_device(found.prevalence)
        moved = tuple(
            backend.to_device(array)
            for array in (usable.offsets, usable.members, places)
        )
        if self.name == "hdy":
            roots = roots_of_mixtures(shares, HDY_GRID)
            backend.kernel(matching_source(), "hellinger")(
                (count,),
                (BLOCK,),
                (
                    *moved,
                    *(np.int32(len(HDY_BINS)), np.int32(cells)),
                    backend.to_device(np.array(HDY_BINS, np.int32)),
                    backend.to_device(roots),
                    *(np.int32(HDY_GRID), prevalence),
                ),
            )
        else:
            backend.kernel(matching_source(), "ternary")(
                (count,),
                (BLOCK,),
                (
                    *moved,
                    np.int32(cells),
                    backend.to_device(shares),
                    *(np.float64(TERNARY_TOLERANCE), prevalence),
                ),
            )
        found.prevalence[:] = backend.to_host(prevalence)
