"""Whether a community is held together by edges or is a scattered sample.

Prior-probability shift, which SLD assumes, is what drawing nodes by their class does.
Such a sample has hardly more edges inside than chance gives it; a community of a graph
has many more, and its features and links shift along with its classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["COUNTS", "EdgeCounts", "Mixing", "internal_edges", "scattered"]

TWICE = 2.0
"""Edges inside, in units of what a scattered sample would have, from which on a
community is held together."""
UNEVEN = 3.0
"""Variance over mean of the members' edges inside, given their degrees, from which on
they were not drawn one by one: a region around a hub has few edges more than chance,
and nearly all of them at the hub."""
DEGREES = np.array([1, 2, 3, 4, 6, 9, 14, 25, 50], np.int64)
"""Least degree of each class of degree; members of more than the last are not looked
at, for they have edges to any large set."""
MIDDLES = np.array([1.0, 2.0, 3.0, 4.5, 7.0, 11.0, 18.5, 36.0])
COUNTS = 5 + 2 * len(MIDDLES)
"""Numbers kept of a community's edges."""
LONELY = 0.5
"""Members without an edge inside, as a share of those that chance would leave so, below
which a community was found along edges: a walk or a search leaves none."""
SURE = 3.0
"""Standard deviations by which they must be fewer."""
LARGER = 2.0
"""Mean degree of the members, in units of what nodes drawn by class would have, from
which on they were reached along edges: a walk meets nodes of many edges more often."""
SURELY_LARGER = 3.0
"""Standard errors by which it must be larger."""
UNEVEN_RATES = 0.05
"""Squared relative spread of the members' rates that comes on top: classes that are
linked among themselves make some, and large degrees show it."""


@dataclass(frozen=True, eq=False)
class Mixing:
    """How classes are linked in the whole graph, by posteriors."""

    between: NDArray[np.float64]
    """``[k, l]``: sum over edges of the posteriors of k at the head and l at the tail,
    shape (C, C)."""
    into: NDArray[np.float64]
    """Sum over nodes of in-degree times posterior, shape (C,)."""
    out_of: NDArray[np.float64]
    """The same with out-degrees, shape (C,)."""
    edges: float
    """Number of directed edges."""
    mass: NDArray[np.float64]
    """Sum over nodes of posteriors, shape (C,)."""

    def mean_degree(self, ratios: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean in-degree of nodes drawn by their class; `ratios` as for `expected`.

        NaN where nothing can be drawn. Shape (S,).
        """
        drawn = (ratios * self.mass).sum(axis=1)
        degrees = (ratios * self.into).sum(axis=1)
        nothing = np.full(len(ratios), np.nan)
        return np.asarray(np.divide(degrees, drawn, out=nothing, where=drawn > 0))

    def expected(
        self, ratios: NDArray[np.float64], volumes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Edges inside a sample of nodes drawn by their class.

        Parameters
        ----------
        ratios
            Prevalence of each class over its prior, by community, shape (S, C).
        volumes
            In-degrees and out-degrees of the members added up, shape (S, 2).

        Notes
        -----
        A node is drawn in proportion to ``w = sum_k ratio_k posterior_k``. By chance
        alone volumes a and b have ``a b / edges`` edges between them; classes that are
        linked among themselves have more by the factor
        ``(w' A w) edges / ((in' w) (out' w))``.
        """
        chance = volumes[:, 0] * volumes[:, 1] / max(self.edges, 1.0)
        pairs = ratios[:, :, None] * self.between * ratios[:, None, :]
        linked = pairs.sum(axis=(1, 2))
        # Sums row by row: a product with BLAS may round by the number of rows.
        apart = (ratios * self.into).sum(axis=1) * (ratios * self.out_of).sum(axis=1)
        factor = np.divide(
            linked * self.edges, apart, out=np.ones(len(chance)), where=apart > 0
        )
        return np.asarray(chance * factor)


@dataclass(frozen=True, eq=False)
class EdgeCounts:
    """Edges of communities' members, loops left out."""

    inside: NDArray[np.int64]
    """Shape (S, 21); summed over members with i edges from inside and in-degree d:
    i, d, i^2, i d, d^2; then the members of each of the 8 classes of degree, and those
    of them with i = 0."""
    outgoing: NDArray[np.int64]
    """Out-degrees of the members added up, shape (S,)."""

    @property
    def volumes(self) -> NDArray[np.float64]:
        """In-degrees and out-degrees, shape (S, 2)."""
        return np.stack([self.inside[:, 1], self.outgoing], axis=1).astype(np.float64)

    @property
    def uneven(self) -> NDArray[np.bool_]:
        """Communities whose edges lie at fewer members than chance puts them, (S,).

        Of nodes drawn one by one a member of in-degree d has ``rate d`` edges from
        inside, Poisson distributed but for differences between rates.
        """
        edges, degree, squares, cross, degrees = self.inside.T[:5].astype(np.float64)
        rate = edges / np.maximum(degree, 1.0)
        spread = squares - 2 * rate * cross + rate**2 * degrees
        most = UNEVEN * edges + UNEVEN_RATES * rate**2 * degrees
        return np.asarray((edges > 0) & (spread >= most))

    @property
    def connected(self) -> NDArray[np.bool_]:
        """Communities with fewer members without an edge inside than chance leaves.

        A member of in-degree d has none with probability ``(1 - rate)^d``. Shape (S,).
        """
        edges, degree = self.inside.T[:2].astype(np.float64)
        rate = np.minimum(edges / np.maximum(degree, 1.0), 1.0)
        classes = len(MIDDLES)
        members = self.inside[:, 5 : 5 + classes].astype(np.float64)
        lonely = self.inside[:, 5 + classes :].sum(axis=1)
        # Class by class: a product with BLAS may differ in the last bit.
        expected = np.zeros(len(members))
        for k, middle in enumerate(MIDDLES):
            expected += members[:, k] * (1 - rate) ** middle
        far = lonely < expected - SURE * np.sqrt(expected)
        return np.asarray(far & (lonely < LONELY * expected))

    def larger(
        self, sizes: NDArray[np.int64], expected: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Communities whose members have more edges than nodes drawn by class.

        Only upwards: the few nodes of most edges, which most samples miss, weigh on
        the mean. Their own spread tells its standard error.

        Parameters
        ----------
        sizes
            Members of each community, shape (S,).
        expected
            `Mixing.mean_degree`, shape (S,).
        """
        number = np.maximum(sizes, 1).astype(np.float64)
        mean = self.inside[:, 1] / number
        variance = np.maximum(self.inside[:, 4] / number - mean**2, 0.0)
        with np.errstate(invalid="ignore"):
            beyond = mean - expected > SURELY_LARGER * np.sqrt(variance / number)
            return np.asarray(beyond & (mean >= LARGER * expected))


def scattered(
    counts: EdgeCounts,
    sizes: NDArray[np.int64],
    ratios: NDArray[np.float64],
    mixing: Mixing,
) -> NDArray[np.bool_]:
    """Communities with no more edges than a sample drawn by class, and as far apart.

    Parameters
    ----------
    counts
        Of S communities.
    sizes
        Their members, shape (S,).
    ratios
        Prevalence that SLD finds over the prior, shape (S, C).
    mixing
        Of the whole graph.

    Notes
    -----
    One edge is added to both sides of the comparison, so that few nodes without an
    edge decide nothing but that there is none.
    """
    expected = mixing.expected(ratios, counts.volumes)
    sparse = counts.inside[:, 0] + 1.0 < TWICE * (expected + 1.0)
    larger = counts.larger(sizes, mixing.mean_degree(ratios))
    return np.asarray(sparse & ~counts.uneven & ~counts.connected & ~larger)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def internal_edges(
    indptr: NDArray[np.int64],
    sources: NDArray[np.int64],
    row_of: NDArray[np.int64],
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    stamps: NDArray[np.int64],
    first: int,
    counts: NDArray[np.int64],
) -> None:
    """Count edges inside communities whose head one partition owns.

    Parameters
    ----------
    indptr, sources
        In-neighbours of the owned rows by canonical index, shapes (n + 1,) and (E,).
    row_of
        Owned row of each canonical index, -1 for others, shape (N,).
    offsets, members
        `Communities`.
    stamps
        Working memory, shape (N,), below `first` throughout.
    first
        Number of the first community, at least 0; numbers rise from call to call.
    counts
        `EdgeCounts.inside`, of the owned members; added to, shape (S, 21).
    """
    classes = DEGREES.shape[0] - 1
    for s in range(offsets.shape[0] - 1):
        stamp = first + s
        for at in range(offsets[s], offsets[s + 1]):
            stamps[members[at]] = stamp
        for at in range(offsets[s], offsets[s + 1]):
            node = members[at]
            row = row_of[node]
            if row < 0:
                continue
            inside, degree = 0, 0
            for edge in range(indptr[row], indptr[row + 1]):
                source = sources[edge]
                if source == node:
                    continue
                degree += 1
                if stamps[source] == stamp:
                    inside += 1
            counts[s, 0] += inside
            counts[s, 1] += degree
            counts[s, 2] += inside * inside
            counts[s, 3] += inside * degree
            counts[s, 4] += degree * degree
            if 0 < degree < DEGREES[classes]:
                k = 0
                while degree >= DEGREES[k + 1]:
                    k += 1
                counts[s, 5 + k] += 1
                if inside == 0:
                    counts[s, 5 + classes + k] += 1
