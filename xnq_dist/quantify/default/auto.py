"""The quantifier `auto`: posteriors of the unlabelled members, with intervals.

The posteriors of a community's members are moved by its labelled members (`pooling`).
Without that (``auto.pooled = false``, and in the complete graph) an estimate is a sum
over nodes: the sums of disjoint communities add up to that of their union.

Errors that nodes share are correlated: with w = f (1 - f) summed over unlabelled nodes,
n the number of all members, and g the groups of the graph's partitions (by links,
coarse and fine, and by degree),

    Cov(S, T) = [ w(S and T) + sum_g d_g(S) d_g(T) v_g + w(S) w(T) v ] / (n_S n_T)

is the covariance of two estimates; v_g and v are the variances of the logit shifts of a
group and of all nodes (`estimator_fit`), and ``d_g(S) = w_g(S) - w(S) a_g`` with the
group's share a_g of the labelled nodes' weight, because the calibration has moved all
nodes by the labelled groups' mean shift. Pooling replaces w(S and S), the variance of
independent nodes, by that of its mixture. With random labels this error is small in the
complete graph; with labels from few groups all estimates share those groups' shifts.

Where labels may have been chosen by class there are two scenarios: f unchanged and f
tilted (`scenarios`). The estimate is their mixture with one weight per run, and the
interval contains the intervals of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.default.drawn import DrawnByClass
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.node_sums import node_sums
from xnq_dist.quantify.default.pooling import pooled_members
from xnq_dist.quantify.default.scenarios import Tilt
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
)
from xnq_dist.quantify.quality import z_value

__all__ = [
    "Auto",
    "interval_of_counts",
    "make",
]

WIDER = 1.5
"""Factor by which pooling widens the interval of a community without labelled members,
above which its note says so."""


@dataclass(frozen=True)
class Auto(Quantifier):
    """The quantifier ``auto``."""

    level: float = 0.95
    """Confidence level of the intervals."""
    learnt: Learnt | None = None
    """Variances of shifts; None: from the reference, with all nodes in one group."""
    parts: Floats | None = None
    """Weights of the parts of the intercepts' prior (`pooling.fit_weights`), learnt
    from all communities of the table; None: no pooling."""
    name: str = "auto"
    gives_intervals = True

    def estimate(self, batch: Communities, nodes: NodeTable) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        tilt = None if self.learnt is None else self.learnt.tilt
        if tilt is None or tilt.alone:
            return self.in_scenario(tilt, batch, nodes)
        plain, tilted = (self.in_scenario(each, batch, nodes) for each in (None, tilt))
        return _mixed((plain, tilted), tilt.share, self.level)

    def in_scenario(
        self, tilt: Tilt | None, batch: Communities, nodes: NodeTable
    ) -> Estimates:
        """`estimate` in the scenario `tilt`; None: labels are a random sample."""
        learnt = self.learnt
        if learnt is None:
            one_group = np.zeros(len(nodes.labels), np.int32)
            learnt = Learnt.of(nodes, one_group)
        tilt = tilt or Tilt.none(len(nodes.classes))
        free = batch.only(nodes.unlabelled)
        sums = node_sums(free, nodes, learnt, tilt)
        mean, variance, unseen = sums.mean, sums.variance, None
        if self.parts is not None:
            pooled = pooled_members(batch, nodes, self.parts, tilt.factors)
            moved = pooled.variance + (variance - sums.weight)
            wider = (moved > WIDER**2 * variance).any(axis=1)
            unseen = wider & (pooled.known == 0)
            mean, variance = pooled.mean, moved
        number = np.maximum(free.sizes, 1)[:, None].astype(np.float64)
        sd = np.broadcast_to(tilt.inflation * np.sqrt(variance) / number, mean.shape)
        lower, upper = interval_of_counts(mean, sd, number, self.level)
        return Estimates(
            mean,
            np.ones(len(number), np.bool_),
            lower,
            upper,
            sd=np.where(np.isnan(mean), np.nan, sd),
            unseen=unseen,
        )


def _mixed(parts: tuple[Estimates, Estimates], share: float, level: float) -> Estimates:
    """Mixture of two estimates, with an interval that contains both intervals.

    The standard error is the one implied by the interval before rounding.
    """
    plain, tilted = parts
    half = z_value(level)
    sd = np.array([part.sd for part in parts])
    mean = np.array([part.prevalence for part in parts])
    width = (mean + half * sd).max(axis=0) - (mean - half * sd).min(axis=0)
    return replace(
        plain,
        prevalence=(1 - share) * plain.prevalence + share * tilted.prevalence,
        lower=np.array([part.lower for part in parts]).min(axis=0),
        upper=np.array([part.upper for part in parts]).max(axis=0),
        sd=width / (2 * half),
    )


def interval_of_counts(
    mean: Floats, sd: Floats, size: Floats, level: float
) -> tuple[Floats, Floats]:
    """Ends of the interval of a share of `size` nodes: normal, rounded to counts.

    The target is a count of nodes over `size`, so both ends are rounded to the nearest
    count. The coverage for simulated communities of 1 to 20 nodes was .94 to .99; that
    of a Beta distribution or of Wilson's interval with the same variance was .42 to
    .97, because they exclude a count of 0 where the mean is small.

    Examples
    --------
    >>> ends = interval_of_counts(np.array(0.1), np.array(0.09), np.array(10.0), 0.95)
    >>> [round(float(end), 3) for end in ends]
    [0.0, 0.3]
    """
    half = z_value(level) * sd
    # Adding zero turns -0.0 into 0.0.
    lower = np.ceil((mean - half) * size - 0.5) / size + 0.0
    upper = np.floor((mean + half) * size + 0.5) / size
    return (
        np.minimum(np.maximum(lower, 0.0), mean),
        np.maximum(np.minimum(upper, 1.0), mean),
    )


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier for communities, or for samples drawn by class."""
    level = settings.intervals.level
    if settings.memberships.drawn == "by_class":
        return DrawnByClass(level)
    return Auto(level)
