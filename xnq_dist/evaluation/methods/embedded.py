"""Methods with an embedding: the reservoirs, xnq+, the raw features, pipeline methods.

A logistic readout is fitted to the embedding of each configuration in every split.
`xnq+` has its own readout: as defined, it cross-fits training and calibration labels
together. Validation labels are not used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints, Ints32
from xnq_dist.core.progress import silent
from xnq_dist.core.records import METHODS
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.core.tasks import tasks_on
from xnq_dist.core.waiting import gather
from xnq_dist.evaluation.search import Configuration, NodeRows, fit_split
from xnq_dist.evaluation.task import EvaluationWork, Scores
from xnq_dist.readout.plus.learning import fit
from xnq_dist.readout.plus.plus_model import partition_logits
from xnq_dist.readout.stage import Embedded, ReadoutWork

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "PlusScores",
    "embed_method",
    "plus_posteriors",
    "plus_scores",
    "plus_split_scores",
    "row_scores",
]


@dataclass(frozen=True, eq=False)
class PlusScores:
    """Uncalibrated scores of xnq+ for every node."""

    logits: Floats32
    """Log-probabilities of every node by canonical index, shape (N, C); those of
    labelled nodes out of fold, of others the means over all folds' models."""
    own: Floats32
    """The same by the models of each node's own fold."""
    by_group: tuple[Ints, Floats32] | None
    """Index and posteriors of labelled nodes by models fitted without labels of their
    group, shape (h,) and (h, C)."""


def row_scores(
    name: str | None,
    client: Client,
    work: EvaluationWork,
    configuration: Configuration,
    splits: Sequence[int],
) -> Iterator[Scores]:
    """Embed a configuration once; yield scores of its readout in every split.

    The embedding is that of the method `name`; None: the raw features.
    """
    made = None if name is None else embed_method(name, client, work, configuration)
    one = partial(fit_split, NodeRows(work, made), configuration["C"])
    yield from tasks_on(client, Path(), 0).map(one, splits)


def plus_split_scores(
    client: Client,
    work: EvaluationWork,
    configuration: Configuration,
    splits: Sequence[int],
) -> Iterator[Scores]:
    """Yield scores of xnq+ in every split; all share the stage ``embeddings``."""
    task = work.task()
    for split in splits:
        known = task.known(split, "train", "calibration")
        scores, seconds = plus_posteriors(client, work, known, work.settings.seed)
        yield Scores.of(task, split, np.flatnonzero(known >= 0), scores.own, seconds)


def plus_posteriors(
    client: Client,
    work: EvaluationWork,
    labels: Ints32,
    seed: int,
    groups: Ints32 | None = None,
) -> tuple[PlusScores, float]:
    """Scores of xnq+ fitted to the labels, and the seconds of embedding and readout.

    The stage ``embeddings`` is reused if it has the same seed.
    """
    settings = work.settings.model_copy(update={"method": "xnq+", "seed": seed})
    run = RunDirectory(work.run)
    made = embed_method("xnq+", client, work, {"seed": seed})
    began = time.perf_counter()
    # For the files of the passes, which are deleted afterwards.
    passes = run.stage("draw-plus")
    try:
        known = labels, np.ones(len(labels)), work.task().classes
        fixed = client, Embedded.of(run, settings), *known, settings, passes.begin()
        scores = plus_scores(ReadoutWork(*fixed, groups=groups))
    finally:
        passes.delete_folder()
    return scores, time.perf_counter() - began + made.seconds


def plus_scores(work: ReadoutWork) -> PlusScores:
    """Score every node by xnq+ fitted to the labels, without changing any stage.

    Can be called repeatedly on one embedding with different labels. Errors are those of
    `fit`; files of the attempt can be deleted afterwards. The client holds N x C
    float32.
    """
    (readout, *files), _ = fit(work)
    where, count = work.attempt, len(work.parts)
    tasks = [
        work.submit(partition_logits, part, where, readout, features)
        for part, features in zip(work.parts, files[:count], strict=True)
    ]
    own, logits = np.empty((2, len(work.labels), len(work.classes)), np.float32)
    for index, *of_part in gather(work.client, tasks):
        own[index], logits[index] = of_part
    by_group = None
    for held in files[count:]:
        arrays = where.read_arrays(held)
        by_group = arrays["index"], arrays["posterior"]
    return PlusScores(logits, own, by_group)


def embed_method(
    name: str, client: Client, work: EvaluationWork, configuration: Configuration
) -> Manifest:
    """The embedding of a method of the pipeline, unless it is there.

    The reservoir and its seed are those of the configuration, where it has them.
    """
    settings = work.settings
    known = type(settings.reservoir).model_fields
    drawn = {key: value for key, value in configuration.items() if key in known}
    changes = {
        "method": name,
        "seed": configuration.get("seed", settings.seed),
        "reservoir": settings.reservoir.model_copy(update=drawn),
    }
    settings = settings.model_copy(update=changes)
    module = METHODS.module_of(name)
    made: Manifest = module.embed(RunDirectory(work.run), settings, client, silent)
    return made
