"""The quantifier `auto`: the right answer for scattered samples and real communities.

A community with hardly an edge inside is a sample: SLD answers. Any other gets, class
by class, the posterior median of its share under `hypotheses`, whose weights the labels
of all communities have decided, with its own labels taken in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, expit, log_expit

from xnq_dist.config import Settings
from xnq_dist.quantify.cohesion import EdgeCounts, Mixing, scattered
from xnq_dist.quantify.fit_check import fit_pvalues
from xnq_dist.quantify.hypotheses import HYPOTHESES, PSEUDO, prior_weights
from xnq_dist.quantify.intercept import sigmoid_tables
from xnq_dist.quantify.intercepts import (
    Grids,
    HostIntercepts,
    Intercepts,
    Logits,
)
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    Labelled,
    NodeTable,
    Quantifier,
    Reference,
)
from xnq_dist.quantify.members import check_posteriors
from xnq_dist.quantify.sld import Sld, guarded_prior

__all__ = ["SCATTERED", "Auto", "Evidence", "Learnt"]

SCATTERED = (
    "hardly any edge inside: taken for a sample drawn by class, so SLD; force another "
    "quantifier if its features were what it was chosen by"
)

SMALLEST = 20
"""Unlabelled members from which on SLD may answer alone: few say too little."""
REJECTED = 1e-4
"""P-value of prior-probability shift below which a community is no sample drawn by
class, however its edges lie."""
LEAST_WEIGHT = 0.01
"""Hypotheses of less weight are left out."""
TRUST = 0.95
"""Probability of SLD's shift in a scattered sample before its labels are seen."""
OPEN = 2.0
"""Factor on the covariance of the calibration: neighbouring labels are not independent,
and the readout itself was learnt from them."""
FEW = 20.0
"""Labels of the rarer side by which that covariance doubles once more."""
INTERCEPT_PRIOR, SLOPE_PRIOR = 4.0, 0.25
"""Variances of the calibration's intercept and slope before any label is seen."""
CERTAIN = np.zeros((2, 2))
"""Hypotheses are weighed as if the calibration were certain: what it leaves open would
otherwise count as spread between communities."""


@dataclass(frozen=True, eq=False)
class Learnt:
    """What `auto` knows beside the node table."""

    weights: NDArray[np.float64]
    """Of the hypotheses by class, shape (K, H); K is 1 for two classes, else C."""
    mixing: Mixing | None = None
    """None: a graph without edges."""
    counts: EdgeCounts | None = None
    """Of the batch's communities; None: without edges."""

    @classmethod
    def nothing(cls, n_classes: int) -> Learnt:
        """Before any label or edge is seen."""
        rows = 1 if n_classes == 2 else n_classes
        return cls(np.tile(prior_weights(), (rows, 1)))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a batch says of the hypotheses."""

    evidence: NDArray[np.float64]
    """Shape (n, K, H), n communities with labels that may be used."""
    shares: NDArray[np.float64]
    """How much each counts, shape (n,)."""


@dataclass(frozen=True)
class Auto:
    """The quantifier ``auto``.

    Notes
    -----
    Every class is taken against the rest, and the medians are divided by their sum; of
    two classes one is enough. Shares of labelled members are the caller's to count:
    their labels serve here as evidence only, and only those that had no part in their
    own posterior.
    """

    sld: Quantifier
    """Answers for scattered samples."""
    level: float = 0.95
    """Probability of the intervals."""
    learnt: Learnt | None = None
    """None: nothing learnt and no graph."""
    intercepts: Intercepts = field(default_factory=HostIntercepts)
    """Integrates for all others."""
    name: str = "auto"
    needs_neighbours: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Auto:
        """As the settings say, with nothing learnt."""
        rule = settings.sld.tolerance, settings.sld.max_iterations
        level = settings.intervals.level
        if settings.backend == "gpu":
            from xnq_dist.quantify.gpu_auto import GpuIntercepts
            from xnq_dist.quantify.gpu_sets import GpuSld

            return cls(GpuSld(*rule), level, intercepts=GpuIntercepts())
        return cls(Sld(*rule), level)

    def summarise(
        self,
        batch: Communities,
        nodes: NodeTable,
        reference: Reference,
        multiplicity: NDArray[np.integer],
        every: int,
        first: int,
    ) -> Evidence:
        """What the labelled members of a batch say of the hypotheses.

        Parameters
        ----------
        batch, nodes, reference
            As for `estimate`.
        multiplicity
            Communities that each node is in, shape (N,).
        every, first
            Only communities whose number, counted from `first`, is a multiple of
            `every` are asked.
        """
        asked = (first + np.arange(len(batch))) % every == 0
        if not asked.all():
            batch = _some(batch, asked)
        rows = _Rows.of(batch, nodes, reference)
        number = rows.sums(rows.usable, np.ones(len(rows.labels)))
        once = 1.0 / np.maximum(multiplicity[batch.members], 1)
        weight = rows.sums(rows.usable, once)
        chosen = np.flatnonzero(number > 0)
        classes = _classes(nodes)
        evidence = np.empty((len(chosen), len(classes), len(HYPOTHESES)))
        for k, code in enumerate(classes):
            prior = _inside(reference.prior[code])
            evidence[:, k] = self.intercepts.evidence(
                Logits(batch.offsets, *rows.of_class(code), prior),
                chosen,
                CERTAIN,
                _hypotheses(tuple(range(len(HYPOTHESES)))),
            )
        return Evidence(evidence, weight[chosen] / number[chosen])

    def estimate(
        self,
        batch: Communities,
        nodes: NodeTable,
        reference: Reference,
        labelled: Labelled,
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community, with intervals.

        Raises
        ------
        InputError
            When a posterior is not finite.
        """
        check_posteriors(self.name, batch, nodes)
        learnt = self.learnt or Learnt.nothing(nodes.posteriors.shape[1])
        rows = _Rows.of(batch, nodes, reference)
        sld = self.sld.estimate(batch, nodes, reference, labelled)
        # NaN where no member is unlabelled: nothing is chosen there.
        sample = self._samples(batch, nodes, sld, reference, learnt)
        shape = sld.prevalence.shape
        by_sld, by_mixture = np.zeros((3, *shape)), np.empty((3, *shape))
        by_sld[0] = sld.prevalence
        odds = np.full(len(batch), np.log(TRUST / (1 - TRUST)))
        for k, code in enumerate(_classes(nodes)):
            logits, codes = rows.of_class(code)
            covariance = _left_open(reference, code)
            prior = _inside(reference.prior[code])
            answers = self._answers(
                Logits(batch.offsets, logits, codes, prior),
                covariance,
                learnt.weights[k],
            )
            by_mixture[:, :, code] = answers[:, :3].T
            shift = _log_odds(sld.prevalence[:, code]) - _log_odds(prior)
            odds += rows.log_likelihood(logits, codes, shift) - answers[:, 3]
            if sample.any():
                by_sld[1:, :, code] = _sld_interval(
                    rows,
                    logits,
                    codes,
                    sld.prevalence[:, code],
                    prior,
                    covariance,
                    self,
                )
        if shape[1] == 2:
            by_mixture[:, :, 0] = 1 - by_mixture[[0, 2, 1], :, 1]
            by_sld[1:, :, 0] = 1 - by_sld[[2, 1], :, 1]
        by_mixture[0] = np.maximum(by_mixture[0], 1e-12)
        by_mixture[0] /= by_mixture[0].sum(axis=1, keepdims=True)
        # Labels in a sample may say that it is none.
        sample &= ~rows.has_labels | (odds >= 0)
        chosen = np.where(sample[:, None], by_sld, by_mixture)
        return Estimates(
            prevalence=chosen[0],
            iterations=np.where(sample, sld.iterations, 0).astype(np.int32),
            converged=np.where(sample, sld.converged, True),
            lower=np.minimum(chosen[1], chosen[0]),
            upper=np.maximum(chosen[2], chosen[0]),
            notes=tuple(SCATTERED if one else None for one in sample.tolist()),
        )

    def _answers(
        self,
        logits: Logits,
        covariance: NDArray[np.float64],
        weights: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        kept = np.flatnonzero(weights >= LEAST_WEIGHT)
        return self.intercepts.answers(
            logits,
            covariance,
            _hypotheses(tuple(kept.tolist())),
            weights[kept] / weights[kept].sum(),
            (1 - self.level) / 2,
        )

    def _samples(
        self,
        batch: Communities,
        nodes: NodeTable,
        sld: Estimates,
        reference: Reference,
        learnt: Learnt,
    ) -> NDArray[np.bool_]:
        """Communities that are taken for samples drawn by class, shape (S,)."""
        before = np.concatenate([[0], np.cumsum(nodes.unlabelled[batch.members])])
        large = np.diff(before[batch.offsets]) >= SMALLEST
        if learnt.mixing is None or learnt.counts is None:
            return np.asarray(large)
        ratios = np.nan_to_num(sld.prevalence) / guarded_prior(reference.prior)
        sizes = np.diff(batch.offsets)
        found = large & scattered(learnt.counts, sizes, ratios, learnt.mixing)
        if found.any():
            with np.errstate(invalid="ignore"):
                found &= ~(fit_pvalues(batch, nodes, reference.fit) < REJECTED)
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Members of a batch with what is known of their labels."""

    batch: Communities
    nodes: NodeTable
    community: NDArray[np.int64]
    """Of each membership, shape (M,)."""
    labels: NDArray[np.int32]
    """Of each membership, -1 without one, shape (M,)."""
    usable: NDArray[np.bool_]
    """Memberships whose label had no part in their posterior, shape (M,)."""
    bound: float
    """Largest logit that as many labels as there are can vouch for."""

    @classmethod
    def of(cls, batch: Communities, nodes: NodeTable, reference: Reference) -> _Rows:
        members = batch.members
        labels = nodes.labels[members]
        known = 1000 if reference.labels is None else len(reference.labels)
        return cls(
            batch,
            nodes,
            np.repeat(np.arange(len(batch)), np.diff(batch.offsets)),
            labels,
            (labels >= 0) & nodes.out_of_fold[members],
            float(np.log(known + 1.0)),
        )

    @property
    def has_labels(self) -> NDArray[np.bool_]:
        """Communities with a label that may be used, shape (S,)."""
        return np.asarray(self.sums(self.usable, np.ones(len(self.labels))) > 0)

    def sums(
        self, some: NDArray[np.bool_], values: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Sum over some memberships of each community, shape (S,)."""
        return np.bincount(
            self.community[some], values[some], minlength=len(self.batch)
        ).astype(np.float64)

    def of_class(self, code: int) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        """Logits of a class against the rest and codes, as the kernels take them."""
        members, posteriors = self.batch.members, self.nodes.posteriors
        few = len(posteriors) <= len(members)
        rows = (posteriors if few else posteriors[members]).astype(np.float64)
        total = rows.sum(axis=1)
        share = rows[:, code] / np.maximum(total, 1e-300)
        logits = np.clip(_log_odds(share), -self.bound, self.bound)
        # Nothing is known of a node whose posterior is all zeros.
        nothing = total <= 0
        logits[nothing] = 0.0
        if few:
            logits, nothing = logits[members], nothing[members]
        codes = (self.labels == code).astype(np.int8)
        codes[self.labels < 0] = -1
        codes[(codes >= 0) & (~self.usable | nothing)] = -2
        return logits, codes

    def log_likelihood(
        self,
        logits: NDArray[np.float64],
        codes: NDArray[np.int8],
        shift: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Of the labelled members when all logits move by the shift, shape (S,)."""
        seen = np.flatnonzero(codes >= 0)
        z = logits[seen] + shift[self.community[seen]]
        found = log_expit(np.where(codes[seen] == 1, z, -z))
        return np.bincount(
            self.community[seen], found, minlength=len(self.batch)
        ).astype(np.float64)


def _some(batch: Communities, chosen: NDArray[np.bool_]) -> Communities:
    """Some of the communities, in their order."""
    sizes = np.diff(batch.offsets)
    offsets = np.concatenate([[0], np.cumsum(sizes[chosen])]).astype(np.int64)
    return Communities(offsets, batch.members[np.repeat(chosen, sizes)])


def _classes(nodes: NodeTable) -> tuple[int, ...]:
    """Codes of the classes that are taken against the rest."""
    n_classes = nodes.posteriors.shape[1]
    return (1,) if n_classes == 2 else tuple(range(n_classes))


def _inside(share: float) -> float:
    return float(np.clip(share, 1e-4, 1 - 1e-4))


def _log_odds(share: NDArray[np.float64] | float) -> NDArray[np.float64]:
    inside = np.clip(share, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def _left_open(reference: Reference, code: int) -> NDArray[np.float64]:
    """Covariance of intercept and slope of a class's logits, from the labels' number.

    That of a logistic regression of the labels on the logits, with weak priors, times
    `OPEN`, and more where the rarer side has few labels.
    """
    if reference.posteriors is None or reference.labels is None:
        return np.diag([INTERCEPT_PRIOR, SLOPE_PRIOR])
    share = np.asarray(reference.posteriors[:, code], np.float64)
    logits = _log_odds(share)
    weights = expit(logits) * expit(-logits)
    # Sums, not BLAS: its rounding may depend on the number of threads.
    cross = float((weights * logits).sum())
    information = np.array(
        [
            [weights.sum() + 1 / INTERCEPT_PRIOR, cross],
            [cross, float((weights * logits**2).sum()) + 1 / SLOPE_PRIOR],
        ]
    )
    own = int(np.count_nonzero(reference.labels == code))
    rarer = max(1, min(own, len(reference.labels) - own))
    return np.asarray(np.linalg.inv(information) * OPEN * (1 + FEW / rarer))


@cache
def _hypotheses(
    kept: tuple[int, ...],
) -> Grids:
    """Slopes, their tables, hypotheses and pseudo-nodes, as the kernels take them."""
    some = [HYPOTHESES[h] for h in kept]
    slopes = sorted({hypothesis.slope for hypothesis in some})
    rows = [
        (
            slopes.index(one.slope),
            PSEUDO.index(one.pseudo) if one.strength else -1,
            one.strength,
            one.widening,
            one.spread,
        )
        for one in some
    ]
    sigmoid, log_sigmoid = sigmoid_tables(np.array(slopes))
    return Grids(
        np.array(slopes),
        sigmoid,
        log_sigmoid,
        np.array(rows, np.float64),
        np.array(PSEUDO),
    )


def _sld_interval(
    rows: _Rows,
    logits: NDArray[np.float64],
    codes: NDArray[np.int8],
    share: NDArray[np.float64],
    prior: float,
    covariance: NDArray[np.float64],
    settings: Auto,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the interval of a class's share in scattered samples.

    Notes
    -----
    With q the share, p the members' posteriors under it and
    ``kappa = mean(p (1 - p)) / (q (1 - q))``, the information on q is
    ``n (1 - kappa) / (q (1 - q))`` and the share that can be counted has the variance
    ``q (1 - q) kappa / ((1 - kappa) n)`` around its estimate: 0 for posteriors of 0 and
    1, beyond bounds for posteriors that say nothing. A logit of calibration variance c
    adds ``c (mean(p (1 - p)) / (1 - kappa))^2``. The ends are those of the Beta
    distribution of this mean and variance, put on counts; two pseudo-nodes at the
    prior keep a community of one from being sure.
    """
    free = codes == -1
    size = np.maximum(rows.sums(free, np.ones(len(codes))), 1.0)
    q = (size * np.nan_to_num(share, nan=prior) + 2 * prior) / (size + 2)
    z = logits + (_log_odds(q) - _log_odds(prior))[rows.community]
    spread = rows.sums(free, expit(z) * expit(-z)) / size
    kappa = np.clip(spread / (q * (1 - q)), 0.0, 0.999)
    middle = rows.sums(free, logits) / size
    left_open = (
        covariance[0, 0]
        + 2 * covariance[0, 1] * middle
        + covariance[1, 1] * middle * middle
    )
    variance = q * (1 - q) * kappa / ((1 - kappa) * size)
    variance += left_open * (spread / (1 - kappa)) ** 2
    # A Beta distribution has less than q (1 - q).
    known = q * (1 - q) / np.clip(variance, 1e-12, 0.9 * q * (1 - q)) - 1
    tail = (1 - settings.level) / 2
    ends = betaincinv(q * known, (1 - q) * known, [[tail], [1 - tail]])
    return np.floor(ends[0] * size) / size, np.ceil(ends[1] * size) / size
