"""Location of an evaluation's graph and task, which is sent with every Dask task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xnq_dist.core.errors import StageError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    Attempt,
    Folder,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.evaluation.methods.method_interface import Task
from xnq_dist.evaluation.task import task_from_bytes, task_to_bytes
from xnq_dist.evaluation.units import Units

__all__ = ["EvaluationWork"]

_LOCK = threading.Lock()
_HELD: dict[str, Task] = {}
"""Cache of the current evaluation's task, loaded once per process."""


@dataclass(frozen=True)
class EvaluationWork:
    """Location and settings of the evaluation of one task."""

    run: str = field(repr=False)
    """Location of its folder, which has the stage ``graph``."""
    task_key: str
    settings: Settings

    @classmethod
    def begin(cls, run: RunDirectory, task: Task, settings: Settings) -> EvaluationWork:
        """Write the task to the folder, where workers can read it."""
        graph = run.stage("graph").manifest()
        if graph is None:
            raise StageError(f"{run.uri}: stage graph is incomplete: run it again")
        key = fingerprint(
            graph.fingerprint,
            task.dataset,
            task.classes,
            [(split.fold, split.label_share) for split in task.splits],
            fingerprint(task.labels.tobytes().hex(), task.roles.tobytes().hex()),
        )
        folder = run.folder.child("task")
        folder.create()
        if not folder.exists(f"{key}.npy"):
            folder.write_bytes(f"{key}.npy", task_to_bytes(task))
        run.folder.child("units").create()
        return cls(run.folder.location, key, settings)

    def graph(self) -> tuple[Stage, Manifest]:
        """The stage ``graph`` and its manifest."""
        stage = RunDirectory(self.run).stage("graph")
        manifest = stage.manifest()
        if manifest is None:
            raise StageError(f"{self.run}: stage graph is incomplete: run it again")
        return stage, manifest

    def task(self) -> Task:
        """The task's labels and folds."""
        with _LOCK:
            if self.task_key not in _HELD:
                _HELD.clear()
                data = Folder.of(self.run).child("task")
                _HELD[self.task_key] = task_from_bytes(
                    data.read_bytes(f"{self.task_key}.npy")
                )
            return _HELD[self.task_key]

    def units(self) -> Units:
        """The folder of scores."""
        return Units(Folder.of(self.run).child("units"))

    @contextmanager
    def attempt(self, name: str) -> Iterator[Attempt]:
        """A temporary folder for the files of a pass; it is deleted afterwards."""
        stage = Stage(Folder.of(self.run).child(f"draw-{name}"), f"draw-{name}")
        try:
            yield stage.begin()
        finally:
            stage.folder.delete_folder()
