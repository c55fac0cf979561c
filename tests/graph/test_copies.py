"""Decoded tables in temporary files: a run decodes each table once."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings, write_graph
from tests.disks import NoSmallDisk, mounted
from tests.graph.tasks import TasksHere, by_tasks, small_tasks
from tests.graph.test_prepare import digests
from xnq_dist import pipeline
from xnq_dist.core.errors import DoesNotFitError, StageError
from xnq_dist.core.leftovers import own_bytes
from xnq_dist.core.store import RunDirectory
from xnq_dist.due import nothing_changed, scratch_of
from xnq_dist.graph import copies, prepare
from xnq_dist.graph.edge_tasks import EdgeSort
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.parquet_tables import ParquetFile
from xnq_dist.graph.profile.inputs import answer_digests, profile_inputs, read_contents
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.text_tables import TextFile
from xnq_dist.plan import check_scratch_fits
from xnq_dist.quantify.communities import open_memberships


@pytest.fixture
def passes(monkeypatch):
    """How often all rows of each file were decoded, by its name."""
    found = Counter()

    def counted(real):
        def batches(self, *arguments):
            yield from real(self, *arguments)
            found[Path(self.path).name] += 1

        return batches

    for kind in (ParquetFile, TextFile):
        monkeypatch.setattr(kind, "batches", counted(kind.batches))
    return found


def rows_of(graph):
    """The tables of a graph, with plain columns of several types."""
    nodes, edges = map(pq.read_table, (graph.sources.nodes, graph.sources.edges))
    x = graph.features.astype(np.float64)
    columns = {
        "x0": x[:, 0],
        "x1": pa.array(x[:, 1], mask=x[:, 2] > 1),
        "town": np.where(x[:, 1] > 0, "north", "south"),
    }
    for name, values in columns.items():
        nodes = nodes.append_column(name, pa.array(values))
    return {"nodes": nodes.drop_columns("features"), "edges": edges}


def as_parquet(path, table):
    if "town" in table.column_names:
        # The dictionaries of the row groups differ.
        table = table.set_column(4, "town", table["town"].dictionary_encode())
    pq.write_table(table, f"{path}.parquet", row_group_size=97)


def as_folders(path, table):
    by = table.column_names[-1]  # the town, or the weight
    if by == "weight":
        table = table.set_column(2, by, pa.array(np.arange(len(table)) % 3))
    ds.write_dataset(
        table, path, format="parquet", partitioning=[by], partitioning_flavor="hive"
    )


FORMS = {
    "parquet": as_parquet,
    "text": lambda path, table: pacsv.write_csv(table, f"{path}.csv"),
    "folders": as_folders,
}


def written(folder, graph, form):
    """The tables of a graph in a form."""
    folder.mkdir()
    for name, table in rows_of(graph).items():
        FORMS[form](folder / name, table)
    return Sources(*(str(next(folder.glob(f"{n}*"))) for n in ("nodes", "edges")))


@pytest.fixture
def on_tasks(tmp_path, monkeypatch):
    """The option `workers` of `prepare`: tasks for few rows."""
    small_tasks(monkeypatch)
    (tmp_path / "tasks").mkdir()
    return by_tasks(TasksHere(tmp_path / "tasks"))


def new_run(path):
    run = RunDirectory(path)
    run.create()
    return run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tasks", [False, True], ids=["here", "tasks"])
def test_each_table_is_decoded_once_and_the_graph_is_the_same(
    tmp_path, monkeypatch, passes, form, tasks, on_tasks
):
    monkeypatch.setattr(copies, "BYTES", 1 << 10)
    graph = write_graph(tmp_path / "g", 300, 1500, weighted=True)
    sources = written(tmp_path / "in", graph, form)
    settings = small_settings(
        f"scratch={tmp_path}", "method=xnq+", "columns.scores=[x0]"
    )
    shared = on_tasks if tasks else nullcontext
    due = prepare.prepare(new_run(tmp_path / "due"), sources, settings, 3)
    passes.clear()
    run = new_run(tmp_path / "run")
    with sources.copied(settings.scratch) as copied:
        profile_inputs(copied, settings, run)
        kept = dict(passes)
        found = prepare.prepare(run, copied, settings, 3, workers=shared)
    # Text has one more pass, for the types of all values.
    once = 2 if form == "text" else 1
    files = {"folders": 5}.get(form, 2)
    assert sum(kept.values()) <= once * files
    assert passes == kept
    assert digests(found) == digests(due)
    assert found.facts == due.facts
    assert not list(tmp_path.glob("xnq-dist-*"))


def test_errors_name_the_row_of_the_users_file(tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "BYTES", 1)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [*range(9)], "b": ["x"] * 9, "c": [0.5] * 9}), path)
    with Sources(str(path), "").copied(None) as sources:
        table = sources.table("nodes", small_settings().input)
        assert len([*table.decoded(["b", "a"], 4)]) == 3
        found = [*table.batches(["a"], 2)]
        assert [batch.row(0) for batch in found][-1] == f"row 9 of {path}"
        assert [s.first for s in table.shares(4)] == [0, 4, 8]
        # Columns that the copy lacks are those of the file.
        rest = [*sources.table("nodes", small_settings().input).batches(["c", "a"])]
        assert rest[0].rows.to_pydict() == {"c": [0.5] * 9, "a": [*range(9)]}
        # A copy is of complete passes alone.
        other = replace(table, copy=copies.TableCopy(tmp_path / "other"))
        next(iter(other.decoded(["a"], 2)))
        assert other.copy.files == {}
        assert next(other.batches(["a"], 9)).rows.num_rows == 9


def test_temporary_files_that_fail_end_in_a_sentence(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [*range(40_000)]}), path)
    sources, named = Sources(str(path), ""), small_settings().input
    with sources.copied(str(tmp_path)) as copied:
        table = copied.table("nodes", named)
        [*table.decoded(["a"], 4)]
        next(tmp_path.glob("xnq-dist-*/nodes/*")).unlink()
        with pytest.raises(StageError, match=r"temporary files in .* cannot be read"):
            [*table.batches(["a"])]
    try:
        with (
            mounted(tmp_path / "small", "64k") as disk,
            pytest.raises(StageError, match=r"cannot be written .*set scratch"),
            sources.copied(str(disk.folder)) as copied,
        ):
            [*copied.table("nodes", named).decoded(["a"], 4)]
    except NoSmallDisk as error:
        pytest.skip(str(error))


def test_tasks_elsewhere_read_the_files_of_the_user(
    tmp_path, monkeypatch, passes, on_tasks
):
    graph = write_graph(tmp_path / "in")
    settings, run = small_settings(), new_run(tmp_path / "run")
    real = prepare.visible

    def apart(tasks, table):
        return not table.copy and real(tasks, table)

    monkeypatch.setattr(prepare, "visible", apart)
    with graph.sources.copied(None) as copied:
        profile_inputs(copied, settings, run)
        prepare.prepare(run, copied, settings, 2, workers=on_tasks)
    assert passes["edges.parquet"] > 1
    assert passes["nodes.parquet"] == 1


def test_nodes_are_decoded_once_for_new_edges(tmp_path, monkeypatch, passes):
    graph = write_graph(tmp_path / "in")
    settings, run = small_settings(), new_run(tmp_path / "run")
    # Digests of old tables are recalled, so unchanged tables are not read.
    monkeypatch.setattr("xnq_dist.graph.contents.RACY", 0)
    for rows in (2000, 1900):
        table = pq.read_table(graph.sources.edges)
        pq.write_table(table.slice(0, rows), graph.sources.edges)
        passes.clear()
        with graph.sources.copied(None) as copied:
            profile_inputs(copied, settings, run)
            made = prepare.prepare(run, copied, settings, 2)
        assert made.facts["counts"]["edges_read"] == rows
        assert passes == {"nodes.parquet": 1, "edges.parquet": 1}


def test_the_graph_is_of_the_copy_after_another_export(tmp_path, on_tasks):
    graph = write_graph(tmp_path / "in")
    edges = pq.read_table(graph.sources.edges)
    folder = tmp_path / "edges"
    folder.mkdir()
    pq.write_table(edges, folder / "1.parquet", row_group_size=400)
    sources = Sources(graph.sources.nodes, str(folder))
    settings, run = small_settings(), new_run(tmp_path / "run")
    due = prepare.prepare(new_run(tmp_path / "due"), sources, settings, 2)
    with sources.copied(None) as copied:
        profile_inputs(copied, settings, run)
        # Of another schema, in other row groups, and one file more.
        heavy = edges.append_column("weight", pa.array([0.5] * len(edges)))
        for name in ("1.parquet", "2.parquet"):
            pq.write_table(heavy.slice(9), folder / name, row_group_size=50)
        found = prepare.prepare(run, copied, settings, 2, workers=on_tasks)
    assert digests(found) == digests(due)
    assert found.facts == due.facts
    # Its digest is not taken for that of the new files.
    assert read_contents(run, sources, settings)["edges"] != found.inputs["edges"]


@pytest.mark.parametrize("form", ["parquet", "text"])
def test_tasks_need_the_copy_alone(tmp_path, monkeypatch, form, on_tasks):
    graph = write_graph(tmp_path / "g", 300, 1500)
    sources = written(tmp_path / "in", graph, form)
    settings, run = small_settings(), new_run(tmp_path / "run")
    real = EdgeSort.sort

    @wraps(real)
    def without_the_table(*arguments):
        hidden = Path(sources.edges)
        hidden.rename(tmp_path / "hidden")
        try:
            return real(*arguments)
        finally:
            (tmp_path / "hidden").rename(hidden)

    monkeypatch.setattr(EdgeSort, "sort", without_the_table)
    with sources.copied(None) as copied:
        profile_inputs(copied, settings, run)
        made = prepare.prepare(run, copied, settings, 2, workers=on_tasks)
    assert made.facts["counts"]["edges_read"] == len(graph.edges)


def test_a_share_has_the_copy_of_its_file_alone(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    for at in range(60):
        pq.write_table(pa.table({"a": [at]}), folder / f"{at:02}.parquet")
    with Sources(str(folder), "").copied(None) as sources:
        table = sources.table("nodes", small_settings().input)
        list(table.decoded(["a"], 4))
        shares = table.shares(1)
        assert {len(share.copy.files) for share in shares} == {1}
        values = [next(share.batches(["a"])).column("a")[0].as_py() for share in shares]
    assert values == [*range(60)]


def test_the_copies_count_once_in_the_check_of_the_disk(tmp_path, monkeypatch):
    graph = write_graph(tmp_path / "in")
    settings = small_settings(f"scratch={tmp_path}")
    plan = pipeline.estimate(graph.sources, settings)
    with graph.sources.copied(settings.scratch) as copied:
        profile_inputs(copied, settings, new_run(tmp_path / "run"))
        written = own_bytes(tmp_path)
        assert 0 < written <= plan.scratch_disk
        free = shutil._ntuple_diskusage(2**40, 2**40, plan.scratch_disk - written)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
        check_scratch_fits(plan, settings.scratch)
        free = free._replace(free=free.free - 1)
        with pytest.raises(DoesNotFitError, match="set scratch"):
            check_scratch_fits(plan, settings.scratch)


def test_digests_of_a_copy_are_taken_once_and_kept_if_the_table_is_the_same(
    tmp_path, monkeypatch, passes
):
    monkeypatch.setattr("xnq_dist.graph.contents.RACY", 0)
    graph = write_graph(tmp_path / "in")
    path = tmp_path / "in" / "members.parquet"
    rows = {"community": ["a", "b"] * 60, "node_id": [*range(120)]}
    pq.write_table(pa.table(rows), path)
    sources = Sources(graph.sources.nodes, graph.sources.edges, str(path))
    settings, run = small_settings(), new_run(tmp_path / "run")
    with sources.copied(None) as copied:
        profile_inputs(copied, settings, run)
        found = answer_digests(run, copied, settings, "given")
        ids = NodeIds(pa.array(range(600)))
        with open_memberships(None, ids, copied, settings, "given") as members:
            assert members.total == 120
    with sources.copied(None) as copied:
        profile_inputs(copied, settings, run)
        assert answer_digests(run, copied, settings, "given") == found
    assert set(passes.values()) == {1}
    # A table that changed just before is read by each run, and digested once in it.
    monkeypatch.setattr("xnq_dist.graph.contents.RACY", 1 << 62)
    path.touch()
    with sources.copied(None) as copied:
        assert answer_digests(run, copied, settings, "given") == found
        monkeypatch.setattr("xnq_dist.graph.contents._digests", None)
        assert answer_digests(run, copied, settings, "given") == found
    assert passes["members.parquet"] == 2


@pytest.mark.parametrize("there", [False, True])
def test_workers_elsewhere_see_copies_in_the_run_directory(tmp_path, there):
    sources, out = write_graph(tmp_path / "in").sources, tmp_path / "run"
    settings = small_settings("cluster.kind=address", "cluster.address=tcp://host:1")
    if there:
        out.mkdir()
    # As the command does.
    with sources.copied(scratch_of(RunDirectory(out), settings)) as copied:
        assert nothing_changed(str(out), copied, settings) is None
        with (
            pipeline.open_run(str(out), copied) as run,
            copied.copied(scratch_of(run, settings)) as seen,
        ):
            profile_inputs(seen, settings, run)
            assert [*out.glob("xnq-dist-*/edges/*")]
            prepare.prepare(run, seen, settings, 2)
    assert not [*out.glob("xnq-dist-*")]
