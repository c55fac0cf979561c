"""An evaluation's folder: graph, task, scores; sent with every Dask task."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core import npy
from xnq_dist.core.arrays import Floats, Floats32, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder, Manifest, RunDirectory
from xnq_dist.evaluation.task import Task, TaskSource, load_task
from xnq_dist.graph.layout import read_adjacency

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["EvaluationWork", "Scores", "adjacency_of", "keep_arrays", "read_arrays"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a method for one configuration in one split."""

    held: Ints
    """Canonical indexes of labelled nodes whose scores do not depend on their labels,
    ascending, shape (m,). Calibration and misclassification rates are fitted to
    these nodes."""
    held_logits: Floats | Floats32
    """Uncalibrated logits (log-probabilities plus a constant per row), shape (m, C)."""
    target: Ints
    """The nodes with the roles validation and test, ascending, shape (t,)."""
    target_logits: Floats | Floats32
    """Uncalibrated logits of the targets, shape (t, C)."""
    seconds: float = 0.0
    """Wall time for this split."""

    @classmethod
    def of(
        cls,
        task: Task,
        split: int,
        held: Ints,
        logits: NDArray[np.floating],
        seconds: float,
    ) -> Scores:
        """Scores in single precision from logits of all nodes, shape (N, C)."""
        target = task.rows(split, "validation", "test")
        logits = logits.astype(np.float32)
        return cls(held, logits[held], target, logits[target], seconds)


@dataclass(frozen=True)
class EvaluationWork:
    """Location and settings of the evaluation of one task."""

    run: str = field(repr=False)
    """Location of its folder, which has the stages ``graph`` and ``labels``."""
    source: TaskSource
    settings: Settings

    def graph(self) -> Manifest:
        """The manifest of the stage ``graph``."""
        return RunDirectory(self.run).complete("graph")

    def task(self) -> Task:
        """The task's labels and folds, loaded once per process."""
        run = RunDirectory(self.run)
        made = (run.complete(name).fingerprint for name in ("graph", "labels"))
        return _task(self.run, self.source, self.settings.seed, *made)

    def adjacency(self) -> csr_array[Any]:
        """In-neighbours of node v in row v, shape (N, N), loaded once per process."""
        return adjacency_of(self.run, self.graph().fingerprint)

    def folder(self, name: str) -> Folder:
        """A folder for files that another evaluation reuses."""
        return Folder.of(self.run).child(name)


@lru_cache(maxsize=1)
def _task(run: str, source: TaskSource, seed: int, graph: str, labels: str) -> Task:
    """The task; another one once the stages with these fingerprints changed."""
    return load_task(RunDirectory(run), source, seed)


@lru_cache(maxsize=1)
def adjacency_of(run: str, graph: str) -> csr_array[Any]:
    """The adjacency of a run directory whose graph has this fingerprint."""
    return read_adjacency(RunDirectory(run).complete("graph"))


def read_arrays(folder: Folder, name: str) -> Arrays:
    """Arrays of a file in the folder."""
    return npy.read_arrays(io.BytesIO(folder.read_bytes(f"{name}.npy")))


def keep_arrays(folder: Folder, name: str, make: Callable[[], Arrays]) -> Arrays:
    """Arrays of a file in the folder, which is made if it is not there."""
    if not folder.exists(f"{name}.npy"):
        buffer = io.BytesIO()
        npy.write_arrays(buffer, make())
        folder.create()
        folder.write_bytes(f"{name}.npy", buffer.getvalue())
    return read_arrays(folder, name)
