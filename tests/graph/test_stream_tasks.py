"""The partitioner ``stream`` by tasks against one process: the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from tests.graph.tasks import TasksHere
from xnq_dist.core.errors import StageError
from xnq_dist.core.worker_tasks import tasks_on
from xnq_dist.graph import partition, scratch, stream_tasks
from xnq_dist.graph.clustering import find_clusters
from xnq_dist.graph.csr import FileCsr
from xnq_dist.graph.loaded import forget
from xnq_dist.graph.partition import divide
from xnq_dist.graph.refining import refine
from xnq_dist.graph.stream_tasks import StreamTasks


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is a round, every row is sampled alone, a group has 8 partitions."""
    monkeypatch.setattr(stream_tasks, "ROUND", 0)
    monkeypatch.setattr(stream_tasks, "CHOICE_EDGES", 1)
    monkeypatch.setattr(stream_tasks, "SAMPLE_EDGES", 1)
    monkeypatch.setattr(stream_tasks, "SAMPLE_CHUNK", 7)
    monkeypatch.setattr(partition, "MIN_MEMORY", 1)
    # The least memory of a group would leave no edges between clusters.
    monkeypatch.setattr(partition, "PAIR", 1)
    monkeypatch.setattr(partition, "METIS_ENTRY", 2)


def files_of(folder: Path, n: int, density: float, seed: int, both: bool) -> FileCsr:
    csr = csr_of(random_matrix(n, density, seed, both))
    folder.mkdir(parents=True)
    scratch.append(folder / "indptr", csr.indptr)
    scratch.append(folder / "indices", csr.indices)
    return FileCsr(csr.indptr, folder, False)


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != "csr"]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(20, 90),
    density=st.sampled_from([0.0, 0.05, 0.3]),
    both=st.booleans(),
    seed=st.integers(0, 999),
    partitions=st.integers(2, 20),
    memory=st.sampled_from([1, 1 << 20]),
    slots=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_tasks_make_the_bits_of_one_process(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    density: float,
    both: bool,
    seed: int,
    partitions: int,
    memory: int,
    slots: int,
    order: Any,
) -> None:
    folder = tmp_path_factory.mktemp("stream")
    csr = files_of(folder / "csr", n, density, seed, both)

    def shuffled(count: int) -> list[int]:
        numbers = list(range(count))
        order.shuffle(numbers)
        return numbers

    by_tasks = StreamTasks(csr, TasksHere(folder, slots, order=shuffled))
    how = partitions, "stream", 0, memory, both
    due, _ = divide(csr, *how)  # type: ignore[arg-type]
    found, _ = divide(csr, *how, by_tasks)  # type: ignore[arg-type]
    assert found.tobytes() == due.tobytes()
    assert left_in(folder) == []


class Restarted(TasksHere):
    """Every task runs on a worker that has just been started."""

    def map(self, work, items, progress=print):  # type: ignore[no-untyped-def]
        def fresh(item: Any) -> Any:
            forget()
            return work(item)

        return [fresh(item) for item in items]


class Repeated(TasksHere):
    """Every task of label propagation runs once more after those of the next batch."""

    def map(self, work, items, progress=print):  # type: ignore[no-untyped-def]
        found = super().map(work, items)
        for call, item, due in BEFORE:
            assert (call(item) == due).all()
        BEFORE[:] = [(work, *pair) for pair in zip(items, found, strict=True)]
        return found


BEFORE: list[tuple[Callable[[Any], Any], Any, Any]] = []


@pytest.mark.parametrize("kind", [Restarted, Repeated])
def test_calls_may_be_repeated_late_and_on_new_workers(
    tmp_path: Path, kind: type[TasksHere]
) -> None:
    csr = files_of(tmp_path / "csr", 60, 0.1, 1, True)
    choices = StreamTasks(csr, kind(tmp_path, 3)).choices(2, 40)
    BEFORE.clear()
    due, clusters = find_clusters(csr, 2, 40)
    # The last batch of a pass is not repeated in the next one, whose folder is another.
    found = find_clusters(csr, 2, 40, lambda *state: without_last(choices, state))
    assert found[1] == clusters < 60
    assert (found[0] == due).all()


def without_last(choices: Any, state: Sequence[Any]) -> Any:
    yield from choices(*state)
    BEFORE.clear()


def test_turns_change_nodes_of_their_own_partitions_only(tmp_path: Path) -> None:
    """Eight groups in two phases, against one after the other."""
    csr = files_of(tmp_path / "csr", 160, 0.05, 2, True)
    part = (np.arange(160) % 32).astype(np.int32)
    due, found = part.copy(), part.copy()
    refine(csr, due, 32, 1)
    sizes: list[int] = []

    class Counted(TasksHere):
        def map(self, work, items, progress=print):  # type: ignore[no-untyped-def]
            sizes.append(len(items))
            return super().map(work, items)

    turns = StreamTasks(csr, Counted(tmp_path, 2, order=lambda n: range(n)[::-1])).turns
    refine(csr, found, 32, 1, turns=turns)
    assert sizes[:2] == [4, 4]
    assert (due != part).any()
    assert (found == due).all()


def test_a_small_graph_chooses_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csr = files_of(tmp_path / "csr", 30, 0.3, 1, False)
    tasks = StreamTasks(csr, TasksHere(tmp_path))
    assert tasks.choices(1, 9) is not None
    monkeypatch.setattr(stream_tasks, "ROUND", 2)
    assert csr.indptr[-1] < 2 * 256
    assert tasks.choices(1, 9) is None


def test_a_file_of_another_size_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cutting(TasksHere):
        def map(self, work, items, progress=print):  # type: ignore[no-untyped-def]
            for path in self.folder.glob("stream-*/label"):
                path.write_bytes(path.read_bytes()[:-4])
            return super().map(work, items)

    csr = files_of(tmp_path / "csr", 60, 0.2, 1, True)
    tasks = StreamTasks(csr, Cutting(tmp_path))
    for size in (0, 1 << 30):  # label propagation by tasks; sampling alone
        monkeypatch.setattr(stream_tasks, "ROUND", size)
        with pytest.raises(StageError, match="another size"):
            divide(csr, 3, "stream", tasks=tasks)
        assert left_in(tmp_path) == []


def test_workers_of_a_cluster_make_the_bits_of_one_process(
    tmp_path: Path, client: Any
) -> None:
    csr = files_of(tmp_path / "csr", 50, 0.1, 3, True)
    tasks = StreamTasks(csr, tasks_on(client, tmp_path, 1 << 20))
    due, _ = divide(csr, 12, "stream", memory=8 * 50)
    found, _ = divide(csr, 12, "stream", memory=8 * 50, tasks=tasks)
    assert found.tobytes() == due.tobytes()
    assert left_in(tmp_path) == []
