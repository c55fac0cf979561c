"""xnq+ as a method of the comparison: one embedding, then a readout in every split.

As defined, it cross-fits training and calibration labels together. Validation labels
are not used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.inputs import set_scales
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation.methods.method_interface import Configuration, Scores
from xnq_dist.evaluation.work import EvaluationWork

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["plus_configuration", "plus_settings", "plus_split_scores"]


def _settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"method": "xnq+"})


def plus_configuration(settings: Settings, draws: int) -> list[Configuration]:
    """The only configuration: xnq+ does not search."""
    scales, inputs = set_scales(_settings(settings))
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


def plus_split_scores(
    client: Client,
    work: EvaluationWork,
    configurations: Sequence[Configuration],
    splits: Sequence[int],
) -> Iterator[tuple[int, int, Scores]]:
    """Yield scores of xnq+ in every split; all share the stage ``embeddings``."""
    from xnq_dist.readout.plus.learning import plus_scores
    from xnq_dist.readout.work import Embedded
    from xnq_dist.reservoir.embed import embed_scaled

    task = work.task()
    settings = _settings(work.settings)
    run = RunDirectory(work.run)
    for draw, _ in enumerate(configurations):
        scales, inputs = set_scales(settings)
        embedded = embed_scaled(run, settings, client, scales, inputs)
        for split in splits:
            began = time.perf_counter()
            known = task.known(split, "train", "calibration")
            with work.attempt("plus") as attempt:
                scores = plus_scores(
                    client,
                    Embedded(*work.graph(), run.stage("embeddings"), embedded),
                    known,
                    task.classes,
                    settings,
                    attempt,
                )
            seconds = time.perf_counter() - began + embedded.seconds
            target = task.rows(split, "validation", "test")
            held = np.flatnonzero(known >= 0)
            logits = scores.own.astype(np.float64)
            made = Scores(held, logits[held], target, logits[target], seconds=seconds)
            yield draw, split, made
    run.stage("embeddings").folder.delete_folder()
