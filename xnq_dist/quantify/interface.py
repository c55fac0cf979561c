"""Interface of the quantifiers: their inputs, their estimates, the final prevalence.

A quantifier estimates the classes of the *unlabelled* members of communities. Known
labels are counted, never estimated: `combine` adds both up, the same way for every
quantifier.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import (
    Bools,
    Floats,
    Floats32,
    Ints,
    Ints32,
    offsets_of,
    slices,
)
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.core.settings import Settings

__all__ = [
    "Communities",
    "Estimates",
    "NodeTable",
    "Prevalence",
    "Quantifier",
    "Reference",
    "combine",
    "make_quantifier",
]

Labelled = Literal["count", "exclude"]
T = TypeVar("T")

EMPTY = "no member is in the graph: nothing to estimate"
ALL_LABELLED = "every member is labelled: counted exactly"
NONE_UNLABELLED = "every member is labelled: no unlabelled member to estimate"
STUCK = "the estimate did not converge: compare quantifier=auto"
UNSEEN = (
    "no labelled member: the interval is wide because communities may differ by "
    "class; label some members"
)
"""Notes on a community."""

BLOCK = 1 << 20
"""Nodes summed at a time."""
MAX_SETS = 1 << 17
"""Maximum number of communities of a part of a batch."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Labelled nodes that quantifiers learn from."""

    posteriors: Floats32
    """Posteriors of the labelled nodes for which they were computed without the node's
    label, shape (m, C)."""
    labels: Ints32
    """Their class codes, shape (m,)."""
    rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Canonical indexes of these labelled nodes, ascending, shape (m,)."""
    neighbours: Floats | None = None
    """As in `NodeTable`, of these nodes, shape (m, 2 C)."""
    weights: Floats | None = None
    """Inclusion weights of these nodes, shape (m,); None: all equal."""
    _learnt: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False
    )

    def learnt(self, by: Any, learn: Callable[[], T]) -> T:
        """Return the result of `learn`, computed once for all batches.

        `by` is the key of the result: the quantifier with its settings, hashable.
        """
        with self._lock:
            if by not in self._learnt:
                self._learnt[by] = learn()
            return cast(T, self._learnt[by])


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Posteriors and labels of all nodes, in canonical order."""

    posteriors: Floats32
    """Calibrated posteriors, finite, shape (N, C)."""
    labels: Ints32
    """Class code, -1 when unlabelled, shape (N,)."""
    out_of_fold: Bools
    """The node is labelled and its posterior was computed without its label, (N,)."""
    classes: tuple[str, ...]
    """Names of the C classes, in the order of the codes."""
    prior: Floats
    """Class proportions that the posteriors are calibrated to, shape (C,)."""
    reference: Reference
    """The labelled nodes that quantifiers learn from."""
    neighbours: Floats | None = None
    """Weighted sums of the in-neighbours' posteriors and, in the last C columns, of
    their votes for the largest posterior, (N, 2 C); set for quantifiers that need it.
    """

    def of(self, rows: NDArray[np.integer]) -> NodeTable:
        """Return the table of the nodes in `rows`, with the same reference."""
        neighbours = self.neighbours
        return replace(
            self,
            posteriors=self.posteriors[rows],
            labels=self.labels[rows],
            out_of_fold=self.out_of_fold[rows],
            neighbours=None if neighbours is None else neighbours[rows],
        )

    def with_neighbours(self, sums: Floats) -> NodeTable:
        """Return the table of all nodes with their `neighbours`, (N, 2 C)."""
        reference = replace(self.reference, neighbours=sums[self.reference.rows])
        return replace(self, neighbours=sums, reference=reference)

    @property
    def class_codes(self) -> list[int]:
        """Codes of the K classes taken against the rest: of two, the second alone."""
        count = self.posteriors.shape[1]
        return [1] if count == 2 else list(range(count))

    @cached_property
    def unlabelled(self) -> Bools:
        """Nodes without a label, shape (N,); cached, one byte a node."""
        return self.labels < 0

    @cached_property
    def mean_posterior(self) -> Floats:
        """Mean posterior of all unlabelled nodes, shape (C,); NaN if there are none."""
        total = np.zeros(self.posteriors.shape[1])
        for block in slices(len(self.labels), BLOCK):
            rows = self.posteriors[block][self.unlabelled[block]].astype(np.float64)
            total += rows.sum(axis=0)
        mass = total.sum()
        return total / mass if mass > 0 else np.full(len(total), np.nan)


@dataclass(frozen=True, eq=False)
class Communities:
    """Sets of nodes, stored one after the other; they may overlap."""

    offsets: Ints
    """Community s has ``members[offsets[s] : offsets[s + 1]]``, shape (S + 1,)."""
    members: Ints
    """Canonical indexes, shape (M,). Those of a user's community are ascending and
    unique; a sample drawn with replacement holds a node once per draw, and quantifiers
    count it once per draw."""

    @classmethod
    def of(cls, sets: Sequence[Ints]) -> Communities:
        """Construct from the members of each community."""
        offsets = offsets_of([len(members) for members in sets])
        return cls(offsets, np.concatenate([np.empty(0, np.int64), *sets]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """Number of members of each community, shape (S,)."""
        return np.diff(self.offsets)

    @property
    def community(self) -> Ints:
        """Community of each member, shape (M,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def only(self, kept: Bools) -> Communities:
        """The communities without the nodes where `kept`, shape (N,), is false."""
        inside = kept[self.members]
        if inside.all():
            return self
        places = np.flatnonzero(inside)
        offsets = np.searchsorted(places, self.offsets)
        return Communities(offsets, self.members[places])

    def class_counts(self, labels: Ints32, n_classes: int) -> Ints:
        """Members by class, those with a label below 0 left out, shape (S, C)."""
        codes = labels[self.members]
        cells = (self.community * n_classes + codes)[codes >= 0]
        counts = np.bincount(cells, minlength=len(self) * n_classes)
        return counts.reshape(len(self), n_classes)

    def parts(self, memberships: int) -> Iterator[tuple[int, Communities]]:
        """Divide complete communities, in order; yield the first one's number, too.

        A part ends once it has `memberships` memberships or `MAX_SETS` communities,
        so only its last community can exceed the limit.
        """
        begin = 0
        while begin < len(self):
            limit = self.offsets[begin] + memberships
            end = int(np.searchsorted(self.offsets, limit, side="left"))
            end = min(max(end, begin + 1), begin + MAX_SETS, len(self))
            ends = self.offsets[begin : end + 1]
            members = self.members[ends[0] : ends[-1]]
            yield begin, Communities(ends - ends[0], members)
            begin = end


@dataclass(frozen=True, eq=False)
class Estimates:
    """A quantifier's estimates for the unlabelled members of S communities."""

    prevalence: Floats
    """Rows on the simplex, shape (S, C); NaN where no member is unlabelled."""
    converged: Bools
    """Whether the stopping rule was met, shape (S,)."""
    lower: Floats | None = None
    """Lower ends of the intervals of the classes' actual shares among the unlabelled
    members, shape (S, C); None: the quantifier has no intervals."""
    upper: Floats | None = None
    """Upper ends."""
    sd: Floats | None = None
    """Standard errors, shape (S, C); None: those that the intervals imply."""
    unseen: Bools | None = None
    """Communities whose interval is wide for want of labelled members, shape (S,);
    None: there are none."""


@dataclass(frozen=True, eq=False)
class Prevalence:
    """Final estimates for S communities."""

    n_nodes: Ints
    """Members, shape (S,)."""
    n_labelled: Ints
    """Members with a known label, shape (S,)."""
    n_estimated: Ints
    """Members whose class is estimated, shape (S,)."""
    prevalence: Floats
    """Shape (S, C); NaN rows where there is nothing to estimate."""
    converged: Bools
    """Shape (S,)."""
    notes: NDArray[np.str_]
    """A note on each community, "" for none, shape (S,)."""
    lower: Floats
    """Lower ends of the intervals, shape (S, C); NaN where there is none."""
    upper: Floats
    """Upper ends."""
    sd: Floats
    """Standard errors, shape (S, C); NaN where the quantifier has none."""


class Quantifier(ABC):
    """An estimator of class prevalence."""

    name: str
    """The name in the settings and in the column ``method``."""

    gives_intervals = False
    """Whether the estimates have intervals."""

    trusts_posteriors = False
    """Whether posteriors are assumed to be calibrated in every community: intervals
    then do not shift them to other class proportions."""

    adjusts_posteriors = False
    """Whether estimates are adjusted by the posteriors of labelled nodes: intervals
    then do not recalibrate the posteriors."""

    @abstractmethod
    def estimate(self, batch: Communities, nodes: NodeTable) -> Estimates:
        """Prevalence among the unlabelled members of every community.

        The estimate of a community must not depend on the other communities of the
        batch, nor on their number: batches differ from run to run.

        Raises
        ------
        InputError
            When the reference lacks the labelled nodes that the quantifier learns from.
        """


def make_quantifier(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier `name` with its settings.

    Raises
    ------
    ValueError
        When no quantifier has that name.
    """
    made: Quantifier = QUANTIFIERS.module_of(name).make(name, settings)
    return made


def combine(
    batch: Communities, nodes: NodeTable, estimates: Estimates, labelled: Labelled
) -> Prevalence:
    """Add the known labels, counted exactly, to the estimates of the other members.

    With ``count``, the prevalence of class c is ``(labels of c + n_estimated q_c) / n``
    over all n members; with ``exclude`` it is q, of the unlabelled members alone. The
    ends of an interval are computed the same way, so the interval of a community
    without unlabelled members has width 0.
    """
    sizes = batch.sizes
    counts = batch.class_counts(nodes.labels, nodes.posteriors.shape[1])
    n_labelled = counts.sum(axis=1)
    n_estimated = sizes - n_labelled
    usable = n_estimated > 0

    def of_all(estimated: Floats | None, known: NDArray[Any] = counts) -> Floats:
        if estimated is None:
            return np.full(counts.shape, np.nan)
        if labelled == "exclude":
            return np.where(usable[:, None], estimated, np.nan)
        expected = n_estimated[:, None] * np.where(usable[:, None], estimated, 0.0)
        return np.asarray(
            (known + expected) / np.where(sizes > 0, sizes, np.nan)[:, None]
        )

    all_labelled = NONE_UNLABELLED if labelled == "exclude" else ALL_LABELLED
    converged = estimates.converged | ~usable
    notes = np.where(usable, np.where(converged, "", STUCK), all_labelled)
    notes[sizes == 0] = EMPTY
    if estimates.unseen is not None:
        notes = np.where(estimates.unseen, UNSEEN, notes)
    return Prevalence(
        n_nodes=sizes,
        n_labelled=n_labelled,
        n_estimated=n_estimated,
        prevalence=of_all(estimates.prevalence),
        converged=converged,
        notes=notes,
        lower=of_all(estimates.lower),
        upper=of_all(estimates.upper),
        sd=of_all(estimates.sd, np.zeros_like(counts)),
    )
