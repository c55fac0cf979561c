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

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
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
        cell: Ints32,
        budget: int,
        labelled: Labelled = "count",
    ) -> Strata:
        """Stratify the unlabelled nodes by communities, group and contribution.

        `communities` are the members of the target communities; `cell` has a code for
        each combination of them, -1 for nodes in none, shape (N,); `budget` is at most
        the number of unlabelled nodes. The contribution is that to the variance.
        """
        codes = class_codes(nodes.posteriors.shape[1])
        free = nodes.unlabelled
        learnt, finer = learnt.split()
        coarse = learnt.groups[0]
        touched = np.unique(coarse[free & (cell >= 0)]).astype(np.int64)
        place = np.full(len(learnt.variances), -1, np.int64)
        place[touched] = np.arange(len(touched))
        group = place[coarse]
        key = (cell.astype(np.int64) + 1) * (len(touched) + 1) + group + 1
        f = normalised(nodes.posteriors[free], reference.prior)
        strata_keys, of_free = np.unique(
            key[free] * BANDS + _bands((f * (1 - f)).max(axis=1)),
            return_inverse=True,
        )
        stratum = np.full(len(free), -1, np.int64)
        stratum[free] = of_free
        number = len(strata_keys)
        sizes = np.bincount(of_free, minlength=number).astype(np.float64)
        weights = np.empty((number, len(codes)))
        known = np.zeros(len(codes))
        for k, code in enumerate(codes):
            w = np.clip(f[:, code], learnt.least, 1 - learnt.least)
            w = w * (1 - w)
            weights[:, k] = np.bincount(of_free, w, number) / sizes
            share = float(learnt.labelled[:, k].sum())
            known[k] = share / (1 - share) / PRIOR_VARIANCE
        inside = np.zeros((len(communities), number), np.bool_)
        totals = np.empty(len(communities))
        for s, members in enumerate(communities):
            inside[s, stratum[members[free[members]]]] = True
            if labelled == "exclude":
                members = members[free[members]]
            totals[s] = len(members)
        return cls(
            stratum,
            inside,
            sizes,
            weights=weights,
            group=strata_keys // BANDS % (len(touched) + 1) - 1,
            groups=touched,
            learnt=learnt,
            other=_between(nodes, reference, finer, communities),
            known=known,
            totals=totals,
            budget=budget,
        )

    def errors(self, labels: Floats) -> Floats:
        """Predict standard errors from the new labels per stratum, shape (S, K)."""
        errors = np.empty((len(self.inside), self.weights.shape[1]))
        for k, (variance, _) in enumerate(self._variances(labels)):
            errors[:, k] = np.sqrt(variance) / self.totals
        return errors

    def norm(self, labels: Floats) -> float:
        """Objective of `allocate`: a norm of the standard errors."""
        errors = self.errors(labels)
        top = float(errors.max())
        if not top:
            return 0.0
        return top * float(((errors / top) ** POWER).sum() ** (1 / POWER))

    def slope(self, labels: Floats) -> Floats:
        """Derivative of the norm's logarithm by the labels of each stratum, (H,)."""
        pairs = list(self._variances(labels))
        relative = np.stack([pair[0] for pair in pairs]) / self.totals**2
        top = float(relative.max())
        if not top:
            return np.zeros(len(self.sizes))
        share = (relative / top) ** (POWER / 2)
        share /= share.sum()
        return np.asarray(
            sum(
                (
                    part[:, None]
                    / np.where(pair[0] > 0, pair[0], 1.0)[:, None]
                    * pair[1]
                ).sum(axis=0)
                for part, pair in zip(share, pairs, strict=True)
            )
            / 2
        )

    def _variances(self, labels: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Yield each class's variances of sums and their derivatives, (S,), (S, H)."""
        learnt, inside = self.learnt, self.inside.astype(np.float64)
        left = self.sizes - labels
        some = self.group >= 0
        at = np.where(some, self.group, 0)
        for k in range(self.weights.shape[1]):
            w, every = self.weights[:, k], learnt.variances[:, k]
            level = float(learnt.shared[k]) - 1 / (self.known[k] + 1 / PRIOR_VARIANCE)
            information = self.known[k] + 1 / PRIOR_VARIANCE
            information += float((labels * w).sum())
            a_all = learnt.labelled[:, k]
            a = a_all[self.groups]
            elsewhere = float((a_all**2 * every).sum())
            elsewhere -= float((a**2 * every[self.groups]).sum())
            # New labels reduce only the variance that the group's labels leave.
            new = np.bincount(self.group[some], (labels * w)[some], len(self.groups))
            after = learnt.information[self.groups, k] + new
            opened = left_open(learnt.without[k], after)
            v = learnt.within[k] + opened
            level += 1 / information + elsewhere
            off = np.zeros((len(inside), len(self.groups)))
            np.add.at(off.T, self.group[some], (inside * (left * w))[:, some].T)
            total = (inside * (left * w)).sum(axis=1)
            off -= total[:, None] * a
            variance = total + ((off**2 * v).sum(axis=1) + total**2 * level)
            now = (inside * (self.sizes * w)).sum(axis=1)
            other = self.other[:, k] / np.where(now > 0, now, 1.0) ** 2
            variance += total**2 * other
            common = (off * (v * a)).sum(axis=1)[:, None]
            own = np.where(some, (off * v)[:, at], 0.0)
            change = -inside * w
            change -= 2 * inside * w * (own - common + total[:, None] * level)
            change -= 2 * inside * w * (total * other)[:, None]
            falling = np.where(some, (off * opened)[:, at] ** 2, 0.0)
            change -= falling * w
            change -= (total / information)[:, None] ** 2 * w
            yield np.maximum(variance, 0.0), change


def _between(
    nodes: NodeTable, reference: Reference, learnt: Learnt, communities: list[Ints]
) -> Floats:
    """Variance of the sums over communities that shifts cause, shape (S, K)."""
    if not len(learnt.groups):
        return np.zeros((len(communities), len(learnt.shared)))
    sizes = [len(members) for members in communities]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
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
