"""Tasks in this process that send their messages and files as workers do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xnq_dist.core.tasks import WorkerTasks
from xnq_dist.graph import edge_tasks


@dataclass(frozen=True)
class TasksHere:
    """`tasks.Tasks` that pickle what they send, each in a random order."""

    folder: Path
    slots: int = 2
    memory: int = 1 << 20
    order: Callable[[int], Sequence[int]] = range

    def map(
        self,
        work,
        items,
        progress=lambda done, total: None,
    ):
        found: dict[int, Any] = {}
        for number in self.order(len(items)):
            call, item = pickle.loads(pickle.dumps((work, items[number])))  # noqa: S301
            try:
                found[number] = pickle.loads(pickle.dumps(call(item)))  # noqa: S301
            except Exception as error:
                found[number] = error
            progress(len(found), len(items))
        for number in range(len(items)):
            if isinstance(found[number], Exception):
                raise found[number]
        return [found[number] for number in range(len(items))]

    def everywhere(self, function):
        return [function()]

    share = WorkerTasks.share


def by_tasks(tasks):
    """The option `workers` of `prepare`."""
    return lambda: nullcontext(tasks)


def small_tasks(patch):
    """Let any row group, pair and edge be a task."""
    for name in ("ROWS", "PAIRS"):
        patch.setattr(edge_tasks, name, 1)
