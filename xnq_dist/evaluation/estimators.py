"""The estimators of an evaluation on communities, by name.

Trivial estimators and rivals are always included, as baselines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.quantifiers import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.rivals import rival_estimates
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.classic.neighbour_counts import neighbour_sums
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.pooling import fit_weights, label_evidence
from xnq_dist.quantify.default.surroundings import learn_in_process
from xnq_dist.quantify.interface import Communities, Estimates
from xnq_dist.quantify.registry import make_quantifier

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["TRIVIAL", "Estimators"]

TRIVIAL = ("prior", "lab")
"""The training prior; the share among labelled members (shrunk to the prior with one
pseudo-node)."""


class Estimators:
    """All estimators of one case."""

    def __init__(
        self,
        case: Case,
        adjacency: csr_array[Any],
        groups: tuple[NDArray[np.int64], ...],
        settings: Settings,
        names: Sequence[str] | None,
        rivals: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> None:
        """Prepare everything that does not depend on the communities.

        Parameters
        ----------
        adjacency
            In-neighbours, rows sorted, shape (N, N).
        groups
            Leiden community of every node at each resolution, the coarse one first, for
            `auto` to learn from, shape (N,) each.
        settings
            Settings with the seed of the posteriors' folds; `labels.drawn` is taken
            from the case.
        names
            Names of quantifiers; None: all that are defined for the number of classes.
        rivals
            Log-probabilities of `rival_estimates`; None: no rivals.
        """
        n_classes = len(case.nodes.classes)
        self._settings = settings
        self._case, self._rivals = case, rivals
        neighbours = neighbour_sums(adjacency, case.compared.posteriors)
        labelled = case.nodes.labels >= 0
        self._nodes = replace(case.compared, neighbours=neighbours)
        self._reference = replace(case.reference, neighbours=neighbours[labelled])
        declared = settings.labels.model_copy(update={"drawn": case.drawn})
        self._learnt, _ = learn_in_process(
            case.nodes,
            case.compared,
            case.reference,
            adjacency,
            tuple(group.astype(np.int32) for group in groups),
            settings.model_copy(update={"labels": declared}),
            case.held,
        )
        drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
        self._drawn = make_quantifier(
            "auto", settings.model_copy(update={"memberships": drawn})
        )
        self._quantifiers = {
            name: make_quantifier(name, settings)
            for name in names or QUANTIFIERS
            if QUANTIFIERS[name].defined_for(n_classes)
        }
        self._bootstraps = {
            name: Bootstrap.of(quantifier, settings, self._reference)
            for name, quantifier in self._quantifiers.items()
        }

    def estimates(
        self, sets: Communities, by_class: bool = False
    ) -> Iterator[tuple[str, Estimates]]:
        """Yield every estimator's name and estimates for the unlabelled members.

        With `by_class`, memberships.drawn=by_class is declared to `auto`.
        """
        case = self._case
        for name, quantifier in self._quantifiers.items():
            nodes, reference = self._nodes, self._reference
            if isinstance(quantifier, Auto):
                # It does without the statistics of neighbours.
                nodes, reference = case.nodes, case.reference
                quantifier = self._drawn if by_class else self._auto(quantifier, sets)
            result = quantifier.estimate(sets, nodes, reference)
            bootstrap = self._bootstraps[name]
            if bootstrap is not None:
                result = bootstrap.with_ends(sets, nodes, reference, result)
            yield name, result
        done, prior = np.ones(len(sets), np.bool_), case.reference.prior
        labelled = sets.class_counts(case.nodes.labels, len(prior))
        share = (labelled + prior) / (labelled.sum(axis=1, keepdims=True) + 1)
        yield "prior", Estimates(np.tile(prior, (len(sets), 1)), done)
        yield "lab", Estimates(share, done)
        if self._rivals:
            yield from rival_estimates(sets, self._rivals, case.nodes.labels)

    def _auto(self, quantifier: Auto, sets: Communities) -> Auto:
        """`auto` with what it learns from the graph and from a table of these sets."""
        parts, case = None, self._case
        if self._settings.auto.pooled:
            parts = fit_weights(label_evidence(sets, case.nodes, case.reference))
        return replace(quantifier, learnt=self._learnt, parts=parts)
