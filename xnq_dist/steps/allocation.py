"""Allocation of new labels to strata of the graph, to narrow the widest intervals.

The nodes of a stratum are in the same target communities. With x_h of the N_h
unlabelled nodes of stratum h labelled at random, the predicted variance of `auto` is

    V_S = sum_h r_h Q_h + sum_g v_g d_g^2 + w^2 v,      r_h = 1 - x_h / N_h,

where every sum over unlabelled nodes shrinks by r_h, the variance v_g of a group by the
labels that it gets (`left_open`), and v by all labels. Groups are those of the coarse
partition; the contributions of finer partitions and of degree shrink with ``w^2``.
"""

from __future__ import annotations

import numpy as np

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.estimator_fit import (
    PRIOR_VARIANCE,
    Learnt,
    left_open,
)
from xnq_dist.quantify.interface import (
    Communities,
    Labelled,
    NodeTable,
    combine,
)
from xnq_dist.selection.scored_rows import normalised

__all__ = ["Strata", "allocate", "choose", "proportional"]


POWER = 8.0
"""Order of the norm of the half-widths that is minimised: close to their maximum."""
SPREAD = 0.2
"""Part of the labels that is allocated in proportion to strata sizes, so that every
node may be chosen and no weight exceeds 5 times that of a simple random sample."""
STEPS = 500
BANDS = 12
"""Bands of nodes by their contribution to the variance; within one, except the last, it
varies by a factor of 4."""


class Strata:
    """H strata of unlabelled nodes, and S target communities that consist of them.

    Unlabelled nodes are stratified by communities, group and contribution to the
    variance.

    Parameters
    ----------
    communities
        Members of the target communities.
    budget
        Number of new labels, at most that of unlabelled nodes.
    parts
        As for `Auto`.
    """

    def __init__(
        self,
        nodes: NodeTable,
        learnt: Learnt,
        communities: list[Ints],
        budget: int,
        labelled: Labelled = "count",
        parts: Floats | None = None,
    ) -> None:
        self.learnt, self.budget = learnt, budget
        codes, free = nodes.class_codes, nodes.unlabelled
        f = normalised(nodes.posteriors[free], nodes.prior)
        cell = _cells(communities, len(free))[free]
        coarse = learnt.groups[0, free]
        groups = np.unique(coarse[cell > 0])
        self.coarse = np.arange(learnt.groups[0].max() + 1)
        """All groups of the coarse partition."""
        self.groups = groups
        """Groups of the coarse partition with unlabelled target members, shape (G',)"""
        place = 1 + np.searchsorted(groups, coarse)
        place[~np.isin(coarse, groups)] = 0
        key = cell * (len(groups) + 1) + place
        key = key * BANDS + _bands((f * (1 - f)).max(axis=1))
        _, first, of_free = np.unique(key, return_index=True, return_inverse=True)
        self.place = place[first]
        """Place of each stratum's group in `groups`, from 1; 0: other groups, (H,)."""
        self.sizes = np.bincount(of_free).astype(np.float64)
        """Number of nodes of each stratum, N_h, shape (H,)."""
        self.stratum = np.full(len(free), -1, np.int64)
        """Stratum of every node, -1 where it is labelled, shape (N,)."""
        self.stratum[free] = of_free
        self.inside = np.zeros((len(communities), len(self.sizes)))
        """1 where a stratum is in a community, else 0, shape (S, H)."""
        for s, members in enumerate(communities):
            self.inside[s, self.stratum[members[free[members]]]] = 1.0
        inner = np.clip(f[:, codes], learnt.least, 1 - learnt.least)
        weights = [np.bincount(of_free, w) for w in (inner * (1 - inner)).T]
        self.weights = np.stack(weights, axis=1) / self.sizes[:, None]
        """Mean of f (1 - f) of each stratum, shape (H, K)."""
        batch, auto = Communities.of(communities), Auto(learnt=learnt, parts=parts)
        found = auto.in_scenario(None, batch, nodes)
        now = combine(batch, nodes, found, labelled).sd[:, codes]
        before, _ = self._variances(np.zeros(len(self.sizes)))
        self.scales = now.T**2 / np.where(before > 0, before, 1.0)
        """Factors that make variances without new labels those of `auto`, (K, S).
        What pooling adds is taken to shrink by labels as the rest does."""

    def errors(self, labels: Floats) -> Floats:
        """Predict standard errors from the new labels per stratum, shape (S, K)."""
        variances, _ = self._variances(labels)
        return np.sqrt(self.scales * variances).T

    def slope(self, labels: Floats) -> Floats:
        """Derivative of the norm's logarithm by the labels of each stratum, (H,)."""
        variances, changes = self._variances(labels)
        changes /= np.where(variances > 0, variances, 1.0)[..., None]
        variances *= self.scales
        top = variances.max() or 1.0
        share = (variances / top) ** (POWER / 2)
        total = 2 * share.sum() or 1.0
        return np.asarray(np.einsum("ks,ksh->h", share / total, changes))

    def _variances(self, labels: Floats) -> tuple[Floats, Floats]:
        """Variances of the sums over communities, and their changes by labels.

        The shapes are (K, S) and (K, S, H).
        """
        sums = [self._sums(k, labels) for k in range(self.weights.shape[1])]
        variances, changes = (np.stack(each) for each in zip(*sums, strict=True))
        return np.maximum(variances, 0.0), changes

    def _sums(self, k: int, labels: Floats) -> tuple[Floats, Floats]:
        """`_variances` of one class, shapes (S,) and (S, H)."""
        learnt, groups, w = self.learnt, self.groups, self.weights[:, k]
        mass = self.inside * ((self.sizes - labels) * w)
        total = mass.sum(axis=1)
        # The first column is of the strata in other groups.
        sums = np.zeros((len(mass), len(groups) + 1))
        np.add.at(sums.T, self.place, mass.T)
        a, known = (
            np.append(0.0, values[groups, k])
            for values in (learnt.labelled, learnt.information)
        )
        off = sums - total[:, None] * a
        # New labels reduce only the variance that the group's labels leave.
        new = np.bincount(self.place, labels * w, len(groups) + 1)
        opened = left_open(learnt.without[k], known + new)
        v = learnt.within[k] + opened
        before = learnt.information[self.coarse, k].sum() + 1 / PRIOR_VARIANCE
        after = before + (labels * w).sum()
        far = np.delete(self.coarse, groups)
        others = (learnt.labelled[far, k] ** 2 * learnt.variances[far, k]).sum()
        level = learnt.shared[k] - 1 / before + 1 / after + others
        variance = total + (off**2 * v).sum(axis=1) + total**2 * level
        common = total * level - (off * v * a).sum(axis=1)
        change = self.inside * (1 + 2 * ((off * v)[:, self.place] + common[:, None]))
        change += (off * opened)[:, self.place] ** 2
        change += (total / after)[:, None] ** 2
        return variance, -w * change


def _cells(sets: list[Ints], n_nodes: int) -> Ints:
    """A code for each combination of sets that has nodes, 0 for none, shape (N,)."""
    cell = np.zeros(n_nodes, np.int64)
    codes = 1
    for members in sets:
        old, within = np.unique(cell[members], return_inverse=True)
        cell[members] = codes + within
        codes += len(old)
    return cell


def _bands(values: Floats) -> Ints:
    """Bands of values within a factor of 4, the largest values first."""
    ends = values.max(initial=1e-300) / 4.0 ** np.arange(1, BANDS)
    return np.digitize(values, ends, right=True)


def proportional(strata: Strata) -> Floats:
    """Expected labels of each stratum in a simple random sample."""
    return strata.sizes * (strata.budget / float(strata.sizes.sum()))


def allocate(strata: Strata) -> Floats:
    """Allocate labels to the strata, not rounded, shape (H,).

    A part of the labels (`SPREAD`) is allocated in proportion to sizes; the others go,
    a few at a time, to the stratum where a label reduces the norm most.
    """
    labels = SPREAD * proportional(strata)
    left = strata.budget - float(labels.sum())
    chunk = left / min(strata.budget, STEPS)
    while left > 1e-9:
        capacity = strata.sizes - labels
        slope = np.where(capacity > 1e-12, strata.slope(labels), np.inf)
        at = int(np.argmin(slope))
        part = min(chunk, left, float(capacity[at]))
        labels[at] += part
        left -= part
    return labels


def choose(stratum: Ints, chances: Floats, budget: int, seed: int) -> Ints:
    """Draw the nodes to label, each with the probability of its stratum, ascending.

    Systematic sampling through the strata: exactly `budget` nodes, and from each
    stratum its expected number, rounded up or down. Nodes of the stratum -1 are not
    drawn; the probabilities `chances` of all nodes add up to the budget.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    free = np.flatnonzero(stratum >= 0)
    order = free[np.lexsort((rng.random(len(free)), stratum[free]))]
    ends = np.cumsum(chances[stratum[order]])
    points = (rng.random() + np.arange(budget)) * (ends[-1] / budget)
    # Rounding errors of the sum must not drop the last node.
    places = np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)
    return np.sort(order[places])
