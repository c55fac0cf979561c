"""Scenarios of how the labelled nodes were chosen, for the estimates of `auto`.

There are two scenarios: labels are a random sample, or were chosen by class, so that
posteriors of unlabelled nodes have to be tilted. A run uses one mixture of both; its
weight depends on the nodes of the graph, never on the communities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.sections import LabelSettings
from xnq_dist.quantify.interface import NodeTable
from xnq_dist.selection.tilt import logit_variance, solve_bias, tilted_mean
from xnq_dist.selection.verdict import Selection

__all__ = [
    "Tilt",
    "check_prior",
    "shares_left",
    "tilt_of",
]


INFLATION = 1.3
"""Factor on standard errors of tilted estimates, because the selection model is an
approximation."""
PLACE_SD = 0.5
"""Standard deviation of the logit shift under selection by place, unless the choice is
declared to be by place alone."""
CONTESTED = 0.5
"""Share of the tilted scenario where selection by place and by class are both detected.
Labels from a single region look the same, and either estimate may then have a large
error; halfway between them the larger of the two possible errors is smallest."""


@dataclass(frozen=True, eq=False)
class Tilt:
    """The scenario in which labels were chosen by class."""

    factors: Floats
    """exp(-b), the factors on posteriors of unlabelled nodes, shape (C,)."""
    share: float
    """Weight of this scenario in the estimates, m."""
    alone: bool
    """Whether intervals are those of this scenario alone."""
    shift: Floats
    """Variance of the logit shift of all unlabelled nodes, shape (K,)."""
    inflation: float
    """Factor on standard errors."""
    known: bool = False
    """Whether class shares of all nodes are known, so that they share no shift."""

    @classmethod
    def none(cls, n_classes: int) -> Tilt:
        """Labels are a random sample: posteriors are unchanged."""
        return cls(np.ones(n_classes), 0.0, True, np.zeros(1), 1.0)


def check_prior(prior: dict[str, float] | None, classes: tuple[str, ...]) -> None:
    """Raise a `SettingsError` unless `labels.prior` names the classes of the labels."""
    if prior is not None and set(prior) != set(classes):
        raise SettingsError(
            f"labels.prior has shares of the classes {', '.join(prior)}, and the "
            f"labels have {', '.join(classes)}: name each of these"
        )


def tilt_of(
    labels: LabelSettings, selection: Selection | None, nodes: NodeTable
) -> Tilt | None:
    """Return the tilted scenario of a run; None: posteriors are unchanged.

    `selection` is from `surroundings.study`; `prior` replaces a posterior of zeros. A
    `labels.prior` that gives a class no more nodes than have its label is an
    `InputError`.
    """
    free = np.flatnonzero(nodes.unlabelled)
    prior = nodes.prior / nodes.prior.sum()
    if not len(free) or labels.drawn not in ("unknown", "by_class"):
        return None
    if labels.prior is not None:
        known = nodes.labels[nodes.labels >= 0]
        counts = np.bincount(known, minlength=len(nodes.classes)).tolist()
        of_classes = dict(zip(nodes.classes, counts, strict=True))
        shares = shares_left(labels.prior, of_classes, len(nodes.labels))
        bias = solve_bias(nodes.posteriors, free, shares, prior)
        return Tilt(
            np.exp(-bias), 1.0, True, np.zeros(len(nodes.class_codes)), 1.0, known=True
        )
    if selection is None:
        return None
    contested = selection.by_place and labels.drawn == "unknown"
    alone = labels.drawn == "by_class" or (selection.by_class and not contested)
    factors = np.exp(-selection.bias)
    mean, spread = tilted_mean(nodes.posteriors, free, factors, prior)
    shift = logit_variance(selection.covariance, mean)
    if selection.by_place:
        # The share of all unlabelled nodes then has the variance (.5 q (1 - q))^2.
        shift += (PLACE_SD * mean * (1 - mean) / np.maximum(spread, 1e-12)) ** 2
    share = 1.0 if alone else selection.probability
    if contested:
        share = CONTESTED if selection.by_class else 0.0
    return Tilt(factors, share, alone, shift[nodes.class_codes], INFLATION)


def shares_left(
    prior: dict[str, float], counts: dict[str, int], n_nodes: int
) -> Floats:
    """Class shares of the unlabelled nodes, given `labels.prior` for all nodes.

    `counts` are the labelled nodes of each class. A class without unlabelled nodes is
    an `InputError`.
    """
    shares = np.array([prior[name] for name in counts])
    labelled = np.array(list(counts.values()))
    expected = shares / shares.sum() * n_nodes
    left = expected - labelled
    if not (left > 0).all():
        code = np.argmin(left)
        name = list(counts)[code]
        raise InputError(
            f"labels.prior gives class {name!r} {expected[code]:,.0f} of {n_nodes:,} "
            f"nodes, but {counts[name]:,} have its label, and each class needs "
            "unlabelled nodes, too: correct labels.prior or the labels"
        )
    return np.asarray(left / (n_nodes - labelled.sum()))
