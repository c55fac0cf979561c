"""Tasks in this process, one after the other, as the workers of a cluster do them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xnq_dist.graph.loaded import forget


@dataclass(frozen=True)
class TasksHere:
    """`worker_tasks.Tasks` that pickle what they send, each in a random order."""

    folder: Path
    slots: int = 2
    memory: int = 1 << 20
    order: Callable[[int], Sequence[int]] = range

    def map(
        self,
        work: Callable[[Any], Any],
        items: Sequence[Any],
        progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> list[Any]:
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

    def everywhere(self, function: Callable[[], Any]) -> list[Any]:
        return [function()]

    def __post_init__(self) -> None:
        forget()
