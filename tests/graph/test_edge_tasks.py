"""Edges sorted by tasks in any order against edges sorted in memory: the same bits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import edges
from tests.graph.tasks import TasksHere
from tests.graph.test_prepare import ids_for
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.tasks import Tasks
from xnq_dist.graph import edge_tasks
from xnq_dist.graph.edge_tasks import read_edges, visible
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import open_table


@pytest.fixture(autouse=True)
def small_shares(monkeypatch):
    monkeypatch.setattr(edge_tasks, "ROWS", 1)
    monkeypatch.setattr(edge_tasks, "PAIRS", 1)


def read_both(folder, path, ids, chosen, tasks):
    table = open_table(path, "edge table", chosen.input)
    where = table, ids, chosen.columns, chosen.input
    (folder / "alone").mkdir()
    tasks.folder.mkdir()
    alone = Tasks(folder / "alone", 1, 1 << 30)
    return [read_edges(*where, each) for each in (alone, tasks)]


def assert_same(found):
    (alone, counts), (shared, shared_counts) = found
    assert counts == shared_counts
    assert alone.weighted == shared.weighted
    assert (alone.indptr == shared.indptr).all()
    for one, other in zip(alone.arrays(), shared.arrays(), strict=True):
        assert one.tobytes() == other.tobytes()


@settings(max_examples=60)
@given(
    graph=edges(),
    kind=st.sampled_from(["string", "dense", "sparse"]),
    memory=st.sampled_from([1, 1 << 20]),
    slots=st.integers(1, 4),
    files=st.integers(1, 3),
    group=st.integers(1, 9),
    missing=st.integers(0, 2),
    order=st.randoms(use_true_random=False),
)
def test_tasks_make_the_bits_of_one_process(
    tmp_path_factory,
    graph,
    kind,
    memory,
    slots,
    files,
    group,
    missing,
    order,
):
    folder = tmp_path_factory.mktemp("edges")
    names = ids_for(graph.n, kind)
    source, target, weight = (list(column) for column in zip(*graph.rows, strict=True))
    table = pa.table(
        {"src": names.take(pa.array(source)), "dst": names.take(pa.array(target))}
        | ({"weight": pa.array(weight, pa.float64())} if graph.weighted else {})
    )
    (folder / "table").mkdir()
    cuts = np.linspace(0, len(table), files + 1).astype(int)
    for number, (first, last) in enumerate(pairwise(cuts)):
        part = table.slice(first, last - first)
        pq.write_table(part, folder / f"table/{number}.parquet", row_group_size=group)
    chosen = load_settings(
        overrides=[
            f"input.directed={graph.directed}",
            f"input.duplicates={graph.duplicates}",
            "input.unknown_nodes=drop",
        ]
    )
    ids, _ = NodeIds.from_column(pa.chunked_array([names[: graph.n - missing]]))

    def shuffled(count):
        numbers = list(range(count))
        order.shuffle(numbers)
        return numbers

    tasks = TasksHere(folder / "shared", slots, memory, shuffled)
    found = read_both(folder, folder / "table", ids, chosen, tasks)
    assert_same(found)
    for where in ("alone", "shared"):
        # Nothing else is left.
        assert [path.name for path in (folder / where).iterdir()] == ["csr"]


def test_files_without_row_groups_are_read_complete(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "table").mkdir()
    for number in range(3):
        pairs = rng.integers(0, 50, (100, 2))
        table = pa.table({"src": pairs[:, 0], "dst": pairs[:, 1]})
        pyarrow.csv.write_csv(table, tmp_path / f"table/{number}.csv")
    ids, _ = NodeIds.from_column(pa.chunked_array([pa.array(range(50))]))
    tasks = TasksHere(tmp_path / "shared")
    assert_same(read_both(tmp_path, tmp_path / "table", ids, load_settings(), tasks))


def table_with(tmp_path, **columns):
    """A table of 40 rows in row groups of 4."""
    base = {"src": pa.array(range(40)), "dst": pa.array([0] * 40)}
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table(base | columns), path, row_group_size=4)
    return path


def message(call):
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    "columns",
    [
        {"dst": [0] * 21 + [77] + [0] * 15 + [78, 0, 0]},
        {"weight": [1.0] * 9 + [-1.0] + [1.0] * 29 + [float("nan")]},
        {"src": [None if at in (30, 39) else at for at in range(40)]},
        {
            "src": [at % 20 for at in range(40)],
            "weight": [1.0] * 30 + [2.0] * 10,
        },
    ],
    ids=["unknown node", "negative weight", "null id", "conflict"],
)
def test_the_first_fault_of_the_table_is_named(tmp_path, columns):
    path = table_with(tmp_path, **columns)
    chosen = load_settings()
    ids, _ = NodeIds.from_column(pa.chunked_array([pa.array(range(40))]))
    table = open_table(path, "edge table", chosen.input)
    where = table, ids, chosen.columns, chosen.input
    (tmp_path / "shared").mkdir()
    (tmp_path / "alone").mkdir()
    tasks = TasksHere(tmp_path / "shared", order=lambda count: range(count)[::-1])
    alone = Tasks(tmp_path / "alone", 1, 1 << 30)
    due = message(lambda: read_edges(*where, alone))
    assert message(lambda: read_edges(*where, tasks)) == due
    for slots in (1, 2):
        small = Tasks(tmp_path / "shared", slots, 64)
        assert message(lambda: read_edges(*where, small)) == due  # noqa: B023


def test_a_file_of_another_size_is_refused(tmp_path):
    class Cutting(TasksHere):
        def map(self, work, items, progress=print):
            for path in self.folder.glob("run-*.keys"):
                path.write_bytes(path.read_bytes()[:-8])
            return super().map(work, items)

    path, chosen = table_with(tmp_path), load_settings()
    ids, _ = NodeIds.from_column(pa.chunked_array([pa.array(range(40))]))
    table = open_table(path, "edge table", chosen.input)
    (tmp_path / "shared").mkdir()
    where = table, ids, chosen.columns, chosen.input
    with pytest.raises(StageError, match="another size"):
        read_edges(*where, Cutting(tmp_path / "shared"))


def test_workers_that_see_no_table_are_noticed(tmp_path):
    class Elsewhere(TasksHere):
        def everywhere(self, function):
            found = function()
            path.rename(tmp_path / "moved")
            return [found, function()]

    path = table_with(tmp_path)
    table = open_table(path, "edge table", load_settings().input)
    (tmp_path / "shared").mkdir()
    assert visible(TasksHere(tmp_path / "shared"), table)
    assert not visible(Elsewhere(tmp_path / "shared"), table)
