"""wvRN, the weighted-vote relational neighbour: labels spread over the graph.

References
----------
S. A. Macskassy, F. Provost, "A simple relational classifier", Workshop on
Multi-Relational Data Mining (MRDM), 2003.
L. Tang, H. Gao, H. Liu, "Network quantification despite biased labels", Workshop on
Mining and Learning with Graphs (MLG), 2010.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.evaluation.methods.spread import NodeFiles, node_files, one_hot
from xnq_dist.evaluation.methods.votes import (
    check_labels,
    class_counts,
    class_proportions,
)
from xnq_dist.reservoir.propagation import load_values, propagate

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["KeptRounds", "Vote", "wvrn"]

Array = NDArray[np.float32]
Vote = Literal["soft", "hard"]


@dataclass(frozen=True)
class KeptRounds:
    """Class probabilities after the rounds asked for, in files."""

    where: Stage
    """Whose folder the files are in."""
    graph: Stage
    manifest: Manifest
    """The stage ``graph``."""
    files: Mapping[int, Sequence[FileRecord]]
    """Round -> its files in partition order."""
    n_variants: int
    n_classes: int

    def load(self, turn: int) -> Array:
        """Probabilities after one round, canonical order, shape (K, N, C)."""
        values = load_values(self.where, self.files[turn], self.graph, self.manifest)
        blocks = values.reshape(len(values), self.n_variants, self.n_classes)
        return blocks.transpose(1, 0, 2)


def wvrn(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    labels: NDArray[np.integer],
    n_classes: int,
    rounds: Sequence[int] = (1, 2, 3, 4, 5),
    vote: Vote = "soft",
    base: NDArray[np.floating] | None = None,
    stem: str = "wvrn",
) -> KeptRounds:
    """Rounds of weighted votes of the in-neighbours, all nodes at the same time.

    ``P(y_v = c) = 1/Z sum over in-neighbours u of w_uv P(y_u = c)``, Z making it a
    distribution. Labelled nodes stay at their label; the others start at the class
    proportions of the labels (or at `base`), and those without in-neighbours, or with
    edges of weight 0 alone, stay there. A self-loop counts like any edge.

    With ``hard`` a neighbour votes for its most probable class alone, of equals the
    one of the lowest code (the paper's equation); the answer is the share of the vote
    that each class has, whose largest entry is the node's class. Without `base` the
    first votes of unlabelled nodes are then all for the most frequent class.

    Parameters
    ----------
    client, graph, manifest
        Where to compute, and the stage ``graph``.
    attempt, stem
        Where the rounds are written.
    labels
        Training labels, K variants side by side, -1 hidden, shape (K, N).
    n_classes
        C.
    rounds
        Rounds to keep, each at least 1.
    vote
        ``soft`` is the definition, ``hard`` the variant of the paper.
    base
        Posteriors of a base classifier to start from, shape (K, N, C).

    Raises
    ------
    InputError
        For labels or base posteriors that cannot be.
    SettingsError
        For a vote or rounds that are not defined.
    """
    if vote not in ("soft", "hard"):
        raise SettingsError(f"wvRN has no vote {vote!r}: choose soft or hard")
    if not rounds or min(rounds) < 1:
        raise SettingsError(
            f"wvRN cannot keep the rounds {list(rounds)}: give at least one, each 1 "
            "or more"
        )
    labels = check_labels(labels, int(manifest.facts["n_nodes"]), n_classes)
    arrays: dict[str, NDArray[Any]] = {"labels": labels}
    if base is not None:
        arrays["base"] = _checked(base, (*labels.shape, n_classes))
    prior = class_proportions(class_counts(labels, n_classes)).astype(np.float32)
    publish = MostProbable(n_classes) if vote == "hard" else None
    with node_files(graph, manifest, attempt, f"{stem}-labels", **arrays) as files:
        kept = propagate(
            client,
            graph,
            manifest,
            FirstGuess(files, tuple(map(tuple, prior.tolist()))),
            Tally(files, n_classes),
            max(rounds),
            attempt,
            stem,
            set(rounds),
            publish,
        )
    where = Stage(attempt.folder, stem)
    return KeptRounds(where, graph, manifest, kept, len(labels), n_classes)


@dataclass(frozen=True)
class FirstGuess:
    """Labels where known, else the base classifier's answer, else the prior."""

    files: NodeFiles
    prior: tuple[tuple[float, ...], ...]
    """Shape (K, C)."""

    def __call__(self, number: int) -> Array:
        """Shape (n_owned, K * C)."""
        loaded = self.files.load(number)
        labels = loaded["labels"]
        prior = np.array(self.prior, np.float32)
        guess = loaded.get("base", np.broadcast_to(prior, (len(labels), *prior.shape)))
        known = labels[..., None] >= 0
        values = np.where(known, one_hot(labels, prior.shape[1]), guess)
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


def _checked(base: NDArray[np.floating], shape: tuple[int, ...]) -> Array:
    values = np.asarray(base, dtype=np.float32)
    if values.shape != shape:
        raise InputError(
            f"base posteriors have the shape {values.shape}, not {shape}: give one "
            "row of class probabilities for every variant and node"
        )
    wrong = ~np.isfinite(values).all(axis=2) | (values < 0).any(axis=2)
    if wrong.any():
        variant, node = (int(at) for at in np.argwhere(wrong)[0])
        raise InputError(
            f"base posteriors of node {node} in variant {variant} are not all finite "
            "and at least 0: give probabilities"
        )
    return values
