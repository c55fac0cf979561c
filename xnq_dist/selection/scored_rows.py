"""Nodes that the selection model is fitted to, and what is known of their place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, mixed_bits, stream_key

__all__ = ["MOST", "Place", "ScoredRows", "log_rates", "model_bytes", "sampled"]


MOST = 200_000
"""Maximum number of labelled, and of unlabelled, nodes that the model is fitted to."""
MOST_EFFECTS = 900
"""Effects in the model, about: its information matrix has as many rows."""
LEAST = 1e-9
"""Lower bound of scores."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where nodes are in the graph."""

    groups: tuple[Ints32, ...] = ()
    """Groups of the graph's own partitions, the coarse one first, shape (n,) each."""
    degree: Floats | None = None
    """Number of in-neighbours, shape (n,)."""
    rates: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """Log rates of labelling among the neighbours, the node's own fold left out, one
    column a hop, shape (n, H)."""


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Labelled and unlabelled nodes, scored alike."""

    posteriors: Floats
    """Rows on the simplex, each made without the labels of the node's own fold, shape
    (n, C)."""
    labels: Ints32
    """Class codes, -1 unlabelled, shape (n,)."""
    folds: Ints32
    """Scores are comparable within a fold, shape (n,)."""
    place: Place = field(default_factory=Place)

    @classmethod
    def of(
        cls,
        posteriors: NDArray[np.floating],
        labels: NDArray[np.integer],
        folds: NDArray[np.integer],
        prior: Floats,
        place: Place | None = None,
    ) -> ScoredRows:
        """Normalised rows; a node whose row is all zeros has the prior."""
        rows = np.asarray(posteriors, np.float64)
        total = rows.sum(axis=1, keepdims=True)
        share = rows / np.where(total > 0, total, 1.0)
        share = np.where(total > 0, share, prior / prior.sum())
        share = np.clip(share, LEAST, None)
        return cls(
            share / share.sum(axis=1, keepdims=True),
            np.asarray(labels, np.int32),
            np.asarray(folds, np.int32),
            place or Place(),
        )

    @property
    def labelled(self) -> Bools:
        """Shape (n,)."""
        return np.asarray(self.labels >= 0)

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return int(self.posteriors.shape[1])


def sampled(labels: NDArray[np.integer], seed: int, most: int = MOST) -> Ints:
    """Nodes for the model, ascending: labelled and unlabelled ones, `most` of each.

    Labels are -1 for unlabelled nodes, -2 for those not to be used.
    """
    key = stream_key(seed, Purpose.SELECTION_ROWS)
    chosen = []
    for rows in (np.flatnonzero(labels >= 0), np.flatnonzero(labels == -1)):
        if len(rows) > most:
            bits = mixed_bits(rows, key)
            rows = rows[np.argpartition(bits, most)[:most]]
        chosen.append(rows)
    return np.sort(np.concatenate(chosen))


def log_rates(reached: Floats, degree: Floats, rate: float, visible: float) -> Floats:
    """Log rate of labelling among neighbours, drawn to the overall one by a neighbour.

    `reached` are the labelled neighbours in other folds, or walks to them, of `degree`
    in all; `visible` is the share of the nodes in other folds.
    """
    return np.asarray(np.log((reached + rate) / (visible * degree + 1.0)))


def model_bytes(n_nodes: int, n_classes: int, folds: int) -> int:
    """Bytes that the selection model takes in one process at most.

    Of each node in it some ten arrays of a value a class, its columns and their
    products with weights, in float64; and the information matrix of the effects.
    """
    nodes = min(n_nodes, 2 * MOST)
    return nodes * 8 * (10 * n_classes + 5 * (folds + 3)) + 4 * 8 * MOST_EFFECTS**2
