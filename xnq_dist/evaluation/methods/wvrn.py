"""wvRN, the weighted-vote relational neighbour classifier.

References
----------
S. A. Macskassy, F. Provost, "A simple relational classifier", Workshop on
Multi-Relational Data Mining (MRDM), 2003.
L. Tang, H. Gao, H. Liu, "Network quantification despite biased labels", Workshop on
Mining and Learning with Graphs (MLG), 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.store import Attempt, Manifest, Stage
from xnq_dist.evaluation.methods.spread import NodeFiles, node_files, one_hot
from xnq_dist.evaluation.methods.votes import class_counts
from xnq_dist.reservoir.propagation import load_values, propagate

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Vote", "wvrn"]

Array = NDArray[np.float32]
Vote = Literal["soft", "hard"]


def wvrn(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    labels: NDArray[np.int32],
    n_classes: int,
    rounds: Sequence[int],
    vote: Vote = "soft",
) -> Callable[[int], Array]:
    """Compute rounds of weighted votes of the in-neighbours, for all nodes at once.

    ``P(y_v = c) = 1/Z sum over in-neighbours u of w_uv P(y_u = c)``, where Z normalises
    the distribution. Labelled nodes keep their label. Other nodes start with the class
    proportions of the labels and keep them if they have no in-neighbours of positive
    weight. A self-loop counts as any edge.

    With ``hard``, a neighbour votes only for its most probable class; ties go to the
    lowest code (the paper's equation). The result is then the share of votes of each
    class. In the first round, all unlabelled nodes vote for the most frequent class.

    Parameters
    ----------
    labels
        As in `votes`.
    rounds
        Rounds whose results are kept, each at least 1.
    vote
        ``soft`` is the definition, ``hard`` the variant of the paper.

    Returns
    -------
    A function that returns the probabilities after one of the rounds, shape (K, N, C).
    """
    counts = class_counts(labels, n_classes)
    prior = (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
    with node_files(graph, manifest, attempt, "wvrn-labels", labels=labels) as files:
        kept = propagate(
            client,
            graph,
            manifest,
            InitialValues(files, tuple(map(tuple, prior.tolist()))),
            Tally(files, n_classes),
            max(rounds),
            attempt,
            "wvrn",
            set(rounds),
            MostProbable(n_classes) if vote == "hard" else None,
        )
    where = Stage(attempt.folder, "wvrn")

    def load(turn: int) -> Array:
        values = load_values(where, kept[turn], graph, manifest)
        blocks = values.reshape(len(values), len(labels), n_classes)
        return blocks.transpose(1, 0, 2)

    return load


@dataclass(frozen=True)
class InitialValues:
    """Labels of labelled nodes, and the prior for others."""

    files: NodeFiles
    prior: tuple[tuple[float, ...], ...]
    """Class proportions of the labels, shape (K, C)."""

    def __call__(self, number: int) -> Array:
        """Values of a partition's nodes, shape (n_owned, K * C)."""
        labels = self.files.load(number)["labels"]
        prior = np.array(self.prior, np.float32)
        known = labels[..., None] >= 0
        values = np.where(known, one_hot(labels, prior.shape[1]), prior)
        return values.reshape(len(labels), prior.size)


@dataclass(frozen=True)
class Tally:
    """One round: shares of votes; nodes with a label or without votes do not change."""

    files: NodeFiles
    n_classes: int

    def __call__(self, number: int, _turn: int, values: Array, sums: Array) -> Array:
        """New values of a partition's nodes, shape (n_owned, K * C)."""
        labels = self.files.load(number)["labels"]
        votes = sums.reshape(len(sums), -1, self.n_classes)
        total = votes[..., 0].copy()
        for code in range(1, self.n_classes):  # in a fixed order, for the same bits
            total += votes[..., code]
        changes = (labels < 0) & (total > 0)
        shares = votes / np.where(changes, total, 1)[..., None]
        before = values.reshape(votes.shape)
        return np.where(changes[..., None], shares, before).reshape(values.shape)


@dataclass(frozen=True)
class MostProbable:
    """One-hot votes for the most probable class; ties go to the lowest code."""

    n_classes: int

    def __call__(self, values: Array) -> Array:
        """Votes of the same shape, with one 1 in each block of C columns."""
        blocks = values.reshape(len(values), -1, self.n_classes)
        winners = np.argmax(blocks, axis=2).astype(np.int32)
        return one_hot(winners, self.n_classes).reshape(values.shape)
