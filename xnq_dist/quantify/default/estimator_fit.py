"""Variances behind the intervals of `auto`, learnt once per run on groups of the graph.

The labelled nodes' residuals, each from a posterior computed without the node's label,
measure the bias that posteriors share within a group: with the residual sums
``r_g = sum (y - f)`` and ``w_g = sum f (1 - f)``, ``r_g ~ N(0, w_g + t^2 w_g^2)`` where
t is the standard deviation of the groups' logit shifts. Groups are those of the graph,
never the user's communities, so a community's interval does not depend on the other
communities. There are several partitions of the nodes: by links, coarse and fine, and
by degree; every community has errors along all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.quantify.default.scenarios import Tilt
from xnq_dist.quantify.interface import NodeTable
from xnq_dist.selection.scored_rows import normalised

__all__ = [
    "PRIOR_VARIANCE",
    "Held",
    "Learnt",
    "left_open",
    "shift_variance",
]


SPREADS = np.arange(61) * 0.05
"""Grid of standard deviations t of the groups' logit shifts."""
PRIOR_SPREAD = 0.8
"""Scale of the half-normal prior of t."""
MIN_LABELS = 3
"""Minimum labels of a group for a comparison of its level with other groups."""
PRIOR_VARIANCE = 4.0
"""Prior variance of the logit shift that all nodes share."""
OF_TILT = "tilt_"
"""Prefix of the names of a tilt's arrays in a file."""


@dataclass(frozen=True, eq=False)
class Held:
    """Posteriors of labelled nodes by models fitted without their group's labels."""

    rows: Ints
    """Canonical index, shape (h,)."""
    posteriors: NDArray[np.floating]
    """Shape (h, C)."""


@dataclass(frozen=True, eq=False)
class Learnt:
    """Variances of the logit shifts that nodes share, each class against the rest."""

    groups: Ints32
    """Group of every node in each partition, the coarse one first, shape (L, N); no
    two partitions have a code in common."""
    variances: Floats
    """Variance of each group's shift, shape (G, K)."""
    shared: Floats
    """Variance of the shift that all nodes share, shape (K,)."""
    labelled: Floats
    """Each group's share of the weight of the labelled nodes, and so of its shift in
    the calibration, which was fitted to these nodes, shape (G, K)."""
    least: float
    """Minimum distance of posteriors from 0 and 1, by the number of labels."""
    within: Floats
    """Variance between groups that have labels, shape (K,)."""
    without: Floats
    """Additional variance of a group without labels, shape (K,)."""
    information: Floats
    """Sum of f (1 - f) over the labelled nodes of each group, shape (G, K)."""
    tilt: Tilt | None = None
    """Scenario of labels chosen by class; None: posteriors are unchanged."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all fields but the groups, for a file."""
        values = {**vars(self)}
        del values["groups"], values["tilt"]
        if self.tilt is not None:
            values |= {OF_TILT + name: own for name, own in vars(self.tilt).items()}
        return {name: np.asarray(value) for name, value in values.items()}

    @classmethod
    def from_arrays(
        cls, groups: NDArray[np.integer], arrays: dict[str, NDArray[Any]]
    ) -> Learnt:
        """Construct from the groups, as for `of`, and the result of `arrays`."""
        values: dict[str, Any] = {"groups": _numbered(groups)[0]}
        tilt: dict[str, Any] = {}
        for name, array in arrays.items():
            into = tilt if name.startswith(OF_TILT) else values
            # An index of no axis: numbers as NumPy's scalars, which Numba knows.
            into[name.removeprefix(OF_TILT)] = array[()]
        return cls(**values, tilt=Tilt(**tilt) if tilt else None)

    @classmethod
    def of(
        cls,
        nodes: NodeTable,
        groups: NDArray[np.integer],
        held: Held | None = None,
        tilt: Tilt | None = None,
    ) -> Learnt:
        """Learn from the labelled nodes.

        `groups` are of one partition, shape (N,), or of L partitions, the coarse one
        first, (L, N). Without `held`, the reference's nodes are used with the class
        proportions as their posteriors: this is an upper bound of the variance of
        groups without labels, because it includes all differences between groups.
        """
        numbered, ends = _numbered(groups)
        reference, prior = nodes.reference, nodes.prior
        labels, rows = reference.labels, reference.rows
        posteriors = normalised(reference.posteriors, prior)
        every = numbered[:, rows]
        each = np.ones(len(labels))
        if reference.weights is not None:
            each = reference.weights * (len(labels) / reference.weights.sum())
        effective = len(labels) ** 2 / max((each**2).sum(), 1e-300)
        least = 1.0 / (effective + 2.0)
        if held is None:
            flat = np.broadcast_to(prior / prior.sum(), posteriors.shape)
            held = Held(rows, flat)
        held_groups = numbered[0, held.rows]
        compared = np.bincount(held_groups)[held_groups] >= MIN_LABELS
        of_classes: list[dict[str, Any]] = []
        for code in nodes.class_codes:
            f = posteriors[:, code]
            within = _between(f, labels == code, every[0], least, each)
            unlabelled_group = _between(
                held.posteriors[compared, code].astype(np.float64),
                nodes.labels[held.rows[compared]] == code,
                held_groups[compared],
                least,
                np.ones(np.count_nonzero(compared)),
            )
            without = max(unlabelled_group, within)
            plain = _weights(f, least)
            weights = plain * each
            total = weights.sum() + 1.0 / PRIOR_VARIANCE
            # Variance of the labels' mean shift, larger with unequal label weights.
            noise = (weights * each).sum() + 1.0 / PRIOR_VARIANCE
            # A label says no more about its group for standing for more nodes.
            repeated = np.tile(np.stack([plain, weights]), len(every))
            information, labelled = (
                np.bincount(every.ravel(), sums, ends[-1]).astype(np.float64)
                for sums in repeated
            )
            variances = left_open(without, information)
            variances[: ends[0]] += within
            of_classes.append(
                {
                    "variances": variances,
                    "shared": noise / total**2,
                    "labelled": labelled / total,
                    "within": within,
                    "without": without,
                    "information": information,
                }
            )
        columns: dict[str, Any] = {
            name: np.stack([one[name] for one in of_classes], axis=-1)
            for name in of_classes[0]
        }
        return cls(numbered, least=least, tilt=tilt, **columns)


def _numbered(groups: NDArray[np.integer]) -> tuple[Ints32, list[int]]:
    """Number the groups of all partitions consecutively; return codes and ends."""
    rows = np.atleast_2d(groups)
    ends = np.cumsum(rows.max(axis=1, initial=0) + 1)
    numbered = rows.astype(np.int32)
    numbered[1:] += ends[:-1, None].astype(np.int32)
    return numbered, ends.tolist()


def left_open(variance: Floats | float, information: Floats) -> Floats:
    """Variance of a group's shift that remains given the group's labels.

    `variance` is that of a group without labels; `information` is the sum of f (1 - f)
    over the group's labelled nodes, the information of the log-likelihood.

    Examples
    --------
    >>> left_open(np.array(0.5), np.array([0.0, 2.0])).tolist()
    [0.5, 0.25]
    """
    return variance / (1.0 + variance * information)


def shift_variance(residuals: Floats, weights: Floats, noise: Floats) -> float:
    """Posterior mean of t^2 where ``r_g ~ N(0, n_g + t^2 w_g^2)``, t half-normal.

    Residuals and weights are sums of ``y - f`` and of ``f (1 - f)`` of each group;
    groups of weight 0 are left out. The noise n_g is w_g, or more where labels have
    inclusion weights.

    Examples
    --------
    >>> none = np.zeros(0)
    >>> round(shift_variance(none, none, none), 3)  # no labels: the prior mean
    0.623
    """
    used = weights > 0
    r, w, n = (values[used, None] for values in (residuals, weights, noise))
    variance = n + SPREADS**2 * w * w
    likelihood = (-0.5 * (np.log(variance) + r * r / variance)).sum(axis=0)
    density = likelihood - 0.5 * (SPREADS / PRIOR_SPREAD) ** 2
    share = np.exp(density - density.max())
    return float((share * SPREADS**2).sum() / share.sum())


def _between(
    posteriors: Floats, is_class: Bools, groups: Ints32, least: float, each: Floats
) -> float:
    """Variance of the logit shifts of groups that have labels."""
    weights = _weights(posteriors, least) * each
    residuals, total, noise = (
        np.bincount(groups, values).astype(np.float64)
        for values in (each * (is_class - posteriors), weights, weights * each)
    )
    return shift_variance(residuals, total, noise)


def _weights(posteriors: Floats, least: float) -> Floats:
    inside = np.clip(posteriors, least, 1 - least)
    return inside * (1 - inside)
