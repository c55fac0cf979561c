"""Every estimator that an evaluation on communities scores, by its name.

Here, and nowhere else in the evaluation, an estimator's name becomes its answer. The
trivial ones are always there: what cannot beat them is of no use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.core.quantifiers import records
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.importance import NAMES as WEIGHTED
from xnq_dist.evaluation.importance import Sis, walk_matrix
from xnq_dist.evaluation.regions import class_counts_in
from xnq_dist.quantify.classic.sld import guarded_prior
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.surroundings import learn_in_process
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    Quantifier,
)
from xnq_dist.quantify.intervals.bootstrap import Bootstrap
from xnq_dist.quantify.registry import make_quantifier

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["CANDIDATES", "TRIVIAL", "Estimators", "estimators"]

CANDIDATES = {
    "lab_pcc": ("lab_pcc5", "lab_pcc20", "lab_pcc80"),
    "map": ("map20", "map100"),
}
"""Trivial estimators that differ in a constant only."""
TRIVIAL = ("prior", "lab", *CANDIDATES["lab_pcc"], *CANDIDATES["map"])
"""The training prior; the labelled members' share (one pseudo-node at the prior), and
that held back by so many pseudo-nodes at the mean posterior; SLD held back by so many
pseudo-nodes at the prior."""

Answer = Estimates | NDArray[np.float64]
"""A quantifier's, or prevalences alone, shape (S, C)."""


def estimators() -> tuple[str, ...]:
    """Every quantifier, and those that only an evaluation has: they need all edges."""
    return (*records(), *WEIGHTED)


class Estimators:
    """All that is asked of one case."""

    def __init__(
        self,
        case: Case,
        adjacency: csr_array[Any],
        own: tuple[NDArray[np.int64], ...],
        settings: Settings,
        names: Sequence[str] | None,
        refitted: Case | None = None,
    ) -> None:
        """Make what serves all sets.

        Parameters
        ----------
        adjacency
            In-neighbours, rows sorted, shape (N, N).
        own
            The graph's own partitions, the coarse one first, for `auto` to learn from.
        settings
            With the seed of the posteriors' folds; `labels.drawn` is what the case
            declares.
        names
            Of `estimators`; None: all that are defined for so many classes.
        refitted
            The case of a model fitted to all labels shown, which `auto` answers from.
        """
        classes = case.nodes.classes
        defined = [
            name
            for name in names or estimators()
            if name not in records() or records()[name].defined_for(len(classes))
        ]
        self.settings = settings
        self.case = case.with_neighbours(adjacency)
        self._best = best = case if refitted is None else refitted
        declared = settings.labels.model_copy(update={"drawn": case.drawn})
        self._learnt, _ = learn_in_process(
            best.nodes,
            best.reference,
            adjacency,
            tuple(groups.astype(np.int32) for groups in own),
            settings.model_copy(update={"labels": declared}),
            best.held,
        )
        drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
        self._drawn = make_quantifier(
            "auto", settings.model_copy(update={"memberships": drawn})
        )
        self._quantifiers = dict(_quantifiers(defined, adjacency, settings))
        self._bootstraps = {
            name: Bootstrap.of(quantifier, settings, self.case.reference)
            for name, quantifier in self._quantifiers.items()
            if name in records()
        }

    def answers(
        self, sets: Communities, by_class: bool = False
    ) -> Iterator[tuple[str, Answer]]:
        """Every estimator's answer for the unlabelled members of some sets.

        With `by_class` they are samples drawn by class, as a user would declare.
        """
        for name, quantifier in self._quantifiers.items():
            case = self.case
            if isinstance(quantifier, Auto):
                case = self._best
                own = replace(quantifier, learnt=self._learnt)
                quantifier = self._drawn if by_class else own
            found = quantifier.estimate(sets, case.nodes, case.reference)
            bootstrap = self._bootstraps.get(name)
            if bootstrap is not None:
                found = bootstrap.with_ends(sets, case.nodes, case.reference, found)
            yield name, found
        yield from _trivial(self.case, sets).items()


def _quantifiers(
    names: Sequence[str], adjacency: csr_array[Any], settings: Settings
) -> Iterator[tuple[str, Quantifier]]:
    """Quantifiers by name, before `auto` has learnt anything."""
    walks = None
    for name in names:
        if name in records():
            yield name, make_quantifier(name, settings)
            continue
        if walks is None:
            walks = walk_matrix(adjacency)
        yield name, Sis(name, walks)


def _trivial(case: Case, sets: Communities) -> dict[str, NDArray[np.float64]]:
    prior, n_classes = case.reference.prior, len(case.nodes.classes)
    labelled = class_counts_in(sets, case.nodes.labels, n_classes).astype(np.float64)
    number = labelled.sum(axis=1, keepdims=True)
    pcc = make_quantifier("pcc", Settings())
    mean = pcc.estimate(sets, case.nodes, case.reference).prevalence
    found = {
        "prior": np.tile(prior, (len(sets), 1)),
        "lab": (labelled + prior) / (number + 1),
    }
    for name in CANDIDATES["lab_pcc"]:
        pseudo = int(name.removeprefix("lab_pcc"))
        found[name] = (labelled + pseudo * mean) / (number + pseudo)
    for name in CANDIDATES["map"]:
        found[name] = _held_back(case, sets, int(name.removeprefix("map")))
    return found


def _held_back(case: Case, sets: Communities, pseudo: float) -> NDArray[np.float64]:
    """SLD with so many pseudo-nodes at the prior, by 1,000 EM steps at most."""
    free = case.nodes.labels[sets.members] < 0
    community = np.repeat(np.arange(len(sets)), np.diff(sets.offsets))[free]
    prior = guarded_prior(case.reference.prior)
    ratios = case.nodes.posteriors[sets.members[free]].astype(np.float64) / prior
    size = np.bincount(community, minlength=len(sets))[:, None]
    q = np.tile(prior, (len(sets), 1))
    for _ in range(1000):
        joint = ratios * q[community]
        joint /= joint.sum(axis=1, keepdims=True)
        sums = np.stack(
            [np.bincount(community, column, minlength=len(sets)) for column in joint.T],
            axis=1,
        )
        before, q = q, (sums + pseudo * prior) / (size + pseudo)
        if np.abs(q - before).max() < 1e-5:
            break
    return q
