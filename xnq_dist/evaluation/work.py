"""Location of an evaluation's graph, task and scores, sent with every Dask task."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core import npy
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    Attempt,
    Folder,
    Manifest,
    RunDirectory,
    Stage,
)
from xnq_dist.evaluation.methods.method_interface import Scores, Task
from xnq_dist.evaluation.task import TaskSource, load_task

__all__ = ["EvaluationWork", "keep_arrays"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class EvaluationWork:
    """Location and settings of the evaluation of one task."""

    run: str = field(repr=False)
    """Location of its folder, which has the stages ``graph`` and ``labels``."""
    source: TaskSource
    settings: Settings

    def graph(self) -> tuple[Stage, Manifest]:
        """The stage ``graph`` and its manifest."""
        run = RunDirectory(self.run)
        return run.stage("graph"), run.complete("graph")

    def task(self) -> Task:
        """The task's labels and folds, loaded once per process."""
        run = RunDirectory(self.run)
        made = (run.complete(name).fingerprint for name in ("graph", "labels"))
        return _task(self.run, self.source, self.settings.seed, *made)

    def units(self) -> Folder:
        """The folder of scores, one file for each configuration and split."""
        return Folder.of(self.run).child("units")

    def has_scores(self, key: str) -> bool:
        """Whether the scores of one configuration in one split are kept."""
        return self.units().exists(f"{key}.npy")

    def write_scores(self, key: str, scores: Scores) -> None:
        """Keep the scores of one configuration in one split."""
        arrays = {name: np.asarray(value) for name, value in vars(scores).items()}
        for name in ("held_logits", "target_logits"):
            arrays[name] = arrays[name].astype(np.float32)
        keep_arrays(self.units(), key, lambda: arrays)

    def read_scores(self, key: str) -> Scores:
        """Read scores again."""
        arrays = npy.read_arrays(io.BytesIO(self.units().read_bytes(f"{key}.npy")))
        return Scores(
            arrays["held"],
            arrays["held_logits"].astype(np.float64),
            arrays["target"],
            arrays["target_logits"].astype(np.float64),
            bool(arrays["crisp"]),
            float(arrays["seconds"]),
        )

    @contextmanager
    def attempt(self, name: str) -> Iterator[Attempt]:
        """A temporary folder for the files of a pass; it is deleted afterwards."""
        stage = Stage(Folder.of(self.run).child(f"draw-{name}"), f"draw-{name}")
        try:
            yield stage.begin()
        finally:
            stage.folder.delete_folder()


@lru_cache(maxsize=1)
def _task(run: str, source: TaskSource, seed: int, graph: str, labels: str) -> Task:
    """The task; another one once the stages with these fingerprints changed."""
    return load_task(RunDirectory(run), source, seed)


def keep_arrays(folder: Folder, name: str, make: Callable[[], Arrays]) -> Arrays:
    """Arrays of a file in the folder, which is made if it is not there."""
    if not folder.exists(f"{name}.npy"):
        buffer = io.BytesIO()
        npy.write_arrays(buffer, make())
        folder.create()
        folder.write_bytes(f"{name}.npy", buffer.getvalue())
    return dict(npy.read_arrays(io.BytesIO(folder.read_bytes(f"{name}.npy"))))
