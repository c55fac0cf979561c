"""The stage ``graph`` by tasks against the stage in one process: the same bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.graph.graphs import edge_table, node_table, run
from tests.graph.tasks import TasksHere, by_tasks, small_tasks
from tests.graph.test_prepare import digests
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.graph.edge_tasks import visible
from xnq_dist.graph.tables import open_table


@pytest.fixture(autouse=True)
def small(monkeypatch):
    small_tasks(monkeypatch)


@pytest.mark.parametrize(
    ("partitioner", "directed", "weighted"),
    [("metis", True, True), ("stream", False, False), ("metis", False, True)],
)
def test_the_stage_has_the_same_files_and_facts(
    tmp_path, partitioner, directed, weighted
):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 300, (2000, 2))
    more = {"weight": rng.random(2000)} if weighted else {}
    links = edge_table([tuple(row) for row in rows.tolist()], **more)
    links = [links.slice(at, 97) for at in range(0, 2000, 97)]

    def made(name, **options):
        """With rho, and the distances that an automatic length needs."""
        return run(
            tmp_path / name,
            node_table(300),
            links,
            f"partitioner={partitioner}",
            f"input.directed={directed}",
            "input.duplicates=sum",
            "reservoir.supersteps=auto",
            partitions=5,
            **options,
        )[1]

    due = made("alone")
    assert due.facts["rho"] > 1 < due.facts["effective_diameter"]
    for slots, memory in ((1, 1 << 20), (3, 1 << 12)):
        shared = tmp_path / f"shared-{slots}"
        shared.mkdir()
        tasks = TasksHere(shared, slots, memory)
        found = made(f"by-tasks-{slots}", workers=by_tasks(tasks))
        assert digests(found) == digests(due)
        assert found.facts == due.facts
        assert (shared / "csr").exists()


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
    base = {"src": pa.array(range(40)), "dst": pa.array([0] * 40)}
    table = pa.table(base | columns)
    links = [table.slice(at, 4) for at in range(0, 40, 4)]
    (tmp_path / "shared").mkdir()
    tasks = TasksHere(tmp_path / "shared", order=lambda count: range(count)[::-1])
    found = []
    for name, options in (
        ("alone", {}),
        ("tasks", {"workers": by_tasks(tasks)}),
    ):
        with pytest.raises(InputError) as caught:
            run(tmp_path / name, node_table(40), links, **options)
        found.append(str(caught.value).replace(f"/{name}/", "/"))
    assert found[0] == found[1]


def test_a_file_of_another_size_is_refused(tmp_path):
    class Cutting(TasksHere):
        def map(self, work, items, progress=print):
            for path in self.folder.glob("run-*"):
                path.write_bytes(path.read_bytes()[:-8])
            return super().map(work, items)

    (tmp_path / "shared").mkdir()
    tasks = by_tasks(Cutting(tmp_path / "shared"))
    with pytest.raises(StageError, match="another size"):
        run(tmp_path, node_table(4), edge_table(), workers=tasks)


def test_workers_that_see_no_table_are_noticed(tmp_path):
    class Elsewhere(TasksHere):
        def everywhere(self, function):
            found = function()
            path.rename(tmp_path / "moved")
            return [found, function()]

    path = tmp_path / "edges.csv"
    path.write_text("src,dst\n1,2\n")
    table = open_table(path, "edge table", load_settings().input)
    (tmp_path / "shared").mkdir()
    assert visible(TasksHere(tmp_path / "shared"), table)
    assert not visible(Elsewhere(tmp_path / "shared"), table)
