"""wvRN, the weighted-vote relational neighbour: labels spread over the graph.

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
    """Rounds of weighted votes of the in-neighbours, all nodes at the same time.

    ``P(y_v = c) = 1/Z sum over in-neighbours u of w_uv P(y_u = c)``, Z making it a
    distribution. Labelled nodes stay at their label; the others start at the class
    proportions of the labels, and those without in-neighbours, or with edges of weight
    0 alone, stay there. A self-loop counts like any edge.

    With ``hard`` a neighbour votes for its most probable class alone, of equals the
    one of the lowest code (the paper's equation); the answer is the share of the vote
    that each class has, whose largest entry is the node's class. The first votes of
    unlabelled nodes are then all for the most frequent class.

    Parameters
    ----------
    labels
        As in `votes`.
    rounds
        Rounds to keep, each at least 1.
    vote
        ``soft`` is the definition, ``hard`` the variant of the paper.

    Returns
    -------
    A function of one of the rounds: probabilities after it, shape (K, N, C).
    """
    counts = class_counts(labels, n_classes)
    prior = (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
    with node_files(graph, manifest, attempt, "wvrn-labels", labels=labels) as files:
        kept = propagate(
            client,
            graph,
            manifest,
            FirstGuess(files, tuple(map(tuple, prior.tolist()))),
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
class FirstGuess:
    """Labels where known, else the prior."""

    files: NodeFiles
    prior: tuple[tuple[float, ...], ...]
    """Shape (K, C)."""

    def __call__(self, number: int) -> Array:
        """Shape (n_owned, K * C)."""
        labels = self.files.load(number)["labels"]
        prior = np.array(self.prior, np.float32)
        known = labels[..., None] >= 0
        values = np.where(known, one_hot(labels, prior.shape[1]), prior)
        return values.reshape(len(labels), prior.size)


@dataclass(frozen=True)
class Tally:
    """One round: shares of the votes, labelled nodes and those without votes as is."""

    files: NodeFiles
    n_classes: int

    def __call__(self, number: int, _turn: int, values: Array, sums: Array) -> Array:
        """Shape (n_owned, K * C)."""
        labels = self.files.load(number)["labels"]
        votes = sums.reshape(len(sums), -1, self.n_classes)
        total = votes[..., 0].copy()
        for code in range(1, self.n_classes):  # in one fixed order
            total += votes[..., code]
        moves = (labels < 0) & (total > 0)
        shares = votes / np.where(moves, total, 1)[..., None]
        before = values.reshape(votes.shape)
        return np.where(moves[..., None], shares, before).reshape(values.shape)


@dataclass(frozen=True)
class MostProbable:
    """A node's whole vote to its most probable class, of equals the lowest code."""

    n_classes: int

    def __call__(self, values: Array) -> Array:
        """Same shape, one 1 in each block of C columns."""
        blocks = values.reshape(len(values), -1, self.n_classes)
        winners = np.argmax(blocks, axis=2).astype(np.int32)
        return one_hot(winners, self.n_classes).reshape(values.shape)
