"""Quantifiers on communities of a real graph, with the labels drawn in several ways.

The literature draws samples so that only the proportions of classes shift. Here the
sets are a graph's own, whose features and links shift along, beside such samples from
the same posteriors. The truth is that of the unlabelled members; trivial estimators
always stand beside, and nothing is chosen by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.evaluation.measures import absolute_error, relative_absolute_error
from xnq_dist.evaluation.regions import joined
from xnq_dist.evaluation.scoring import BINARY
from xnq_dist.quantify.adjusted import rates
from xnq_dist.quantify.auto import Auto
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.fit_check import FitCheck
from xnq_dist.quantify.importance import NAMES as WEIGHTED
from xnq_dist.quantify.importance import Sis, walk_matrix
from xnq_dist.quantify.interface import (
    QUANTIFIERS,
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)
from xnq_dist.quantify.learning import Learnt
from xnq_dist.quantify.neighbourhood import neighbour_statistics
from xnq_dist.quantify.sld import guarded_prior

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "ESTIMATORS",
    "LEAST_UNLABELLED",
    "SIZES",
    "SPREADS",
    "TRIVIAL",
    "Case",
    "Row",
    "draw_labels",
    "draw_samples_by_class",
    "half_of",
    "score_case",
]

PURPOSE = 512
"""Key of the random streams that draw labels and samples."""
SPREADS = ("all", "half")
"""Labels in all communities, or in half of the graph's own communities only."""
LEAST_UNLABELLED = 20
"""Unlabelled members of a set that is scored."""
SIZES = ((20, 50), (50, 100), (100, 500), (500, 2**62))
"""Classes of size, by unlabelled members."""
SAMPLE = 500
AMONG = 25
"""Labelled nodes among the members of an ``app+labels`` sample."""
REPEATS = 5
"""Samples a prevalence."""
PREVALENCES = 21
ESTIMATORS = (*QUANTIFIERS, *WEIGHTED)
"""Every quantifier, and those that only an evaluation has: they need all edges."""
MOST_RESAMPLES = 100
"""Of a community, for its interval: enough for its variance, where many are scored."""
TRIVIAL = ("prior", "lab", "lab_pcc5", "lab_pcc20", "lab_pcc80", "map20", "map100")
"""The training prior; the labelled members' share (one pseudo-node at the prior), and
that held back by so many pseudo-nodes at the mean posterior; SLD held back by so many
pseudo-nodes at the prior."""


@dataclass(frozen=True)
class Row:
    """One figure."""

    family: str
    estimator: str
    sizes: str
    """``all``, or least and most unlabelled members."""
    metric: str
    """ae, rae, bias, coverage or width."""
    value: float
    sets: int


@dataclass(frozen=True, eq=False)
class Case:
    """Posteriors from some of the labels, and the truth."""

    truth: NDArray[np.int32]
    """Class codes, -1 where unknown, shape (N,)."""
    nodes: NodeTable
    """With the labels shown only."""
    reference: Reference

    @classmethod
    def of(
        cls,
        truth: NDArray[np.int32],
        shown: NDArray[np.int32],
        posteriors: NDArray[np.float64],
        classes: tuple[str, ...],
    ) -> Case:
        """From the labels shown, and posteriors that are out of fold for them."""
        known = shown >= 0
        rows = posteriors.astype(np.float32)
        labels = shown[known]
        nodes = NodeTable(rows, shown, known, classes)
        reference = Reference(
            np.bincount(labels, minlength=len(classes)) / len(labels),
            rates(rows[known], labels, hard=True),
            rates(rows[known], labels, hard=False),
            rows[known],
            labels,
            rows=np.flatnonzero(known),
        )
        fit = FitCheck.of(reference, nodes)
        return cls(truth, nodes, replace(reference, fit=fit))

    def with_neighbours(self, adjacency: csr_array[Any]) -> Case:
        """With what is known of every node's neighbours.

        Parameters
        ----------
        adjacency
            In-neighbours, shape (N, N).
        """
        found = neighbour_statistics(adjacency, self.nodes)
        rows = np.flatnonzero(self.nodes.labels >= 0)
        return Case(
            self.truth,
            replace(self.nodes, neighbours=found),
            replace(self.reference, neighbours=found.of(rows)),
        )


def draw_labels(
    truth: NDArray[np.int32],
    n_classes: int,
    share: float,
    allowed: NDArray[np.bool_],
    seed: int,
) -> NDArray[np.int32]:
    """Labels that are shown: a share of the labelled nodes, at least two a class.

    Parameters
    ----------
    truth
        Class codes, -1 where unknown, shape (N,).
    share
        Of the labelled nodes that may be shown.
    allowed
        Nodes that may be shown, shape (N,).
    """
    key = np.random.SeedSequence(seed, spawn_key=(PURPOSE, round(share * 1e6)))
    random = np.random.Generator(np.random.Philox(key))
    order = random.permutation(np.flatnonzero((truth >= 0) & allowed))
    chosen = np.zeros(len(order), np.bool_)
    chosen[: round(share * len(order))] = True
    for code in range(n_classes):
        chosen[np.flatnonzero(truth[order] == code)[:2]] = True
    shown = np.full(len(truth), -1, np.int32)
    shown[order[chosen]] = truth[order[chosen]]
    return shown


def half_of(communities: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """Nodes of whole communities, half of all nodes or a little more, shape (N,)."""
    key = np.random.SeedSequence(seed, spawn_key=(PURPOSE, 1))
    random = np.random.Generator(np.random.Philox(key))
    sizes = np.bincount(communities)
    order = random.permutation(len(sizes))
    before = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    chosen = np.zeros(len(sizes), np.bool_)
    chosen[order[before < len(communities) / 2]] = True
    return np.asarray(chosen[communities])


def draw_samples_by_class(case: Case, among: int, seed: int) -> Communities:
    """Samples of unlabelled nodes by class, with so many labelled ones among them.

    Two classes: `REPEATS` samples for each of 21 prevalences; more: as many, uniform on
    the simplex. A node is in a sample once.
    """
    n_classes = len(case.nodes.classes)
    key = np.random.SeedSequence(seed, spawn_key=(PURPOSE, 2, among))
    random = np.random.Generator(np.random.Philox(key))
    free, known = case.nodes.labels < 0, case.nodes.labels >= 0
    sets = []
    for k in range(PREVALENCES * REPEATS):
        if n_classes == 2:
            positive = (k % PREVALENCES) / (PREVALENCES - 1)
            shares = np.array([1 - positive, positive])
        else:
            shares = random.dirichlet(np.ones(n_classes))
        members = []
        for size, pool in ((SAMPLE, free), (among, known)):
            for code, count in enumerate(random.multinomial(size, shares).tolist()):
                nodes = np.flatnonzero(pool & (case.truth == code))
                if len(nodes):
                    members.append(random.choice(nodes, count))
        sets.append(np.unique(np.concatenate(members)))
    return joined(sets)


def score_case(
    case: Case,
    families: Mapping[str, Communities],
    adjacency: csr_array[Any],
    own: NDArray[np.int64],
    settings: Settings,
    quantifiers: Sequence[str] | None,
    without_labels: bool,
) -> Iterator[Row]:
    """Every estimator on every family of communities.

    Parameters
    ----------
    families
        Sets by the name of their family.
    adjacency
        In-neighbours, rows sorted, shape (N, N).
    own
        The graph's own communities, shape (N,), for `auto` to learn from.
    quantifiers
        Names of `ESTIMATORS`; None: all that are defined.
    without_labels
        Only sets without a labelled member are scored; `auto` still learns from all.
    """
    n_classes = len(case.nodes.classes)
    names = [
        name
        for name in quantifiers or ESTIMATORS
        if n_classes == 2 or name not in BINARY
    ]
    estimators = dict(_estimators(names, adjacency, settings))
    case = case.with_neighbours(adjacency)
    intervals = settings.intervals
    fewer = intervals.model_copy(
        update={"resamples": min(intervals.resamples, MOST_RESAMPLES)}
    )
    settings = settings.model_copy(update={"intervals": fewer})
    bootstraps = {
        name: Bootstrap.of(name, settings, case.reference, case.nodes.classes)
        for name in names
        if name in QUANTIFIERS
    }
    learnt = Learnt.of(case.nodes, case.reference, own)
    drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
    sampled = QUANTIFIERS["auto"](settings.model_copy(update={"memberships": drawn}))
    for family, sets in families.items():
        counts, labelled = _truth(case, sets)
        sizes = counts.sum(axis=1)
        scored = sizes >= LEAST_UNLABELLED
        if without_labels:
            scored &= labelled.sum(axis=1) == 0
        if not scored.any():
            continue
        true = counts[scored] / sizes[scored, None]
        found: dict[str, Estimates | NDArray[np.float64]] = {}
        for name, estimator in estimators.items():
            if isinstance(estimator, Auto):
                # Samples are drawn by class, as a user would declare.
                by_class = family in ("app", "app+labels")
                estimator = sampled if by_class else replace(estimator, learnt=learnt)
            answer = estimator.estimate(sets, case.nodes, case.reference, "exclude")
            bootstrap = bootstraps.get(name)
            if bootstrap is not None:
                answer = bootstrap.with_ends(sets, case.nodes, case.reference, answer)
            found[name] = answer
        found |= _trivial(case, sets, labelled)
        for name, one in found.items():
            yield from _rows(family, name, one, true, sizes[scored], scored)


def _estimators(
    names: Sequence[str], adjacency: csr_array[Any], settings: Settings
) -> Iterator[tuple[str, Quantifier]]:
    """Quantifiers by name, before `auto` has learnt anything."""
    walks = None
    for name in names:
        if name in QUANTIFIERS:
            yield name, QUANTIFIERS[name](settings)
            continue
        if walks is None:
            walks = walk_matrix(adjacency)
        yield name, Sis(name, walks)


def _truth(
    case: Case, sets: Communities
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Classes of the unlabelled and of the labelled members, shape (S, C) each."""
    n_classes = len(case.nodes.classes)
    community = np.repeat(np.arange(len(sets)), np.diff(sets.offsets))
    truth = case.truth[sets.members]
    shown = case.nodes.labels[sets.members] >= 0

    def count(some: NDArray[np.bool_]) -> NDArray[np.float64]:
        cells = community[some] * n_classes + truth[some]
        found = np.bincount(cells, minlength=len(sets) * n_classes)
        return found.reshape(len(sets), n_classes).astype(np.float64)

    return count((truth >= 0) & ~shown), count(shown)


def _trivial(
    case: Case, sets: Communities, labelled: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    prior = case.reference.prior
    pcc = QUANTIFIERS["pcc"](Settings())
    mean = pcc.estimate(sets, case.nodes, case.reference, "exclude").prevalence
    number = labelled.sum(axis=1, keepdims=True)
    found = {
        "prior": np.tile(prior, (len(sets), 1)),
        "lab": (labelled + prior) / (number + 1),
    }
    for pseudo in (5, 20, 80):
        found[f"lab_pcc{pseudo}"] = (labelled + pseudo * mean) / (number + pseudo)
    for pseudo in (20, 100):
        found[f"map{pseudo}"] = _held_back(case, sets, pseudo)
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


def _rows(
    family: str,
    name: str,
    answer: Estimates | NDArray[np.float64],
    true: NDArray[np.float64],
    sizes: NDArray[np.float64],
    scored: NDArray[np.bool_],
) -> Iterator[Row]:
    estimate = answer.prevalence if isinstance(answer, Estimates) else answer
    estimate = estimate[scored]
    values = {
        "ae": absolute_error(true, estimate),
        "rae": relative_absolute_error(true, estimate, sizes.astype(np.int64)),
        "bias": estimate[:, -1] - true[:, -1],
    }
    ends = (answer.lower, answer.upper) if isinstance(answer, Estimates) else ()
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
        lower, upper = ends[0][scored], ends[1][scored]
        held = (true >= lower - 1e-9) & (true <= upper + 1e-9)
        values["coverage"] = held.mean(axis=1)
        values["width"] = (upper - lower).mean(axis=1)
    groups = {"all": np.ones(len(sizes), np.bool_)}
    for low, high in SIZES:
        title = f"{low}-{high}" if high < 2**62 else f"{low}-"
        groups[title] = (sizes >= low) & (sizes < high)
    for title, some in groups.items():
        if some.any():
            for metric, each in values.items():
                yield Row(
                    family,
                    name,
                    title,
                    metric,
                    float(each[some].mean()),
                    int(np.count_nonzero(some)),
                )
