"""Methods with an embedding: the reservoirs, xnq+, the raw features, pipeline methods.

A logistic readout is fitted to the embedding of each configuration in every split.
`xnq+` has its own readout: as defined, it cross-fits training and calibration labels
together. Validation labels are not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.inputs import set_scales
from xnq_dist.core.method_records import METHODS
from xnq_dist.core.progress import silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.core.waiting import gather
from xnq_dist.evaluation.methods.method_interface import Configuration, Scores
from xnq_dist.evaluation.split_fit import NodeRows, fit_split
from xnq_dist.evaluation.work import EvaluationWork

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import NDArray

    from xnq_dist.readout.plus.learning import PlusScores

__all__ = [
    "embed_draw",
    "embed_method",
    "plus_configuration",
    "plus_posteriors",
    "plus_settings",
    "plus_split_scores",
    "row_scores",
]

Embed = Callable[["Client", EvaluationWork, Configuration], Manifest]
"""Computes the stage ``embeddings``, unless it is there, and returns its manifest."""


def embed_draw(
    client: Client, work: EvaluationWork, configuration: Configuration
) -> Manifest:
    """The states of a reservoir with these hyperparameters (xnq)."""
    from xnq_dist.reservoir.embed import embed_scaled

    reservoir = work.settings.reservoir.model_copy(update={"dim": configuration["dim"]})
    changes = {"method": "xnq", "seed": configuration["seed"], "reservoir": reservoir}
    settings = work.settings.model_copy(update=changes)
    scales = configuration["recurrent_scale"], configuration["input_scale"]
    return embed_scaled(RunDirectory(work.run), settings, client, *scales)


def embed_method(
    name: str, client: Client, work: EvaluationWork, configuration: Configuration
) -> Manifest:
    """The embedding of a method of the pipeline, the same for every configuration."""
    settings = work.settings.model_copy(update={"method": name})
    module = METHODS.module_of(name)
    made: Manifest = module.embed(RunDirectory(work.run), settings, client, silent)
    return made


def row_scores(
    embed: Embed | None,
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Iterator[tuple[int, int, Scores]]:
    """Embed each configuration once; yield scores of its readout in every split.

    Without `embed`, the raw features are the embedding.
    """
    stage = RunDirectory(work.run).stage("embeddings")
    try:
        for draw, configuration in enumerate(configurations):
            rows = NodeRows(*work.graph())
            seconds = 0.0
            if embed is not None:
                made = embed(client, work, configuration)
                rows = NodeRows(*work.graph(), stage, tuple(made.named("part-")))
                seconds = made.seconds
            fixed = work, rows, configuration["C"]
            futures = [
                client.submit(_fit, *fixed, split, pure=False) for split in splits
            ]
            for split, scores in zip(splits, gather(client, futures), strict=True):
                yield draw, split, replace(scores, seconds=scores.seconds + seconds)
    finally:
        stage.folder.delete_folder()


def _fit(work: EvaluationWork, rows: NodeRows, C: float, split: int) -> Scores:
    return fit_split(work.task(), split, rows, C, work.settings.readout.memory_bytes)


def plus_configuration(settings: Settings, draws: int) -> list[Configuration]:
    """The only configuration: xnq+ does not search."""
    scales, inputs = set_scales(settings.model_copy(update={"method": "xnq+"}))
    return [
        {
            "dim": settings.reservoir.dim,
            "recurrent_scale": list(scales) if isinstance(scales, tuple) else scales,
            "input_scale": inputs,
            "seed": settings.seed,
        }
    ]


def plus_settings(settings: Settings) -> dict[str, Any]:
    """Settings that its scores depend on, besides the configuration."""
    names = {"supersteps", "matrix"}
    return {
        "reservoir": settings.reservoir.model_dump(include=names),
        "exchange": settings.exchange.dtype,
        "readout": settings.readout.model_dump(include={"C", "folds"}),
    }


def plus_posteriors(
    client: Client,
    work: EvaluationWork,
    labels: NDArray[np.int32],
    seed: int,
    groups: NDArray[np.int32] | None = None,
) -> tuple[PlusScores, float]:
    """Scores of xnq+ fitted to the labels, and the seconds of embedding and readout.

    The stage ``embeddings`` is reused if it has the same seed.
    """
    from xnq_dist.readout.plus.learning import plus_scores
    from xnq_dist.readout.work import Embedded
    from xnq_dist.reservoir.embed import embed_scaled

    settings = work.settings.model_copy(update={"method": "xnq+", "seed": seed})
    run = RunDirectory(work.run)
    embedded = embed_scaled(run, settings, client, *set_scales(settings))
    began = time.perf_counter()
    with work.attempt("plus") as attempt:
        scores = plus_scores(
            client,
            Embedded.of(run, settings),
            labels,
            work.task().classes,
            settings,
            attempt,
            groups=groups,
        )
    return scores, time.perf_counter() - began + embedded.seconds


def plus_split_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Iterator[tuple[int, int, Scores]]:
    """Yield scores of xnq+ in every split; all share the stage ``embeddings``."""
    task = work.task()
    for split in splits:
        known = task.known(split, "train", "calibration")
        scores, seconds = plus_posteriors(client, work, known, work.settings.seed)
        held, target = (
            np.flatnonzero(known >= 0),
            task.rows(split, "validation", "test"),
        )
        logits = scores.own.astype(np.float64)
        made = Scores(held, logits[held], target, logits[target], seconds=seconds)
        yield 0, split, made
    RunDirectory(work.run).stage("embeddings").folder.delete_folder()
