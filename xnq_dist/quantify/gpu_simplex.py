"""`sld_exact`, `kdey_ml` and `dmy` on a GPU: all communities of a batch in one launch.

Each ends with the certificate that it ends with on the CPU, so that answers agree as
far as that goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xnq_dist.backend import GpuBackend, choose
from xnq_dist.quantify.density import KdeyMl
from xnq_dist.quantify.exact import MOST_STEPS, TOLERANCE, SldExact, most_likely
from xnq_dist.quantify.interface import Estimates
from xnq_dist.quantify.members import Usable

__all__ = [
    "BLOCK",
    "MOST_CLASSES",
    "GpuKdeyMl",
    "GpuSldExact",
    "read_source",
    "simplex_source",
    "solve",
]

BLOCK = 128
MOST_CLASSES = 8
"""A thread's share of the curvature stays in registers; more classes: the CPU."""


def read_source(*names: str) -> str:
    """CUDA files next to this module, one after the other."""
    here = Path(__file__)
    return "\n".join(here.with_name(name).read_text(encoding="utf-8") for name in names)


@cache
def simplex_source() -> str:
    """The CUDA source."""
    return read_source("exponentials.cu", "sums.cu", "simplex.cu")


def solve(
    backend: GpuBackend,
    name: str,
    usable: Usable,
    given: tuple[Any, ...],
    rule: tuple[float, int],
    found: Estimates,
) -> None:
    """One launch of a kernel of ``simplex.cu``; rows without members stay.

    Parameters
    ----------
    name
        ``likelihood`` or ``topsoe``.
    given
        Its own arguments, after the communities.
    rule
        The certificate and the most steps.
    found
        Filled in.
    """
    prevalence = backend.to_device(found.prevalence)
    iterations = backend.to_device(found.iterations)
    converged = backend.to_device(found.converged.astype(np.uint8))
    count, classes = found.prevalence.shape
    backend.kernel(simplex_source(), name, (f"-DCLASSES={classes}",))(
        (count,),
        (BLOCK,),
        (
            backend.to_device(usable.offsets),
            backend.to_device(usable.members),
            *given,
            *(np.float64(rule[0]), np.int32(rule[1])),
            *(prevalence, iterations, converged),
        ),
    )
    found.prevalence[:] = backend.to_host(prevalence)
    found.iterations[:] = backend.to_host(iterations)
    found.converged[:] = backend.to_host(converged).astype(np.bool_)


class _LikeliestOnGpu:
    """`likeliest` of a quantifier, on a GPU."""

    def likeliest(
        self,
        usable: Usable,
        ratios: NDArray[np.float64],
        prior: NDArray[np.float64],
    ) -> Estimates:
        """As `exact.most_likely`."""
        # A kernel may not be given an empty array, whose address is 0.
        if not len(usable.members) or len(prior) > MOST_CLASSES:
            return most_likely(usable, ratios, prior)
        backend = cast(GpuBackend, choose("gpu"))
        found = usable.new_estimates(prior)
        rows = backend.to_device(np.asarray(ratios, np.float64))
        solve(backend, "likelihood", usable, (rows,), (TOLERANCE, MOST_STEPS), found)
        return found


@dataclass(frozen=True)
class GpuSldExact(_LikeliestOnGpu, SldExact):
    """The quantifier ``sld_exact`` on a GPU."""


@dataclass(frozen=True)
class GpuKdeyMl(_LikeliestOnGpu, KdeyMl):
    """The quantifier ``kdey_ml``; its densities on the CPU, its mixtures on a GPU."""
