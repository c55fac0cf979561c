"""SLD without EM: the maximum-likelihood prevalence itself, for a batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.config import Settings
from xnq_dist.core.quantifiers import Record
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

__all__ = ["RECORDS", "SldExact", "make", "most_likely"]

RECORDS = (
    Record(
        name="sld_exact",
        title="SLD exact",
        text=(
            "The class proportions that make the members' posteriors most "
            "likely: where SLD's expectation maximisation would end after "
            "endless steps."
        ),
    ),
)

TOLERANCE = 1e-10
"""Certificate: no prevalence has a mean log-likelihood higher by more."""

MOST_STEPS = 200
"""Newton steps; about ten are needed."""

TILE = 2048
"""Members gathered at a time; with two classes a tile fits a core's own cache."""


@dataclass(frozen=True)
class SldExact(Quantifier):
    """The quantifier ``sld_exact``: where SLD's EM would end after endless steps.

    EM creeps where classes overlap: steps below SLD's tolerance can still be far from
    the maximum.
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
    """The quantifier."""
    return SldExact()


def most_likely(usable: Usable, ratios: Floats, prior: Floats) -> Estimates:
    """The mixture of the classes that makes every community most likely.

    `ratios` are class densities of the nodes in `usable.rows` (see
    `likelihood_kernel`); communities that nothing is known of get the prior.
    """
    found = usable.new_estimates(prior)
    likelihood_kernel(
        usable.offsets,
        usable.members,
        ratios,
        TOLERANCE,
        MOST_STEPS,
        TILE,
        found.prevalence,
        found.iterations,
        found.converged,
    )
    return found
