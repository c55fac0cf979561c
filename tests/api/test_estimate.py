"""One graph in many forms gives one result, in one process and without Prefect."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import write_graph
from xnq_dist import PrevalenceResult, estimate_prevalence
from xnq_dist.api.estimate import settings_of
from xnq_dist.core import cluster
from xnq_dist.core.clusters import local
from xnq_dist.core.errors import InputError, RunDirectoryError, SettingsError
from xnq_dist.graph.sources import Sources

FAST: dict[str, Any] = {
    "method": "xnq",
    "backend": "cpu",
    "reservoir": {
        "dim": 16,
        "supersteps": 3,
        "recurrent_scale": 2.0,
        "input_scale": 0.5,
    },
    "readout__C": 1.0,
    "partitions": 1,
}
MEMBERS = {"<b>p</b>": list(range(40)), "q": list(range(30, 120)), "tiny": [1, 2, 3]}


def people(folder: Path) -> tuple[Sources, pa.Table, pa.Table]:
    """120 nodes with words as labels: the files, and the tables in them."""
    sources = write_graph(folder, nodes=120, edges=500).sources
    nodes, edges = (pq.read_table(path) for path in (sources.nodes, sources.edges))
    words = pa.array(["human", "bot"]).take(nodes["label"].combine_chunks())
    nodes = nodes.set_column(1, "label", words)
    pq.write_table(nodes, sources.nodes)
    return sources, nodes, edges


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    sources, nodes, edges = people(tmp_path_factory.mktemp("graph"))
    return SimpleNamespace(nodes=nodes, edges=edges, sources=sources)


@pytest.fixture(scope="module")
def result(graph: SimpleNamespace) -> PrevalenceResult:
    return estimate_prevalence(
        graph.nodes.to_pandas(), pl.from_arrow(graph.edges), MEMBERS, **FAST
    )


def values(result: PrevalenceResult) -> pa.Table:
    return result.prevalence.drop_columns("run_id")


def test_paths_and_frames_give_the_same_bits(graph, result, tmp_path):
    members = [(name, node) for name, nodes in MEMBERS.items() for node in nodes]
    columns = [pa.array(column) for column in zip(*members, strict=True)]
    table = pa.table(columns, ["community", "node_id"])
    pq.write_table(table, tmp_path / "members.parquet")
    said: list[tuple[str, int, int]] = []
    again = estimate_prevalence(
        graph.sources.nodes,
        graph.sources.edges,
        tmp_path / "members.parquet",
        out=tmp_path / "out",
        progress=lambda *step: said.append(step),
        **FAST,
    )
    assert values(again).equals(values(result))
    assert Path(again.report) == tmp_path / "out" / "report.html"
    assert {text.partition(":")[0] for text, _, _ in said} >= {"graph", "readout"}


def test_the_result_has_its_tables_for_arrow_pandas_and_polars(result):
    assert result.classes == ["bot", "human"]
    assert result.prevalence["community"].unique().to_pylist() == list(MEMBERS)
    assert result.posteriors.column_names == ["node_id", *result.classes, "out_of_fold"]
    assert result.posteriors["node_id"].to_pylist() == list(range(120))
    sums = np.add(*(result.posteriors[name].to_numpy() for name in result.classes))
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    assert len(result.to_pandas()) == 6
    assert result.anomalies is not None


def test_a_notebook_escapes_names_and_hides_suppressed_communities(result):
    html = result._repr_html_()
    assert "&lt;b&gt;p&lt;/b&gt;" in html
    assert "<b>" not in html
    assert "<script" not in html
    assert "<td>q</td>" in html
    assert "tiny" not in html
    assert "report.html" in html
    assert len(html) < 8192
    assert repr(result).startswith("PrevalenceResult: 3 communities, 2 classes")


def test_a_result_does_not_mix_with_those_of_a_newer_run(graph, result, tmp_path):
    shutil.copytree(result.run, tmp_path / "run")
    before = PrevalenceResult(tmp_path / "run")
    tables = graph.nodes, graph.edges, MEMBERS
    estimate_prevalence(*tables, out=tmp_path / "run", seed=5, **FAST)
    assert values(before).equals(values(result))
    with pytest.raises(RunDirectoryError, match="newer results than"):
        _ = before.posteriors


def test_a_pickled_result_is_complete_in_itself(result, tmp_path):
    shutil.copytree(result.run, tmp_path / "run")
    copied = PrevalenceResult(tmp_path / "run")
    text = pickle.dumps(copied)
    (tmp_path / "run").rename(tmp_path / "gone")
    read = pickle.loads(text)  # noqa: S301 - made above
    assert read.posteriors.equals(result.posteriors)
    assert read._repr_html_().count("<tr>") == result._repr_html_().count("<tr>")


def test_temporary_folders_go_with_their_result(graph, result, tmp_path, monkeypatch):
    folder = Path(result.run).parent
    assert folder.is_dir()
    # Runs delete such folders of processes that were killed.
    assert f"-{os.getpid()}-" in folder.name
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InputError) as error:
        estimate_prevalence(graph.nodes, graph.edges, MEMBERS, columns__src="from")
    assert str(error.value).startswith("edges.parquet has no column 'from'")
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_settings_are_named_as_on_the_command_line():
    implied = {"columns.features": None, "readout.folds": 7}
    given = {"seed": 3, "readout__folds": 4, "readout": {"C": 2.0}}
    made = settings_of({**implied, **given})
    assert (made.seed, made.readout.folds, made.readout.C) == (3, 4, 2.0)
    assert made.columns.features is None
    assert settings_of({"labels.drawn": "random"}).labels.drawn == "random"
    assert settings_of({"cluster__slurm__wait": 9}).cluster.slurm.wait == 9
    with pytest.raises(SettingsError, match=r"readout.fold: unknown .*readout.folds"):
        settings_of({"readout__fold": 4})


def test_findings_name_their_column_and_the_setting_that_accepts_them(graph):
    labels = graph.nodes["label"].to_pylist()
    labels = [f" {v}" if v and at < 60 else v for at, v in enumerate(labels)]
    given = graph.nodes, graph.edges, MEMBERS
    with pytest.raises(InputError, match=r"checks.accept=\[label-case\]"):
        estimate_prevalence(*given, labels=labels, **FAST)
    accept = ["label-case"]
    (found,) = estimate_prevalence(
        *given, labels=labels, checks__accept=accept, **FAST
    ).findings
    assert (found.code, found.level) == ("label-case", "note")
    assert (found.table, found.column) == ("nodes", "label")


def test_a_single_process_takes_work_from_itself_alone():
    settings = settings_of({"cluster__workers": 1, "cluster__threads": 1})
    before = {each.laddr for each in psutil.Process().net_connections()}
    with cluster.open_cluster(settings.cluster) as connection:
        assert connection.address.startswith("inproc://")
        opened = {each.laddr for each in psutil.Process().net_connections()} - before
        # The HTTP servers of Dask, without any page.
        assert {address.ip for address in opened} <= {"127.0.0.1"}


PROGRAM = """
import sys
import numpy as np
from xnq_dist import estimate_prevalence
from xnq_dist.core.errors import SettingsError
ends = np.arange(40)
matrix = np.zeros((40, 40))
matrix[ends, (ends + 2) % 40] = 1
labels = (ends % 2).astype(float)
try:
    estimate_prevalence(matrix, labels=labels, cluster={"kind": "local"})
except SettingsError as error:
    assert "program that is read from standard input: save it as a file" in str(error)
else:
    raise AssertionError("workers have started")
estimate_prevalence(matrix, memberships=[[0, 1]], labels=labels, **{settings})
assert "prefect" not in sys.modules
"""


def test_a_program_on_standard_input_runs_in_one_process_and_without_prefect():
    done = subprocess.run(
        [sys.executable, "-"],
        input=PROGRAM.replace("{settings}", repr({**FAST, "quantifier": "cc"})),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


FORKING = """
import multiprocessing
import numpy as np
from xnq_dist import estimate_prevalence
ends = np.arange(40)
matrix = np.zeros((40, 40))
matrix[ends, (ends + 2) % 40] = 1
labels = (ends % 2).astype(float)

def rows(_turn):
    result = estimate_prevalence(
        matrix, memberships=[[0, 1]], labels=labels, **{settings}
    )
    return result.prevalence.num_rows

with multiprocessing.get_context("fork").Pool(1) as before:
    there = rows(0)
    with multiprocessing.get_context("fork").Pool(1) as after:
        assert after.map_async(rows, [0, 1]).get(120) == [there, there]
    assert before.map_async(rows, [0]).get(120) == [there]
"""


def test_a_process_forked_after_a_computation_computes_too():
    done = subprocess.run(
        [sys.executable, "-c", FORKING.replace("{settings}", repr(FAST))],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_a_program_whose_statements_workers_would_repeat_is_refused(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "script.py"
    main = SimpleNamespace(__file__=str(script), __spec__=None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    script.write_text('if __name__ == "__main__":\n    run()\n')
    local.check_program()
    script.write_text("run()\n")
    with pytest.raises(SettingsError, match="put its statements under if __name__ =="):
        local.check_program()
    monkeypatch.delattr(main, "__file__")
    local.check_program()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(SettingsError, match="which cannot be written"):
        local.check_program()
