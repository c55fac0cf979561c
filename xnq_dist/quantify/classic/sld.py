"""SLD: the maximum-likelihood prevalence of a set of posteriors, by EM.

One compiled kernel estimates the communities of a batch. A community's posteriors are
gathered into tiles of fixed size, so that sums are always added in the same order.
Tiles beyond the kept ones are gathered again in every step, with the same sums.

References
----------
M. Saerens, P. Latinne, C. Decaestecker, "Adjusting the outputs of a classifier to new
a priori probabilities: a simple procedure", Neural Computation 14(1), 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints
from xnq_dist.core.kernel import copy_row, kernel
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
)

__all__ = ["Sld", "guarded_prior", "make", "tile_bytes"]


PRIOR_GUARD = 1e-4
"""Added to every class when the prior of some class is 0."""
MIN_ITERATIONS = 12
"""Minimum number of M-steps; QuaPy's rule, for equal results."""
TILE = 4096
"""Members of a tile; with two classes a tile fits a core's private cache."""
KEPT = 512 << 20
"""Maximum bytes of tiles that are kept between steps."""


@dataclass(frozen=True)
class Sld(Quantifier):
    """The quantifier ``sld``."""

    tolerance: float = 1e-4
    """Mean absolute change of the prevalence that stops EM."""
    max_iterations: int = 1000
    """Maximum number of EM iterations."""
    pseudo: float = 0.0
    """Pseudo-members at the prior, added to every community."""
    name: str = "sld"

    def estimate(self, batch: Communities, nodes: NodeTable) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        return self.from_prior(batch, nodes, nodes.prior)

    def from_prior(
        self, batch: Communities, nodes: NodeTable, prior: Floats
    ) -> Estimates:
        """`estimate` as if the posteriors were calibrated to another `prior`."""
        size, n_classes = len(batch), nodes.posteriors.shape[1]
        estimates = Estimates(
            np.full((size, n_classes), np.nan),
            np.ones(size, np.bool_),
        )
        free = batch.only(nodes.unlabelled)
        largest = free.sizes.max(initial=0)
        tiles = tile_bytes(largest, n_classes) // (8 * TILE * n_classes)
        sld_kernel(
            free.offsets,
            free.members,
            nodes.posteriors,
            guarded_prior(prior),
            self.tolerance,
            self.max_iterations,
            self.pseudo,
            np.empty((tiles, n_classes, TILE)),
            estimates.prevalence,
            estimates.converged,
        )
        return estimates


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier from its settings."""
    return Sld()


def tile_bytes(members: int, n_classes: int) -> int:
    """Bytes of the tiles that are kept for a community: one tile or more."""
    tile = 8 * TILE * n_classes
    return tile * max(1, min(KEPT // tile, -(-members // TILE)))


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


@kernel
def sld_kernel(
    offsets: Ints,
    members: Ints,
    posteriors: Floats32,
    prior: Floats,
    tolerance: float,
    max_iterations: int,
    pseudo: float,
    tiles: Floats,
    prevalence: Floats,
    converged: Bools,
) -> None:
    """Run EM for every community of a batch; fill in the last two arguments.

    The E-step always starts from the original posteriors and the prior that they are
    calibrated to: p_k(y) is proportional to posterior_k(y) q(y) / prior(y). EM stops
    after at least 12 M-steps, once the mean absolute change of q is below `tolerance`.
    Communities without members keep their values. `tiles` (T, C, tile) is working
    memory for the posteriors.
    """
    kept, n_classes, tile = tiles.shape
    filled = np.empty(kept, np.int64)
    inverse = np.empty(tile)
    weights = np.empty(n_classes)
    total = np.empty(n_classes)
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        if first == last:
            continue
        count = (last - first + tile - 1) // tile
        q = prior.copy()
        done = False
        steps = 0
        while not done and steps < max_iterations:
            np.divide(q, prior, weights)
            total[:] = 0.0
            rows = 0
            for t in range(count):
                # Tiles that are not kept share the last place.
                place = min(t, kept - 1)
                if steps == 0 or (count > kept and place == kept - 1):
                    begin = first + t * tile
                    filled[place] = _gather(
                        members[begin : min(begin + tile, last)],
                        posteriors,
                        tiles[place],
                    )
                rows += filled[place]
                _add_expected(tiles[place], filled[place], weights, inverse, total)
            change = 0.0
            if rows > 0:
                left = np.float64(rows)
                for y in range(n_classes - 1):
                    left -= total[y]
                total[n_classes - 1] = max(left, 0.0)
                for y in range(n_classes):
                    updated = (total[y] + pseudo * prior[y]) / (rows + pseudo)
                    change += abs(updated - q[y])
                    q[y] = updated
            steps += 1
            done = steps >= MIN_ITERATIONS and change / n_classes < tolerance
        copy_row(q / q.sum(), prevalence[s])
        converged[s] = done


@kernel
def _gather(members: Ints, posteriors: Floats32, tile: Floats) -> int:
    """Fill a tile with members' posteriors; return the number of rows.

    Rows of zeros are left out: they have no information. Two classes are kept as odds
    and 1 (see `_add_expected`).
    """
    n_classes = tile.shape[0]
    filled = 0
    for node in members:
        total = 0.0
        for y in range(n_classes):
            value = np.float64(posteriors[node, y])
            tile[y, filled] = value
            total += value
        if total > 0.0:
            if n_classes == 2:
                second = tile[1, filled]
                tile[0, filled] = tile[0, filled] / second if second > 0.0 else np.inf
                tile[1, filled] = 1.0
            filled += 1
    return filled


@kernel
def _add_expected(
    tile: Floats, filled: int, weights: Floats, inverse: Floats, total: Floats
) -> None:
    """Add the expected count in a tile of every class but the last.

    The last class has the remaining rows. Of two classes the second is counted: for a
    node for which it is impossible, infinite odds then add 0.
    """
    last = tile.shape[0] - 1
    weight = weights[0]
    for k in range(filled):
        inverse[k] = weight * tile[0, k]
    for y in range(1, last):
        weight = weights[y]
        for k in range(filled):
            inverse[k] += weight * tile[y, k]
    weight = weights[last]
    for k in range(filled):
        mixture = inverse[k] + weight * tile[last, k]
        inverse[k] = 1.0 / mixture if mixture > 0.0 else 0.0
    if last == 1:
        expected = weight * _inner(tile[1], inverse, filled)
        total[0] += max(filled - expected, 0.0)
        return
    for y in range(last):
        total[y] += weights[y] * _inner(tile[y], inverse, filled)


@kernel
def _inner(x: Floats, y: Floats, size: int) -> float:
    """Inner product in eight running sums, which vectorise without reordering."""
    unrolled = size - size % 8
    a = b = c = d = e = f = g = h = 0.0
    for k in range(0, unrolled, 8):
        a += x[k] * y[k]
        b += x[k + 1] * y[k + 1]
        c += x[k + 2] * y[k + 2]
        d += x[k + 3] * y[k + 3]
        e += x[k + 4] * y[k + 4]
        f += x[k + 5] * y[k + 5]
        g += x[k + 6] * y[k + 6]
        h += x[k + 7] * y[k + 7]
    for k in range(unrolled, size):
        a += x[k] * y[k]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))
