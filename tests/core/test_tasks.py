from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from xnq_dist.core.errors import InputError
from xnq_dist.core.tasks import WorkerTasks, tasks_on


@pytest.fixture
def tasks(client: Any, tmp_path: Path) -> WorkerTasks:
    return tasks_on(client, tmp_path, 1 << 30)


def process(item: int) -> tuple[int, int]:
    time.sleep(0.05)
    return item, os.getpid()


def fail(item: int) -> int:
    if item in (3, 5):
        # The later item fails first.
        time.sleep(0.5 if item == 3 else 0)
        raise InputError(f"item {item}")
    return item


def test_results_are_in_the_order_of_the_items(tasks: WorkerTasks) -> None:
    seen: list[tuple[int, int]] = []
    found = tasks.map(process, range(9), lambda *done: seen.append(done))
    assert [item for item, _ in found] == list(range(9))
    assert os.getpid() not in {pid for _, pid in found}
    assert seen[-1] == (9, 9)
    assert tasks.slots == 2
    assert sorted(tasks.everywhere(os.getpid)) == sorted({pid for _, pid in found})


def test_the_error_of_the_first_item_is_raised(tasks: WorkerTasks) -> None:
    with pytest.raises(InputError, match="item 3"):
        tasks.map(fail, range(8))


def test_tasks_of_a_worker_share_its_memory(client: Any, tmp_path: Path) -> None:
    small = tasks_on(client, tmp_path, 1 << 20)
    assert small.memory == 1 << 20  # of one thread
    large = tasks_on(client, tmp_path, 1 << 60)
    assert large.memory < 1 << 40
