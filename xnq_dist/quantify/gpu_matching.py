"""HDy and DyS on a GPU: all communities of a batch in one launch, any sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from xnq_dist.backend import GpuBackend, choose
from xnq_dist.quantify.gpu_auto import read_source
from xnq_dist.quantify.histograms import (
    HDY_BINS,
    HDY_GRID,
    TERNARY_TOLERANCE,
    Histograms,
    roots_of_mixtures,
)
from xnq_dist.quantify.interface import Estimates
from xnq_dist.quantify.members import Usable

__all__ = ["GpuHistograms", "matching_source"]

BLOCK = 128
MOST_CELLS = 1024


@cache
def matching_source() -> str:
    """The CUDA source."""
    return read_source("exponentials.cu") + read_source("matching.cu")


@dataclass(frozen=True)
class GpuHistograms(Histograms):
    """The quantifiers ``hdy`` and ``dys`` on a GPU; ``dmy`` on the CPU."""

    def match(
        self,
        usable: Usable,
        places: NDArray[np.int32],
        shares: NDArray[np.float64],
        found: Estimates,
    ) -> None:
        """As `Histograms.match`."""
        count, cells = len(usable.offsets) - 1, shares.shape[1]
        if self.name == "dmy" or not count or not len(places):
            super().match(usable, places, shares, found)
            return
        backend = cast(GpuBackend, choose("gpu"))
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
