"""SLD: the maximum-likelihood prevalence of a set of posteriors, by EM.

One compiled kernel estimates the communities of a batch. A community's posteriors are
gathered into a tile of fixed size; a community larger than the tile is gathered again
in every iteration. Communities of millions are estimated in parallel (`giants`).

References
----------
M. Saerens, P. Latinne, C. Decaestecker, "Adjusting the outputs of a classifier to new
a priori probabilities: a simple procedure", Neural Computation 14(1), 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.giants import LARGE, MIN_ITERATIONS, giant_sld
from xnq_dist.quantify.classic.members import check_posteriors
from xnq_dist.quantify.classic.tiles import TILE, add_expected, gather
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["Sld", "guarded_prior", "make", "sld_kernel"]


PRIOR_GUARD = 1e-4
"""Added to every class when the prior of some class is 0."""


@dataclass(frozen=True)
class Sld(Quantifier):
    """The quantifier ``sld``."""

    tolerance: float = 1e-4
    """Mean absolute change of the prevalence that stops EM."""
    max_iterations: int = 1000
    """Maximum number of EM iterations."""
    name: str = "sld"

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        check_posteriors(self.name, batch, nodes)
        shape = (len(batch), nodes.posteriors.shape[1])
        estimates = Estimates(
            np.empty(shape), np.empty(shape[0], np.int32), np.empty(shape[0], np.bool_)
        )
        prior = guarded_prior(reference.prior)
        rule = self.tolerance, self.max_iterations
        table = nodes.unlabelled, nodes.posteriors, prior
        large = np.flatnonzero(np.diff(batch.offsets) > LARGE).tolist()
        begin = 0
        for s in [*large, len(batch)]:
            sld_kernel(
                batch.offsets[begin : s + 1],
                batch.members,
                *table,
                *rule,
                TILE,
                estimates.prevalence[begin:s],
                estimates.iterations[begin:s],
                estimates.converged[begin:s],
            )
            begin = s + 1
        for s in large:
            members = batch.members[batch.offsets[s] : batch.offsets[s + 1]]
            share, steps, converged = giant_sld(members, *table, *rule)
            estimates.prevalence[s], estimates.iterations[s] = share, steps
            estimates.converged[s] = converged
        return estimates


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier from its settings."""
    return Sld()


def guarded_prior(prior: Floats) -> Floats:
    """Return the prior with every class above zero, shape (C,).

    Examples
    --------
    >>> guarded_prior(np.array([0.0, 1.0])).round(6).tolist()
    [0.0001, 0.9999]
    """
    prior = np.asarray(prior, dtype=np.float64)
    if np.all(prior > 0):
        return prior
    prior = prior + PRIOR_GUARD
    return np.asarray(prior / prior.sum())


@njit(cache=True, nogil=True, error_model="numpy")
def sld_kernel(
    offsets: Ints,
    members: Ints,
    unlabelled: Bools,
    posteriors: Floats32,
    prior: Floats,
    tolerance: float,
    max_iterations: int,
    tile: int,
    prevalence: Floats,
    iterations: Ints32,
    converged: Bools,
) -> None:
    """Run EM for every community of a batch; fill in the last three arguments.

    The E-step always starts from the original posteriors and the prior that they are
    calibrated to: p_k(y) is proportional to posterior_k(y) q(y) / prior(y). EM stops
    after at least 12 M-steps, once the mean absolute change of q is below `tolerance`.
    A community without an unlabelled member gets NaN, 0 and True.
    """
    n_classes = prior.shape[0]
    block = np.empty((n_classes, tile))
    inverse = np.empty(tile)
    weights = np.empty(n_classes)
    q = np.empty(n_classes)
    total = np.empty(n_classes)
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        # A community that fits one tile is gathered once.
        filled, seen, position = gather(
            members, first, last, unlabelled, posteriors, block
        )
        fits_tile = position == last
        if fits_tile and seen == 0:
            prevalence[s, :] = np.nan
            iterations[s] = 0
            converged[s] = True
            continue
        q[:] = prior
        done = False
        steps = 0
        while not done and steps < max_iterations:
            for y in range(n_classes):
                weights[y] = q[y] / prior[y]
                total[y] = 0.0
            rows = 0
            position = first
            while position < last:
                if fits_tile:
                    position = last
                else:
                    filled, _, position = gather(
                        members, position, last, unlabelled, posteriors, block
                    )
                rows += filled
                add_expected(block, filled, weights, inverse, total)
            change = 0.0
            if rows > 0:
                left = np.float64(rows)
                for y in range(n_classes - 1):
                    left -= total[y]
                total[n_classes - 1] = max(left, 0.0)
                for y in range(n_classes):
                    updated = total[y] / rows
                    change += abs(updated - q[y])
                    q[y] = updated
            steps += 1
            done = steps >= MIN_ITERATIONS and change / n_classes < tolerance
        mass = 0.0
        for y in range(n_classes):
            mass += q[y]
        for y in range(n_classes):
            prevalence[s, y] = q[y] / mass
        iterations[s] = steps
        converged[s] = done
