"""What the kernels of `auto` are asked, whoever computes it: the CPU here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from xnq_dist.quantify.intercept import answer_kernel, evidence_kernel

__all__ = ["Grids", "HostIntercepts", "Intercepts", "Logits"]


class Grids(NamedTuple):
    """Hypotheses and what is tabulated of them, as the kernels take it."""

    slopes: NDArray[np.float64]
    """Distinct slopes, shape (K,)."""
    sigmoid: NDArray[np.float64]
    """`intercept.sigmoid_tables` of the slopes, shape (K, bins, grid)."""
    log_sigmoid: NDArray[np.float64]
    """Its logarithm."""
    hypotheses: NDArray[np.float64]
    """Shape (H, 5), as for `intercept.evidence_kernel`."""
    pseudo: NDArray[np.float64]
    """Pseudo-nodes of the shifts."""


@dataclass(frozen=True, eq=False)
class Logits:
    """A batch of communities as seen by one class."""

    offsets: NDArray[np.int64]
    """Of the communities, shape (S + 1,)."""
    values: NDArray[np.float64]
    """Logit of the class against the rest of each membership, shape (M,)."""
    codes: NDArray[np.int8]
    """1 with the class's label, 0 with another, -1 with none, -2 passed over."""
    prior: float
    """Of the class, inside (0, 1)."""


class Intercepts(Protocol):
    """Who integrates over the communities' intercepts."""

    def evidence(
        self,
        logits: Logits,
        chosen: NDArray[np.int64],
        covariance: NDArray[np.float64],
        grids: Grids,
    ) -> NDArray[np.float64]:
        """Log-evidence of every hypothesis in the chosen communities, shape (n, H)."""

    def answers(
        self,
        logits: Logits,
        covariance: NDArray[np.float64],
        grids: Grids,
        weights: NDArray[np.float64],
        tail: float,
    ) -> NDArray[np.float64]:
        """Median, interval and log-evidence of all communities, shape (S, 4)."""


@dataclass(frozen=True)
class HostIntercepts:
    """The CPU's kernels, one community after the other."""

    def evidence(
        self,
        logits: Logits,
        chosen: NDArray[np.int64],
        covariance: NDArray[np.float64],
        grids: Grids,
    ) -> NDArray[np.float64]:
        """`intercept.evidence_kernel`."""
        found = np.empty((len(chosen), len(grids.hypotheses)))
        evidence_kernel(
            logits.offsets,
            logits.values,
            logits.codes,
            chosen,
            logits.prior,
            covariance,
            *grids,
            found,
        )
        return found

    def answers(
        self,
        logits: Logits,
        covariance: NDArray[np.float64],
        grids: Grids,
        weights: NDArray[np.float64],
        tail: float,
    ) -> NDArray[np.float64]:
        """`intercept.answer_kernel`."""
        found = np.empty((len(logits.offsets) - 1, 4))
        answer_kernel(
            logits.offsets,
            logits.values,
            logits.codes,
            logits.prior,
            covariance,
            *grids,
            weights,
            tail,
            found,
        )
        return found
