"""Allocation of new labels to strata of the graph, to narrow the widest intervals.

The nodes of a stratum are in the same target communities. With x_h of the N_h
unlabelled nodes of stratum h labelled at random, the predicted variance of `auto` is

    V_S = sum_h r_h Q_h + sum_g v_g d_g^2 + w^2 v,      r_h = 1 - x_h / N_h,

where every sum over unlabelled nodes shrinks by r_h, the variance v_g of a group by the
labels that it gets (`left_open`), and v by all labels. Groups are those of the coarse
partition; the contributions of finer partitions and of degree shrink with ``w^2``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Ints, offsets_of
from xnq_dist.quantify.default.estimator_fit import (
    PRIOR_VARIANCE,
    Learnt,
    left_open,
    normalised,
)
from xnq_dist.quantify.default.node_sums import class_codes, node_sums
from xnq_dist.quantify.interface import Communities, Labelled, NodeTable, Reference

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


@dataclass(frozen=True, eq=False)
class Strata:
    """H strata of unlabelled nodes, and S target communities that consist of them."""

    stratum: Ints
    """Stratum of every node, -1 where it is labelled, shape (N,)."""
    inside: Bools
    """Whether a stratum is in a community, shape (S, H)."""
    sizes: Floats
    """Number of nodes of each stratum, N_h, shape (H,)."""
    weights: Floats
    """Mean of f (1 - f) of each stratum, shape (H, K)."""
    group: Ints
    """Group of the coarse partition, -1: without target members, shape (H,)."""
    groups: Ints
    """Groups with unlabelled target members, shape (G',); `group` is a place here."""
    learnt: Learnt
    other: Floats
    """Current variance from the partitions other than the coarse one, shape (S, K)."""
    known: Floats
    """Sum of f (1 - f) over the labelled nodes, shape (K,)."""
    totals: Floats
    """Denominators of the communities' prevalence, shape (S,)."""
    budget: int
    """Number of new labels."""

    @classmethod
    def of(
        cls,
        nodes: NodeTable,
        reference: Reference,
        learnt: Learnt,
        communities: list[Ints],
        budget: int,
        labelled: Labelled = "count",
    ) -> Strata:
        """Stratify the unlabelled nodes by communities, group and contribution.

        `communities` are the members of the target communities; `budget` is at most
        the number of unlabelled nodes. The contribution is that to the variance.
        """
        codes = class_codes(nodes.posteriors.shape[1])
        free = nodes.unlabelled
        learnt, finer = learnt.split()
        coarse = learnt.groups[0]
        cell = _cells(communities, len(free))
        touched = np.unique(coarse[free & (cell > 0)]).astype(np.int64)
        place = np.full(len(learnt.variances), -1, np.int64)
        place[touched] = np.arange(len(touched))
        key = cell * (len(touched) + 1) + place[coarse] + 1
        f = normalised(nodes.posteriors[free], reference.prior)
        keys, of_free = np.unique(
            key[free] * BANDS + _bands((f * (1 - f)).max(axis=1)), return_inverse=True
        )
        stratum = np.full(len(free), -1, np.int64)
        stratum[free] = of_free
        sizes = np.bincount(of_free, minlength=len(keys)).astype(np.float64)
        inner = np.clip(f[:, codes], learnt.least, 1 - learnt.least)
        weights = [np.bincount(of_free, w, len(keys)) for w in (inner * (1 - inner)).T]
        share = learnt.labelled.sum(axis=0)
        inside = np.zeros((len(communities), len(keys)), np.bool_)
        totals = np.empty(len(communities))
        for s, members in enumerate(communities):
            unlabelled = members[free[members]]
            inside[s, stratum[unlabelled]] = True
            totals[s] = len(unlabelled if labelled == "exclude" else members)
        return cls(
            stratum,
            inside,
            sizes,
            weights=np.stack(weights, axis=1) / sizes[:, None],
            group=keys // BANDS % (len(touched) + 1) - 1,
            groups=touched,
            learnt=learnt,
            other=_between(nodes, reference, finer, communities),
            known=share / (1 - share) / PRIOR_VARIANCE,
            totals=totals,
            budget=budget,
        )

    def errors(self, labels: Floats) -> Floats:
        """Predict standard errors from the new labels per stratum, shape (S, K)."""
        variances = [variance for variance, _ in self._variances(labels)]
        return np.asarray(np.sqrt(variances).T / self.totals[:, None])

    def slope(self, labels: Floats) -> Floats:
        """Derivative of the norm's logarithm by the labels of each stratum, (H,)."""
        pairs = list(self._variances(labels))
        relative = np.stack([variance for variance, _ in pairs]) / self.totals**2
        top = float(relative.max())
        if not top:
            return np.zeros(len(self.sizes))
        share = (relative / top) ** (POWER / 2)
        share /= 2 * share.sum()
        return np.asarray(
            sum(
                (part / np.where(variance > 0, variance, 1.0)) @ change
                for part, (variance, change) in zip(share, pairs, strict=True)
            )
        )

    def _variances(self, labels: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Yield each class's variances of sums and their derivatives, (S,), (S, H)."""
        learnt, groups, inside = self.learnt, self.groups, self.inside.astype(float)
        for k, w in enumerate(self.weights.T):
            mass = inside * ((self.sizes - labels) * w)
            total = mass.sum(axis=1)
            every, a = learnt.variances[:, k], learnt.labelled[groups, k]
            # By group of the targets; the last column is of strata in no group.
            sums = np.zeros((len(inside), len(groups) + 1))
            np.add.at(sums.T, self.group, mass.T)
            off = sums[:, :-1] - total[:, None] * a
            # New labels reduce only the variance that the group's labels leave.
            new = np.bincount(self.group + 1, labels * w, len(groups) + 1)[1:]
            opened = left_open(learnt.without[k], learnt.information[groups, k] + new)
            v = learnt.within[k] + opened
            before = self.known[k] + 1 / PRIOR_VARIANCE
            information = before + float((labels * w).sum())
            level = float(learnt.shared[k]) - 1 / before + 1 / information
            level += float((learnt.labelled[:, k] ** 2 * every).sum())
            level -= float((a**2 * every[groups]).sum())
            now = inside @ (self.sizes * w)
            levels = level + self.other[:, k] / np.where(now > 0, now, 1.0) ** 2
            variance = total + (off**2 * v).sum(axis=1) + total**2 * levels

            def of_strata(values: Floats) -> Floats:
                return np.pad(values, ((0, 0), (0, 1)))[:, self.group]

            common = total * levels - (off * v * a).sum(axis=1)
            change = inside * (1 + 2 * (of_strata(off * v) + common[:, None]))
            change += of_strata(off * opened) ** 2
            change += (total / information)[:, None] ** 2
            yield np.maximum(variance, 0.0), -w * change


def _cells(sets: list[Ints], n_nodes: int) -> Ints:
    """A code for each combination of sets that has nodes, 0 for none, shape (N,)."""
    cell = np.zeros(n_nodes, np.int64)
    codes = 1
    for members in sets:
        old, within = np.unique(cell[members], return_inverse=True)
        cell[members] = codes + within
        codes += len(old)
    return cell


def _between(
    nodes: NodeTable, reference: Reference, learnt: Learnt, communities: list[Ints]
) -> Floats:
    """Variance of the sums over communities that shifts cause, shape (S, K)."""
    if not len(learnt.groups):
        return np.zeros((len(communities), len(learnt.shared)))
    sizes = [len(members) for members in communities]
    offsets = offsets_of(sizes)
    members = np.concatenate([np.empty(0, np.int64), *communities])
    groups = learnt.groups, learnt.variances, learnt.labelled, learnt.least
    batch = Communities(offsets, members)
    return learnt.between(node_sums(batch, nodes, reference.prior, *groups))


def _bands(values: Floats) -> Ints:
    """Bands of values within a factor of 4, the largest values first."""
    top = float(values.max(initial=0.0))
    if not top:
        return np.zeros(len(values), np.int64)
    below = -np.log(np.maximum(values / top, 1e-300)) / np.log(4.0)
    return np.asarray(np.minimum(below.astype(np.int64), BANDS - 1), np.int64)


def proportional(strata: Strata) -> Floats:
    """Expected labels of each stratum in a simple random sample."""
    return strata.sizes * (strata.budget / max(float(strata.sizes.sum()), 1.0))


def allocate(strata: Strata) -> Floats:
    """Allocate labels to the strata, not rounded, shape (H,).

    A part of the labels (`SPREAD`) is allocated in proportion to sizes; the others go,
    a few at a time, to the stratum where a label reduces the norm most.
    """
    labels = SPREAD * proportional(strata)
    left = strata.budget - float(labels.sum())
    chunk = left / min(max(strata.budget, 1), STEPS)
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
    number = min(budget, len(order))
    # Rounding errors of the sum must not drop the last node.
    points = (rng.random() + np.arange(number)) * (ends[-1] / number if number else 1)
    places = np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)
    return np.sort(order[places])
