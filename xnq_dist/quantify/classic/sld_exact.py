"""SLD without EM: the exact maximum-likelihood prevalence, for a batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import Usable, check_posteriors, usable_members
from xnq_dist.quantify.classic.simplex import likelihood_kernel
from xnq_dist.quantify.classic.sld import guarded_prior
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["SldExact", "make", "most_likely"]


TOLERANCE = 1e-10
"""Maximum distance of the mean log-likelihood from its optimum, as certified."""

MAX_STEPS = 200
"""Maximum number of Newton steps; about ten are needed."""

TILE = 2048
"""Members gathered at a time; with two classes a tile fits a core's private cache."""


@dataclass(frozen=True)
class SldExact(Quantifier):
    """The quantifier ``sld_exact``: the limit of SLD's EM, computed exactly.

    EM converges slowly where classes overlap: it may stop at a step below SLD's
    tolerance that is still far from the maximum.
    """

    name: str = "sld_exact"

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        check_posteriors(self.name, batch, nodes)
        usable = usable_members(batch, nodes)
        prior = guarded_prior(reference.prior)
        ratios = nodes.posteriors[usable.rows].astype(np.float64) / prior
        return most_likely(usable, ratios, reference.prior)


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier."""
    return SldExact()


def most_likely(usable: Usable, ratios: Floats, prior: Floats) -> Estimates:
    """Estimate every community as the mixture of classes with the highest likelihood.

    `ratios` are class densities of the nodes in `usable.rows` (see
    `likelihood_kernel`); communities without usable members get the prior.
    """
    estimates = usable.new_estimates(prior)
    likelihood_kernel(
        usable.offsets,
        usable.members,
        ratios,
        TOLERANCE,
        MAX_STEPS,
        TILE,
        estimates.prevalence,
        estimates.iterations,
        estimates.converged,
    )
    return estimates
