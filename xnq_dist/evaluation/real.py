"""Errors of estimators on communities of a real graph, by kind, size and labels.

The literature draws samples that differ in class proportions only. Here the sets are
communities of the graph, which also differ in features and links, and samples drawn by
class from the same posteriors. The truth is that of the unlabelled members and is used
for errors only. The rows of a case suffice for means, intervals and tests over draws.

Trivial estimators and rivals are always included, as baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.regions import DECLARED
from xnq_dist.evaluation.rivals import rival_estimates
from xnq_dist.evaluation.scoring import defined_quantifiers, errors_of
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.classic.counts import neighbour_sums
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.drawn import DrawnByClass
from xnq_dist.quantify.default.estimator_fit import Held
from xnq_dist.quantify.default.pooling import fit_weights, label_evidence
from xnq_dist.quantify.default.surroundings import learn_in_process
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Reference,
    make_quantifier,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "FLOOR",
    "MIN_UNLABELLED",
    "SIZES",
    "TRIVIAL",
    "Case",
    "Estimate",
    "binomial_floor",
    "estimators_of",
    "score_case",
    "true_counts",
]

TRIVIAL = ("prior", "lab")
"""The training prior; the share among labelled members (shrunk to the prior with one
pseudo-node)."""
Estimate = Callable[[Communities, bool], Iterator[tuple[str, Estimates]]]
"""Communities, whether memberships.drawn=by_class is declared to `auto` -> every
estimator's name and estimates for the unlabelled members."""
FLOOR = "floor"
"""Name of the binomial floor among the estimators."""
MIN_UNLABELLED = 5
"""Minimum number of unlabelled members of a community that is scored."""
SIZES = ((5, 20), (20, 50), (50, 100), (100, 500), (500, 2**62))
"""Size classes, by number of unlabelled members."""


@dataclass(frozen=True, eq=False)
class Case:
    """Input of the estimators, and the true classes."""

    truth: Ints32
    """Class codes, -1 if unknown, shape (N,)."""
    nodes: NodeTable
    """Posteriors, and only the labels that the estimators may use."""
    compared: NodeTable
    """The same with posteriors by the models of each node's own fold."""
    held: Held | None
    """Scores of labelled nodes by models fitted without any label of their group."""

    @classmethod
    def of(
        cls,
        truth: Ints32,
        labels: Ints32,
        posteriors: NDArray[np.floating],
        own: NDArray[np.floating],
        classes: tuple[str, ...],
        held: Held | None = None,
    ) -> Case:
        """Make a case from the shown labels and posteriors, labelled ones out of fold.

        `labels` are -1 where not shown, shape (N,); `own` are the posteriors by the
        models of each node's own fold.
        """
        labelled = labels >= 0
        rows = posteriors.astype(np.float32)
        known = labels[labelled]
        prior = np.bincount(known, minlength=len(classes)) / labelled.sum()
        reference = Reference(rows[labelled], known, np.flatnonzero(labelled))
        nodes = NodeTable(rows, labels, labelled, classes, prior, reference)
        compared = replace(nodes, posteriors=own.astype(np.float32))
        return cls(truth, nodes, compared, held)


def estimators_of(
    case: Case,
    adjacency: csr_array[Any],
    groups: tuple[Ints, ...],
    settings: Settings,
    names: Sequence[str] | None,
    rivals: Mapping[str, Floats] | None = None,
) -> Estimate:
    """All estimators of a case, with all that does not depend on the communities.

    Parameters
    ----------
    adjacency
        In-neighbours, rows sorted, shape (N, N).
    groups
        Leiden community of every node at each resolution, the coarse one first, for
        `auto` to learn from, shape (N,) each.
    settings
        Settings with the seed of the posteriors' folds and the design's `labels.drawn`.
    names
        Names of quantifiers; None: all that are defined for the number of classes.
    rivals
        Log-probabilities of `rival_estimates`; None: no rivals.
    """
    labels, prior = case.nodes.labels, case.nodes.prior
    neighbours = neighbour_sums(adjacency, case.compared.posteriors)
    nodes = case.compared.with_neighbours(neighbours)
    learnt, _ = learn_in_process(
        case.nodes,
        case.compared,
        adjacency,
        tuple(group.astype(np.int32) for group in groups),
        settings,
        case.held,
    )
    of_drawn = DrawnByClass(settings.intervals.level)
    defined = defined_quantifiers(names, len(prior))
    quantifiers = [make_quantifier(name, settings) for name in defined]
    bootstraps = [Bootstrap.of(each, settings, nodes) for each in quantifiers]

    def auto(plain: Auto, sets: Communities) -> Estimates:
        """By what `auto` learns from the graph and from a table of these sets."""
        # It does without the statistics of neighbours.
        known, parts = case.nodes, None
        if settings.auto.pooled:
            parts = fit_weights(label_evidence(sets, known))
        return replace(plain, learnt=learnt, parts=parts).estimate(sets, known)

    def estimate(sets: Communities, by_class: bool) -> Iterator[tuple[str, Estimates]]:
        for quantifier, bootstrap in zip(quantifiers, bootstraps, strict=True):
            if not isinstance(quantifier, Auto):
                result = quantifier.estimate(sets, nodes)
            elif by_class:
                result = of_drawn.estimate(sets, case.nodes)
            else:
                result = auto(quantifier, sets)
            if bootstrap is not None:
                result = bootstrap.with_ends(sets, nodes, result)
            yield quantifier.name, result
        done = np.ones(len(sets), np.bool_)
        labelled = sets.class_counts(labels, len(prior))
        share = (labelled + prior) / (labelled.sum(axis=1, keepdims=True) + 1)
        yield "prior", Estimates(np.tile(prior, (len(sets), 1)), done)
        yield "lab", Estimates(share, done)
        if rivals:
            yield from rival_estimates(sets, rivals, labels)

    return estimate


def score_case(
    case: Case, kinds: Mapping[str, Communities], estimate: Estimate
) -> Iterator[dict[str, Any]]:
    """Apply every estimator to every kind of communities and yield mean results.

    Rows have the columns of ``community_results`` from ``communities`` on: mean figures
    of one estimator on communities of one kind and size class.
    """
    for kind, sets in kinds.items():
        counts, labelled = true_counts(case, sets)
        size = counts.sum(axis=1)
        some = size >= MIN_UNLABELLED
        if not some.any():
            continue
        counts, size, inside = counts[some], size[some], labelled[some] > 0
        true = counts / size[:, None]
        found = {
            name: _figures(result, some, true, size)
            for name, result in estimate(sets, kind == DECLARED)
        }
        floor, no_bias = true + binomial_floor(counts), np.zeros(len(true))
        found[FLOOR] = errors_of(true, floor, size) | {"bias": no_bias}
        for name, figures in found.items():
            for low, high in SIZES:
                for has_labels in (False, True):
                    rows = (size >= low) & (size < high) & (inside == has_labels)
                    if rows.any():
                        yield {
                            "communities": kind,
                            "estimator": name,
                            "sizes": f"{low}-{high if high < 2**62 else ''}",
                            "labelled": has_labels,
                            "sets": int(np.count_nonzero(rows)),
                            **{k: float(v[rows].mean()) for k, v in figures.items()},
                        }


def true_counts(case: Case, sets: Communities) -> tuple[Floats, Ints]:
    """Unlabelled members by class, shape (S, C), and labelled members, shape (S,)."""
    n_classes = len(case.nodes.classes)
    free = np.where(case.nodes.labels < 0, case.truth, -1)
    counts = sets.class_counts(free, n_classes).astype(np.float64)
    return counts, sets.class_counts(case.nodes.labels, n_classes).sum(axis=1)


def binomial_floor(counts: Floats) -> Floats:
    """Expected error of someone who knows each community's probabilities of a class.

    This is the mean absolute deviation of a binomial share (de Moivre), by class.

    Parameters
    ----------
    counts
        Members by class, shape (S, C); their shares are the probabilities.

    Examples
    --------
    >>> binomial_floor(np.array([[1.0, 1.0], [0.0, 4.0]])).tolist()
    [[0.25, 0.25], [0.0, 0.0]]
    """
    size = counts.sum(axis=1, keepdims=True)
    share = counts / size
    above = binom.pmf(counts + 1, size, share)
    return np.asarray(2 * (counts + 1) * (1 - share) * above / size)


def _figures(
    result: Estimates,
    scored: Bools,
    true: Floats,
    size: Floats,
) -> dict[str, Floats]:
    """Errors of each scored community; coverage and width if there are intervals."""
    estimate = result.prevalence[scored]
    figures = errors_of(true, estimate, size)
    figures["bias"] = estimate[:, -1] - true[:, -1]
    if result.lower is not None and result.upper is not None:
        lower, upper = result.lower[scored], result.upper[scored]
        covered = (true >= lower - 1e-9) & (true <= upper + 1e-9)
        figures["coverage"] = covered.mean(axis=1)
        figures["width"] = (upper - lower).mean(axis=1)
    return figures
