"""The baselines as methods of the comparison: wvRN, ENQ, CDQ, LBQ and the rivals.

Each uses only the training labels of a split (the rivals also those for calibration,
which they cross-fit); all splits are computed in one pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.evaluation.methods.method_interface import (
    Configuration,
    GraphEstimate,
    Scores,
    Task,
)
from xnq_dist.evaluation.rivals import rival_scores
from xnq_dist.evaluation.split_fit import FeatureRows
from xnq_dist.evaluation.work import EvaluationWork

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "cdq_scores",
    "enq_scores",
    "lbq_estimates",
    "rival_split_scores",
    "wvrn_scores",
]

FLOOR = 1e-6
"""Minimum probability before taking the logarithm; wvRN often gives 0."""


def wvrn_scores(
    vote: Literal["soft", "hard"],
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Iterator[tuple[int, int, Scores]]:
    """Yield scores of wvRN, with all rounds from one propagation."""
    from xnq_dist.evaluation.methods.wvrn import wvrn

    task = work.task()
    graph, manifest = work.graph()
    labels = np.stack([task.known(split, "train") for split in splits])
    rounds = sorted({int(c["rounds"]) for c in configurations})
    with work.attempt("wvrn") as attempt:
        began = time.perf_counter()
        count = len(task.classes)
        load = wvrn(client, graph, manifest, attempt, labels, count, rounds, vote)
        seconds = time.perf_counter() - began
        for draw, configuration in enumerate(configurations):
            posteriors = load(int(configuration["rounds"]))
            for at, split in enumerate(splits):
                logits = np.log(np.maximum(posteriors[at], FLOOR)).astype(np.float64)
                yield draw, split, _scores(task, split, logits, seconds, len(splits))


def enq_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Iterator[tuple[int, int, Scores]]:
    """Yield votes of ego networks."""
    from xnq_dist.evaluation.methods.enq import enq

    task = work.task()
    graph, manifest = work.graph()
    labels = np.stack([task.known(split, "train") for split in splits])
    n_classes, seed = len(task.classes), work.settings.seed
    for draw, configuration in enumerate(configurations):
        began, hops = time.perf_counter(), int(configuration["hops"])
        with work.attempt("enq") as attempt:
            votes = enq(client, graph, manifest, attempt, labels, n_classes, hops, seed)
        seconds = time.perf_counter() - began
        for at, split in enumerate(splits):
            yield draw, split, _votes(task, split, votes[at], seconds, len(splits))


def cdq_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Iterator[tuple[int, int, Scores]]:
    """Yield votes of communities, which are detected once, in this process."""
    from xnq_dist.evaluation.methods.cdq import cdq, densities
    from xnq_dist.evaluation.methods.demon import demon
    from xnq_dist.evaluation.regions import communities_of
    from xnq_dist.graph.layout import read_adjacency
    from xnq_dist.groups.leiden import leiden

    task, seed = work.task(), work.settings.seed
    adjacency = read_adjacency(*work.graph())
    labels = np.stack([task.known(split, "train") for split in splits])
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
            strategy = configuration["strategy"]
            votes = cdq(communities, labels, len(task.classes), strategy, seed, density)
            seconds = detection + time.perf_counter() - began
            for at, split in enumerate(splits):
                yield draw, split, _votes(task, split, votes[at], seconds, len(splits))


def lbq_estimates(
    client: Client, work: EvaluationWork, splits: Sequence[int]
) -> Iterator[GraphEstimate]:
    """Yield LBQ's estimate for all nodes without a training label.

    The true prevalence is that of the nodes among them whose label is known.
    """
    from xnq_dist.evaluation.methods.lbq import lbq

    task = work.task()
    graph, manifest = work.graph()
    labels = np.stack([task.known(split, "train") for split in splits])
    with work.attempt("lbq") as attempt:
        began = time.perf_counter()
        prevalence = lbq(client, graph, manifest, attempt, labels)
        seconds = time.perf_counter() - began
    for at, split in enumerate(splits):
        known = task.labels[(labels[at] < 0) & (task.labels >= 0)]
        true = np.bincount(known, minlength=2) / len(known)
        estimate = np.array([1.0 - prevalence[at], prevalence[at]])
        yield GraphEstimate(split, true, estimate, len(known), seconds / len(splits))


def rival_split_scores(
    with_neighbours: bool,
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Iterator[tuple[int, int, Scores]]:
    """Yield scores of a rival, which has one configuration."""
    from xnq_dist.graph.layout import read_adjacency

    task, features = work.task(), FeatureRows(*work.graph()).matrix()
    n_classes, seed, both = len(task.classes), work.settings.seed, None
    if with_neighbours:
        adjacency = read_adjacency(*work.graph())
        both = (adjacency + adjacency.T).tocsr()
    for split in splits:
        began = time.perf_counter()
        known = task.known(split, "train", "calibration")
        logits = rival_scores(features, known, n_classes, seed, both)
        seconds = time.perf_counter() - began
        yield 0, split, _scores(task, split, logits, seconds, 1)


def _votes(
    task: Task, split: int, votes: NDArray[np.int32], seconds: float, shared: int
) -> Scores:
    one_hot = np.eye(len(task.classes))[votes]
    return _scores(task, split, one_hot, seconds, shared, crisp=True)


def _scores(
    task: Task,
    split: int,
    logits: NDArray[np.float64],
    seconds: float,
    shared: int,
    crisp: bool = False,
) -> Scores:
    held = task.rows(split, "calibration")
    target = task.rows(split, "validation", "test")
    return Scores(held, logits[held], target, logits[target], crisp, seconds / shared)
