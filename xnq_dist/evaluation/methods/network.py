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
from xnq_dist.evaluation.split_fit import NodeRows
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.groups.leiden import leiden
from xnq_dist.quantify.interface import Communities

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


def _graph(work: EvaluationWork) -> tuple[Task, csr_array[Any], int]:
    """The task, the adjacency, and the number of classes."""
    task = work.task()
    return task, read_adjacency(*work.graph()), len(task.classes)


def wvrn_scores(
    vote: Literal["soft", "hard"],
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Yielded:
    """Yield scores of wvRN, with all rounds from one propagation."""
    task, adjacency, n_classes = _graph(work)
    rounds = [int(c["rounds"]) for c in configurations]
    for split in splits:
        began = time.perf_counter()
        kept = wvrn(adjacency, task.known(split, "train"), n_classes, rounds, vote)
        seconds = time.perf_counter() - began
        for draw, turn in enumerate(rounds):
            logits = np.log(np.maximum(kept[turn], FLOOR)).astype(np.float64)
            yield draw, split, Scores.of(task, split, logits, seconds)


def enq_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Yielded:
    """Yield votes of ego networks."""
    task, adjacency, n_classes = _graph(work)
    for draw, configuration in enumerate(configurations):
        rule = n_classes, int(configuration["hops"]), work.settings.seed
        for split in splits:
            began = time.perf_counter()
            votes = enq(adjacency, task.known(split, "train"), *rule)
            seconds = time.perf_counter() - began
            yield draw, split, _votes(task, split, votes, seconds)


def cdq_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Yielded:
    """Yield votes of communities, each kind of which is detected once."""
    task, adjacency, n_classes = _graph(work)
    seed = work.settings.seed
    detected: dict[str, tuple[Communities, NDArray[np.float64], float]] = {}
    for draw, configuration in enumerate(configurations):
        began, name = time.perf_counter(), configuration["communities"]
        if name not in detected:
            resolution = work.settings.leiden.resolution
            sets = (
                demon(adjacency, seed)
                if name == "demon"
                else communities_of(leiden(adjacency, resolution, seed))
            )
            density = densities(sets, adjacency)
            detected[name] = sets, density, time.perf_counter() - began
        sets, density, detection = detected[name]
        used = density if configuration["strategy"] == "density" else None
        for split in splits:
            began = time.perf_counter()
            known = task.known(split, "train")
            votes = cdq(sets, known, n_classes, seed, used)
            seconds = time.perf_counter() - began + detection / len(splits)
            yield draw, split, _votes(task, split, votes, seconds)


def lbq_figures(
    client: Client, work: EvaluationWork, splits: Sequence[int]
) -> Iterator[tuple[Figure, float]]:
    """Yield errors of LBQ's estimate for all nodes without a training label.

    The true prevalence is that of the nodes among them whose label is known. The second
    value is the seconds of the split.
    """
    task, adjacency, _ = _graph(work)
    for split in splits:
        began, labels = time.perf_counter(), task.known(split, "train")
        share = lbq(adjacency, labels)
        seconds = time.perf_counter() - began
        known = task.labels[(labels < 0) & (task.labels >= 0)]
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
    task, adjacency, n_classes = _graph(work)
    features = NodeRows(*work.graph()).matrix()
    edges = adjacency if with_neighbours else None
    for split in splits:
        began = time.perf_counter()
        known = task.known(split, "train", "calibration")
        logits = rival_scores(features, known, n_classes, work.settings.seed, edges)
        seconds = time.perf_counter() - began
        yield 0, split, Scores.of(task, split, logits, seconds)


def _votes(task: Task, split: int, votes: NDArray[np.int32], seconds: float) -> Scores:
    one_hot = np.eye(len(task.classes))[votes]
    return Scores.of(task, split, one_hot, seconds, crisp=True)
