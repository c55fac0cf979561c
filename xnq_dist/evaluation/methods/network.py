"""The baselines as methods of the comparison: wvRN, ENQ, CDQ, LBQ and the rivals.

Each uses only the training labels of a split (the rivals also those for calibration,
which they cross-fit). This process holds all edges.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.evaluation.measures import mean_errors
from xnq_dist.evaluation.methods.baselines import cdq, densities, enq, lbq, wvrn
from xnq_dist.evaluation.methods.demon import demon
from xnq_dist.evaluation.methods.method_interface import (
    Configuration,
    Figure,
    Scores,
    Task,
)
from xnq_dist.evaluation.regions import communities_of
from xnq_dist.evaluation.rivals import rival_scores
from xnq_dist.evaluation.split_fit import FeatureRows
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.groups.leiden import leiden

if TYPE_CHECKING:
    from distributed import Client
    from scipy.sparse import csr_array

__all__ = [
    "cdq_scores",
    "enq_scores",
    "lbq_figures",
    "rival_split_scores",
    "wvrn_scores",
]

FLOOR = 1e-6
"""Minimum probability before taking the logarithm; wvRN often gives 0."""

Yielded = Iterator[tuple[int, int, Scores]]


def _inputs(
    work: EvaluationWork, splits: Sequence[int]
) -> tuple[Task, csr_array[Any], NDArray[np.int32]]:
    """The task, the adjacency, and the training labels of every split."""
    task = work.task()
    labels = np.stack([task.known(split, "train") for split in splits])
    return task, read_adjacency(*work.graph()), labels


def wvrn_scores(
    vote: Literal["soft", "hard"],
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Yielded:
    """Yield scores of wvRN, with all rounds from one propagation."""
    task, adjacency, labels = _inputs(work, splits)
    began = time.perf_counter()
    rounds = [int(c["rounds"]) for c in configurations]
    kept = wvrn(adjacency, labels, len(task.classes), rounds, vote)
    seconds = (time.perf_counter() - began) / len(splits)
    for draw, turn in enumerate(rounds):
        for split, posteriors in zip(splits, kept[turn], strict=True):
            logits = np.log(np.maximum(posteriors, FLOOR)).astype(np.float64)
            yield draw, split, Scores.of(task, split, logits, seconds)


def enq_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Yielded:
    """Yield votes of ego networks."""
    task, adjacency, labels = _inputs(work, splits)
    for draw, configuration in enumerate(configurations):
        began, hops = time.perf_counter(), int(configuration["hops"])
        votes = enq(adjacency, labels, len(task.classes), hops, work.settings.seed)
        seconds = (time.perf_counter() - began) / len(splits)
        yield from _votes(task, draw, splits, votes, seconds)


def cdq_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Yielded:
    """Yield votes of communities, each kind of which is detected once."""
    task, adjacency, labels = _inputs(work, splits)
    seed = work.settings.seed
    for name in dict.fromkeys(c["communities"] for c in configurations):
        began = time.perf_counter()
        if name == "demon":
            communities = demon(adjacency, seed)
        else:
            resolution = work.settings.leiden.resolution
            communities = communities_of(leiden(adjacency, resolution, seed))
        density = densities(communities, adjacency)
        detection = time.perf_counter() - began
        for draw, configuration in enumerate(configurations):
            if configuration["communities"] != name:
                continue
            began = time.perf_counter()
            used = density if configuration["strategy"] == "density" else None
            votes = cdq(communities, labels, len(task.classes), seed, used)
            seconds = (detection + time.perf_counter() - began) / len(splits)
            yield from _votes(task, draw, splits, votes, seconds)


def lbq_figures(
    client: Client, work: EvaluationWork, splits: Sequence[int]
) -> Iterator[tuple[Figure, float]]:
    """Yield errors of LBQ's estimate for all nodes without a training label.

    The true prevalence is that of the nodes among them whose label is known. The second
    value is the seconds of the split.
    """
    task, adjacency, labels = _inputs(work, splits)
    began = time.perf_counter()
    prevalence = lbq(adjacency, labels)
    seconds = (time.perf_counter() - began) / len(splits)
    for split, row, share in zip(splits, labels, prevalence, strict=True):
        known = task.labels[(row < 0) & (task.labels >= 0)]
        true = np.bincount(known, minlength=2)[None] / len(known)
        estimate = np.array([[1.0 - share, share]])
        found = mean_errors(true, estimate, np.array([len(known)]))
        yield Figure(0, split, "lbq", "none", found, true, estimate), seconds


def rival_split_scores(
    with_neighbours: bool,
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Yielded:
    """Yield scores of a rival, which has one configuration."""
    task, adjacency, _ = _inputs(work, splits)
    features = FeatureRows(*work.graph()).matrix()
    edges = adjacency if with_neighbours else None
    n_classes, seed = len(task.classes), work.settings.seed
    for split in splits:
        began = time.perf_counter()
        known = task.known(split, "train", "calibration")
        logits = rival_scores(features, known, n_classes, seed, edges)
        seconds = time.perf_counter() - began
        yield 0, split, Scores.of(task, split, logits, seconds)


def _votes(
    task: Task,
    draw: int,
    splits: Sequence[int],
    votes: NDArray[np.int32],
    seconds: float,
) -> Yielded:
    for split, row in zip(splits, votes, strict=True):
        one_hot = np.eye(len(task.classes))[row]
        yield draw, split, Scores.of(task, split, one_hot, seconds, crisp=True)
