"""What the intervals of `auto` rest on, learnt once a run on the graph's own groups.

The labelled nodes' residuals, each from a posterior that has not seen its label, show
by how much posteriors are off together within a group: with the residual sums
``r_g = sum (y - f)`` and ``w_g = sum f (1 - f)``, ``r_g ~ N(0, w_g + t^2 w_g^2)`` where
t is the spread of the groups' own logit shifts. Groups are those of the graph, never
the communities asked for, so that a community's interval depends on nothing but
itself. There are several partitions of the nodes: by links, coarse and fine, and by
degree; a community that follows none of them has errors along all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.quantify.default.node_sums import NodeSums, class_codes
from xnq_dist.quantify.default.scenarios import Tilt
from xnq_dist.quantify.interface import NodeTable, Reference

__all__ = [
    "PRIOR_VARIANCE",
    "Held",
    "Learnt",
    "left_open",
    "mean_variance",
    "normalised",
    "shift_variance",
    "spread_likelihoods",
]


SPREADS = np.arange(61) * 0.05
"""Spreads t of the groups' logit shifts."""
PRIOR_SPREAD = 0.8
"""Of the half-normal distribution of t before any label is seen."""
FEWEST_LABELS = 3
"""Labels of a group from which on its level is compared with those of others."""
PRIOR_VARIANCE = 4.0
"""Of the logit shift that all nodes share, before any label is seen."""
ARRAYS = ("variances", "shared", "labelled", "within", "without", "information")


@dataclass(frozen=True, eq=False)
class Held:
    """Labelled nodes as models see them that saw no label of their whole group."""

    rows: Ints
    """Canonical index, shape (h,)."""
    labels: Ints32
    """Class codes, shape (h,)."""
    posteriors: NDArray[np.floating]
    """Shape (h, C)."""


@dataclass(frozen=True, eq=False)
class Learnt:
    """Variances of the logit shifts that nodes share, a class against the rest."""

    groups: Ints32
    """Group of every node in each partition, the coarse one first, shape (L, N); no
    two partitions have a code in common."""
    variances: Floats
    """Of each group's own shift, shape (G, K)."""
    shared: Floats
    """Of the shift that all nodes share, shape (K,)."""
    labelled: Floats
    """Each group's share of the weight of the labelled nodes, which the calibration
    was fitted to: so much of a group's own shift is in it, shape (G, K)."""
    least: float
    """As many labels as there are cannot vouch for a posterior nearer to 0 or 1."""
    within: Floats
    """Variance between groups that have labels, shape (K,)."""
    without: Floats
    """What a group without labels adds, shape (K,)."""
    information: Floats
    """Sum of f (1 - f) over the labelled nodes of each group, shape (G, K)."""
    tilt: Tilt | None = None
    """What the choice of the labelled nodes means; None: nothing."""

    @property
    def calibrated(self) -> Floats:
        """Variance of the groups' mean shift in the calibration, shape (K,)."""
        return np.asarray((self.variances * self.labelled**2).sum(axis=0))

    def split(self) -> tuple[Learnt, Learnt]:
        """The coarse partition and what all nodes share; the other partitions."""
        first = int(self.groups[0].max(initial=0)) + 1
        names = ("variances", "labelled", "information")
        parts = []
        for rows, some in (
            (slice(0, 1), slice(0, first)),
            (slice(1, None), slice(first, None)),
        ):
            values = {name: getattr(self, name)[some] for name in names}
            groups = self.groups[rows] - np.int32(some.start)
            parts.append(replace(self, groups=groups, **values))
        coarse, finer = parts
        return coarse, replace(finer, shared=np.zeros_like(self.shared))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All but the groups, for an npz file."""
        found = {name: getattr(self, name) for name in ARRAYS}
        found["partitions"] = np.array(len(self.groups))
        tilt = {} if self.tilt is None else self.tilt.to_arrays()
        return {**found, "least": np.array(self.least), **tilt}

    @classmethod
    def from_arrays(
        cls, groups: NDArray[np.integer], arrays: dict[str, NDArray[Any]]
    ) -> Learnt:
        """From the groups as `of` takes them, and what `arrays` gives."""
        return cls(
            groups=_numbered(groups)[0],
            least=float(arrays["least"]),
            tilt=Tilt.from_arrays(arrays),
            **{name: arrays[name] for name in ARRAYS},
        )

    def between(self, sums: NodeSums, shared: Floats | None = None) -> Floats:
        """Variance that shifts add to sums over communities, shape (S, K).

        `shared` is that of the shift that all nodes share; None: as learnt.
        """
        level = self.shared if shared is None else shared
        found = sums.spread - 2 * sums.weight * sums.calibrated
        found += sums.weight**2 * self.calibrated
        # A sum of squares, but for rounding.
        return np.asarray(np.maximum(found, 0.0) + sums.weight**2 * level)

    @classmethod
    def nothing(cls, nodes: NodeTable) -> Learnt:
        """No shift at all, with all nodes in one group."""
        width = len(class_codes(nodes.posteriors.shape[1]))
        none, least = np.zeros(width), 1.0 / (np.count_nonzero(nodes.labels >= 0) + 2.0)
        groups = np.zeros(len(nodes.labels), np.int32)
        each = none[None]
        return cls(groups, each, none, each, least, none, none, each)

    @classmethod
    def of(
        cls,
        nodes: NodeTable,
        reference: Reference,
        groups: NDArray[np.integer],
        held: Held | None = None,
        shift: float = 0.0,
        tilt: Tilt | None = None,
    ) -> Learnt:
        """Learn from the labelled nodes.

        Groups are the graph's own, shape (N,), or of each of L partitions, the coarse
        one first, (L, N). Where nothing is `held`, the reference's nodes take its
        place, their posteriors all the class proportions: what a group without labels
        adds is then bounded from above, by all that differs between groups.
        """
        numbered, ends = _numbered(groups)
        group_of, n_groups = numbered[0], ends[0]
        labels, rows = reference.labels, reference.rows
        if labels is None or reference.posteriors is None:
            labels, rows = np.empty(0, np.int32), np.empty(0, np.int64)
            posteriors = np.empty((0, nodes.posteriors.shape[1]))
        else:
            posteriors = normalised(reference.posteriors, reference.prior)
        every = np.zeros((len(numbered), len(labels)), np.int32)
        if rows is not None:
            every = numbered[:, rows]
        own = every[0]
        each = np.ones(len(labels))
        if reference.weights is not None:
            each = reference.weights * (len(labels) / reference.weights.sum())
        effective = len(labels) ** 2 / max(float((each**2).sum()), 1e-300)
        least = 1.0 / (effective + 2.0)
        if held is None:
            prior = reference.prior / reference.prior.sum()
            flat = np.broadcast_to(prior, (len(labels), len(prior)))
            some = np.zeros(len(labels), np.int64) if rows is None else rows
            held = Held(some, labels, flat)
        codes = class_codes(nodes.posteriors.shape[1])
        within, without = np.empty(len(codes)), np.empty(len(codes))
        shared, information = np.empty(len(codes)), np.empty((ends[-1], len(codes)))
        labelled = np.empty_like(information)
        for k, code in enumerate(codes):
            is_class = labels == code
            within[k] = _between(
                posteriors[:, code], is_class, own, n_groups, least, each, 1
            )
            least_known = _between(
                np.asarray(held.posteriors[:, code], np.float64),
                held.labels == code,
                group_of[held.rows],
                n_groups,
                least,
                np.ones(len(held.rows)),
                FEWEST_LABELS,
            )
            without[k] = max(least_known, within[k])
            weights = _weights(posteriors[:, code], least) * each
            total = weights.sum() + 1.0 / PRIOR_VARIANCE
            # Of the labels' mean shift: more where some labels count for many nodes.
            noise = float((weights * each).sum()) + 1.0 / PRIOR_VARIANCE
            shared[k] = noise / total**2 + shift
            all_weights = np.tile(weights, len(every))
            information[:, k] = np.bincount(every.ravel(), all_weights, ends[-1])
            labelled[:, k] = information[:, k] / total
        variances = left_open(without, information)
        variances[:n_groups] += within
        found = within, without, information, tilt
        return cls(numbered, variances, shared, labelled, least, *found)


def _numbered(groups: NDArray[np.integer]) -> tuple[Ints32, list[int]]:
    """Groups of partitions, each numbered after those before, and where each ends."""
    rows = np.atleast_2d(groups)
    ends = np.cumsum(rows.max(axis=1, initial=0) + 1)
    found = rows.astype(np.int32)
    found[1:] += ends[:-1, None].astype(np.int32)
    return found, ends.tolist()


def left_open(variance: Floats, information: Floats) -> Floats:
    """Variance of a group's shift that the information of its own labels leaves.

    `variance` is that of a group without labels; the information is the sum of f (1 -
    f) over the group's labelled nodes, that of the log-likelihood.


    Examples
    --------
    >>> left_open(np.array(0.5), np.array([0.0, 2.0])).tolist()
    [0.5, 0.25]
    """
    return variance / (1.0 + variance * information)


def shift_variance(
    residuals: Floats, weights: Floats, noise: Floats | None = None
) -> float:
    """Posterior mean of t^2 where ``r_g ~ N(0, w_g + t^2 w_g^2)``, t half-normal.

    Residuals and weights are sums of ``y - f`` and of ``f (1 - f)`` of each group;
    groups whose weight is 0 are left out. `noise` takes the place of the first w_g
    where labels have inclusion weights.


    Examples
    --------
    >>> round(shift_variance(np.zeros(0), np.zeros(0)), 3)  # no labels: the prior mean
    0.623
    """
    some = weights > 0
    given = None if noise is None else noise[some]
    total = spread_likelihoods(residuals[some], weights[some], given).sum(axis=0)
    return float(mean_variance(total))


def spread_likelihoods(
    residuals: Floats, weights: Floats, noise: Floats | None = None
) -> Floats:
    """Log-likelihood of each of `SPREADS` by each group alone, shape (G, T)."""
    r, w = residuals[:, None], weights[:, None]
    variance = (w if noise is None else noise[:, None]) + SPREADS**2 * w * w
    return np.asarray(-0.5 * (np.log(variance) + r * r / variance))


def mean_variance(likelihood: Floats) -> Floats:
    """Posterior mean of t^2 from log-likelihoods of `SPREADS`, shape (..., T)."""
    density = likelihood - 0.5 * (SPREADS / PRIOR_SPREAD) ** 2
    share = np.exp(density - density.max(axis=-1, keepdims=True))
    return np.asarray((share * SPREADS**2).sum(axis=-1) / share.sum(axis=-1))


def _between(
    posteriors: Floats,
    is_class: Bools,
    groups: Ints32,
    n_groups: int,
    least: float,
    each: Floats,
    fewest: int,
) -> float:
    """Variance of the groups' logit shifts, from those of some labels."""
    number = np.bincount(groups, minlength=n_groups)
    weights = _weights(posteriors, least) * each
    sums = [
        np.bincount(groups, values, n_groups).astype(np.float64)
        for values in (each * (is_class - posteriors), weights, weights * each)
    ]
    some = number >= fewest
    residuals, total, noise = (values[some] for values in sums)
    return shift_variance(residuals, total, noise)


def _weights(posteriors: Floats, least: float) -> Floats:
    inside = np.clip(posteriors, least, 1 - least)
    return np.asarray(inside * (1 - inside))


def normalised(posteriors: NDArray[np.floating], prior: Floats) -> Floats:
    """Rows that sum to 1; the prior in place of a row of zeros."""
    rows = np.asarray(posteriors, np.float64)
    total = rows.sum(axis=1, keepdims=True)
    mean = np.broadcast_to(prior / prior.sum(), rows.shape)
    return np.where(total > 0, rows / np.where(total > 0, total, 1.0), mean)
