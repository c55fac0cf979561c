"""Tests of how labels were chosen, the bias of posteriors, and sentences on both.

Thresholds are from simulations and test graphs; none is fitted to the user's graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, gammaln, ndtri

from xnq_dist.core.arrays import Floats
from xnq_dist.core.threads import one_blas_thread
from xnq_dist.selection.model import SelectionFit, Terms, fit_model, plain_terms
from xnq_dist.selection.place import DECILES, degree_bins, place_terms, uneven
from xnq_dist.selection.scored_rows import ScoredRows
from xnq_dist.selection.tilt import tilted

__all__ = ["Selection", "judge", "sentences"]

PLACE_Z, PLACE_CV2 = 4.0, 0.05
"""Selection by place is detected above both."""
CLASS_M0, CLASS_M1 = 0.01, 0.05
"""Selection by class is detected if the p-values of b in M0 and M1 are both below."""
DOUBTFUL = 0.1
"""P-value of b in M0 below which M1 is fitted, too: a dependence of labels on degree or
place that is too weak to be detected looks like selection by class in M0."""
CLASS_BY_PLACE = 1e-5
"""Threshold for the p-value of b in M1 where selection by place is detected, too."""
EQUAL = 0.1
"""Threshold for the p-value of b in M0 where all classes have equally many labels."""
MANY = 4
"""Number of classes from which equal counts need no test."""
CHANCE = 0.01
"""Probability of equal counts below which they are not attributed to chance."""
TESTED, ASSUMED = 3.0, 1.0
"""Prior standard deviation of b in tests and in estimates."""
PRIOR = 0.2
"""Prior probability of selection by class."""
POWER = 1.08
"""Standard normal quantile of .86, the power of M0's test against the bias reported."""


@dataclass(frozen=True, eq=False)
class Selection:
    """How the labelled nodes were chosen, by the evidence of scores and places."""

    by_place: bool
    by_class: bool
    pvalue: float
    """P-value of b = 0 in M0."""
    bias: Floats
    """b: logarithms of the odds of having a label by class, summing to 0, (C,)."""
    covariance: Floats
    """Covariance of b, shape (C, C)."""
    probability: float
    """Posterior probability of selection by class."""
    factors: Floats
    """Smallest bias of each class against the rest that M0's test would have detected,
    as a factor; inf where none would have been, shape (C,)."""

    @property
    def verdict(self) -> str:
        """``none``, ``class``, ``place`` or ``both``."""
        if self.by_place:
            return "both" if self.by_class else "place"
        return "class" if self.by_class else "none"

    def facts(self) -> dict[str, Any]:
        """Return facts for the manifest, JSON values."""
        return {
            "verdict": self.verdict,
            "pvalue": self.pvalue,
            "bias": self.bias.tolist(),
            "detectable": [
                float(factor) if np.isfinite(factor) else None
                for factor in self.factors
            ],
        }


@one_blas_thread()
def judge(rows: ScoredRows, sizes: tuple[int, int]) -> Selection | None:
    """Test for selection by place first, then by class.

    Parameters
    ----------
    rows
        Labelled and unlabelled nodes, all or a random sample of each.
    sizes
        Labelled and unlabelled nodes of the graph.

    Returns
    -------
    The result; None with fewer than two nodes of either, or labels of one class only.
    """
    known = rows.labelled
    if min(known.sum(), (~known).sum()) < 2:
        return None
    if len(np.unique(rows.labels[known])) < 2:
        return None
    plain = plain_terms(rows.folds)
    null = fit_model(rows, plain, None)
    pvalue = _pvalue(rows, plain, null)
    fitted = fit_model(rows, plain, ASSUMED, null)
    by_place = False
    for codes in (rows.groups[0], degree_bins(rows.degree, DECILES)):
        z, cv2 = uneven(codes, rows.labelled, fitted.rates)
        by_place |= z > PLACE_Z and cv2 > PLACE_CV2
    equal = _equal_counts(rows, fitted)
    by_class = equal and (pvalue < EQUAL or rows.n_classes >= MANY)
    if by_place or (pvalue < DOUBTFUL and not by_class):
        terms = place_terms(rows)
        held = fit_model(rows, terms, None)
        place_pvalue = _pvalue(rows, terms, held)
        if by_place:
            by_class = place_pvalue < CLASS_BY_PLACE
        else:
            by_class = pvalue < CLASS_M0 and place_pvalue < CLASS_M1
        if by_place or not by_class:
            fitted, null = fit_model(rows, terms, ASSUMED, held), held
    return Selection(
        by_place,
        by_class,
        pvalue,
        fitted.bias,
        fitted.covariance,
        _probability(null, fitted),
        _detectable_factors(rows, sizes),
    )


def sentences(labels: Mapping[str, Any], level: float) -> list[str]:
    """Describe the verdict, its evidence, both estimates, and what to do.

    Parameters
    ----------
    labels
        The fact ``labels`` of the stage ``quantify``: ``drawn``, ``verdict`` and the
        other figures of `Selection.facts`, and ``answers``, one for each class.
    level
        Confidence level of the intervals.

    Examples
    --------
    >>> sentences({"drawn": "weighted", "answers": []}, 0.95)
    ['Labels count by their inclusion weights (labels.drawn = weighted).']
    """
    drawn = labels["drawn"]
    if drawn == "weighted":
        return ["Labels count by their inclusion weights (labels.drawn = weighted)."]
    if "verdict" not in labels and not labels.get("prior"):
        return [
            "How the labelled nodes were chosen could not be tested: there are too few "
            "labelled or unlabelled nodes. If you know how, set labels.drawn."
        ]
    answers: Sequence[Mapping[str, Any]] = labels["answers"]
    last = answers[-1]
    if last["answer"] is None:  # no unlabelled node to estimate
        return []
    text: list[str] = []
    if "verdict" in labels:
        text += [_verdict(labels, answers), _reach(labels, last)]
    text += [_answers(labels, last, level), _advice(labels, last)]
    return [sentence for sentence in text if sentence]


def _detectable_factors(rows: ScoredRows, sizes: tuple[int, int]) -> Floats:
    """Smallest bias of each class that M0's test would have detected, shape (C,).

    The test's noncentrality per unit of squared log-bias is ``n_l (1 - f) Var(p)`` with
    n_l labels, a labelled share f, and the variance of the labelled nodes' scores. Of
    several classes each is tested at `CLASS_M0` over twice their number.
    """
    n_known, n_free = sizes
    size = CLASS_M0 / (2 * rows.n_classes if rows.n_classes > 2 else 1)
    variance = rows.posteriors[rows.labelled].var(axis=0)
    reach = n_known * (n_free / (n_known + n_free)) * variance
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.exp((ndtri(1 - size / 2) + POWER) / np.sqrt(reach)))


def _pvalue(rows: ScoredRows, terms: Terms, null: SelectionFit) -> float:
    """P-value of b = 0; for several classes, of a joint and of single-class tests."""
    alternative = fit_model(rows, terms, TESTED, null)
    ratio = max(2 * (alternative.objective - null.objective), 0.0)
    joint = float(chdtrc(rows.n_classes - 1, ratio))
    if rows.n_classes == 2:
        return joint
    single = _single_pvalues(rows, terms, null).min()
    return min(1.0, 2 * min(joint, float(rows.n_classes * single)))


def _single_pvalues(rows: ScoredRows, terms: Terms, null: SelectionFit) -> Floats:
    """P-values of b = 0 against a bias of one class alone: score tests, shape (C,)."""
    n_classes = rows.n_classes
    p, rate = null.posteriors, null.rates
    scores = p.T @ (rows.labelled - rate)
    weights = rate * (1 - rate)
    # At b = 0, P(R) depends on g alone, not on the parameters a and s.
    joint = terms.information(p, weights)
    of_classes = joint[:n_classes, :n_classes]
    cross = joint[n_classes:, :n_classes]
    effects = joint[n_classes:, n_classes:] + np.diag(terms.precisions())
    left = of_classes - cross.T @ np.linalg.solve(effects, cross)
    variance = np.maximum(np.diag(left), 1e-300)
    return chdtrc(1, scores**2 / variance)


def _probability(null: SelectionFit, fitted: SelectionFit) -> float:
    """Probability that b is not 0, by Laplace's approximation of the Bayes factor."""
    log_factor = fitted.objective - null.objective
    log_factor -= (len(fitted.bias) - 1) * np.log(ASSUMED)
    log_factor -= 0.5 * (fitted.log_determinant - null.log_determinant)
    odds = np.log(PRIOR) - np.log1p(-PRIOR) + log_factor
    return float(1 / (1 + np.exp(-np.clip(odds, -700, 700))))


def _equal_counts(rows: ScoredRows, fitted: SelectionFit) -> bool:
    """Whether all classes have equally many labels, beyond chance."""
    counts = np.bincount(rows.labels[rows.labelled], minlength=rows.n_classes)
    if counts.max() - counts.min() > 1:
        return False
    known = rows.labelled
    free = tilted(fitted.posteriors[~known], np.exp(-fitted.bias))
    shares = (counts + free.sum(axis=0)) / len(known)
    log_chance = gammaln(counts.sum() + 1) - gammaln(counts + 1).sum()
    log_chance += (counts * np.log(np.maximum(shares, 1e-300))).sum()
    return bool(log_chance < np.log(CHANCE))


def _verdict(labels: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> str:
    value = labels["pvalue"]
    pvalue = f"{value:.2g}" if value >= 1e-4 else "less than 0.0001"
    more = max(answers, key=lambda answer: answer["bias"])
    by_class = (
        f"the odds of having a label are {more['factor']:.2g} times as high in class "
        f"{more['class']} as in the other classes"
    )
    texts = {
        "none": "Nothing shows that the labelled nodes were chosen by class "
        f"(p = {pvalue}) or by their place in the graph.",
        "class": f"The labelled nodes were chosen by class (p = {pvalue}): {by_class}.",
        "place": "The labelled nodes were chosen by their place in the graph: some "
        "communities or degrees have more labels than others. Nothing shows a choice "
        "by class as well.",
        "both": "The labelled nodes were chosen by their place in the graph and by "
        f"class: {by_class}.",
    }
    text = texts[labels["verdict"]]
    if not labels.get("exchangeable", True):
        text += " With method = xnq these tests are approximate, with xnq+ exact."
    return text


def _reach(labels: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    if labels["verdict"] in ("class", "both"):
        return ""
    factor = last["detectable"]
    if factor is None or factor > 100:
        return (
            "These labels and estimated probabilities are too weak to show even a "
            "strong choice by class."
        )
    times = f"{factor:.2g}" if factor >= 1.1 else f"{max(factor, 1.001):.3f}"
    return (
        f"A choice by class in which the odds of having a label are less than {times} "
        f"times as high in class {last['class']} as in the rest could have gone "
        "unnoticed."
    )


def _answers(labels: Mapping[str, Any], last: Mapping[str, Any], level: float) -> str:
    plain, tilted = last["if_random"], last["if_by_class"]
    if tilted is None:
        return ""
    if labels.get("prior"):
        return (
            f"Class {last['class']} among all nodes: labels.prior sets "
            f"{100 * tilted[0]:.1f} %, and all estimates add up to it. Without it "
            f"they give {_share(plain)}."
        )
    text = (
        f"Class {last['class']} among all nodes: {_share(plain)} if the labels "
        f"are a random sample, {_share(tilted)} if they were chosen by class "
        f"({100 * level:g} % intervals)"
    )
    if labels["alone"]:
        return f"{text}; the second is reported."
    if not labels["tilted"]:
        return f"{text}; the first is reported, and every interval contains both."
    return (
        f"{text}; their mean with the weights {1 - labels['tilted']:.2g} and "
        f"{labels['tilted']:.2g}, {_share(last['answer'])}, is reported, and every "
        "interval contains both."
    )


def _share(answer: Sequence[float]) -> str:
    mean, lower, upper = (100 * value for value in answer)
    return f"{mean:.1f} % ({lower:.1f}-{upper:.1f} %)"


def _advice(labels: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    verdict, drawn = labels.get("verdict", "none"), labels["drawn"]
    if labels.get("prior"):
        return ""
    if drawn in ("random", "by_place"):
        if verdict == "none" or (drawn, verdict) == ("by_place", "place"):
            return ""
        return (
            f"This contradicts labels.drawn = {drawn}, under which nothing is "
            "corrected: check how the labels came about, or set labels.drawn = unknown."
        )
    if verdict in ("class", "both"):
        first = "Estimates are corrected for it."
        if verdict == "both" and drawn == "unknown":
            first = (
                "Labels from few places can look like that without a choice by class."
            )
        return (
            f"{first} If the shares of the classes among all nodes are known, "
            "set labels.prior, which makes intervals narrower."
        )
    if drawn == "by_class":
        return ""
    plain, answer = last["if_random"], last["answer"]
    text = ""
    if verdict == "none":
        text = (
            "If you know that the labels are a random sample, set labels.drawn = "
            "random: the interval for all nodes narrows from "
            f"{100 * (answer[2] - answer[1]):.1f} to "
            f"{100 * (plain[2] - plain[1]):.1f} points. "
        )
    return text + (
        "If they were chosen by place alone, or by class, set labels.drawn = by_place "
        "or by_class; if the shares of the classes are known, set labels.prior. "
        "Labelling a random sample of the nodes avoids the question."
    )
