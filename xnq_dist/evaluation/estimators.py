"""The estimators of an evaluation on communities, by name.

Trivial estimators and rivals are always included, as baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.quantifiers import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.rivals import rival_estimates
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.classic.neighbour_counts import neighbour_sums
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.drawn import DrawnByClass
from xnq_dist.quantify.default.pooling import fit_weights, label_evidence
from xnq_dist.quantify.default.surroundings import learn_in_process
from xnq_dist.quantify.interface import Communities, Estimates
from xnq_dist.quantify.registry import make_quantifier

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["TRIVIAL", "Estimate", "estimators_of"]

TRIVIAL = ("prior", "lab")
"""The training prior; the share among labelled members (shrunk to the prior with one
pseudo-node)."""


Estimate = Callable[[Communities, bool], Iterator[tuple[str, Estimates]]]
"""Communities, whether memberships.drawn=by_class is declared to `auto` -> every
estimator's name and estimates for the unlabelled members."""


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
    quantifiers = [
        make_quantifier(name, settings)
        for name in names or QUANTIFIERS
        if QUANTIFIERS[name].defined_for(len(prior))
    ]
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
