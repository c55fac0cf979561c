"""Only changed stages are computed, and the changes are reported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.conftest import SmallGraph, small_settings, with_graph, write_graph
from tests.test_pipeline import assert_same, attempts, relabel, whole_line
from xnq_dist import pipeline
from xnq_dist.core.errors import InputError, RunDirectoryError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.stages import STAGES, StageRecord
from xnq_dist.core.store import RunDirectory
from xnq_dist.due import due_stages, nothing_changed
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import Job, each_stage


@pytest.fixture
def client(thread_client: Any) -> Any:
    return thread_client


@pytest.fixture
def graph(tmp_path: Path) -> SmallGraph:
    return write_graph(tmp_path / "input", nodes=150, edges=500)


def members_of(graph: SmallGraph, name: str = "pages", shift: int = 0) -> Sources:
    """The graph with memberships: ten communities of at least 15 nodes."""
    nodes = np.arange(150)
    table = pa.table(
        {
            "community": [f"page {k}" for k in (nodes + shift) // 15],
            "node_id": nodes,
        }
    )
    path = graph.sources.nodes.replace("nodes.parquet", f"{name}.parquet")
    pq.write_table(table, path)
    return Sources(graph.sources.nodes, graph.sources.edges, path)


def redone(run: RunDirectory, before: dict[str, str]) -> set[str]:
    after = attempts(run)
    return {name for name in after if after[name] != before.get(name)}


QUICK = ("partitions=2", "reservoir.supersteps=3", "reservoir.dim=12")
SETTINGS = small_settings(*QUICK)


@pytest.fixture(scope="session")
def made_once(thread_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied."""
    folder = tmp_path_factory.mktemp("night")
    graph = write_graph(folder / "input", nodes=150, edges=500)
    whole_line(folder / "run", members_of(graph), SETTINGS, thread_client)
    return folder / "run"


@pytest.fixture
def run(made_once: Path, graph: SmallGraph, tmp_path: Path) -> RunDirectory:
    """A copy of that run, with the tables of this test in its record."""
    shutil.copytree(made_once, tmp_path / "run")
    sources = members_of(graph)
    return with_graph(tmp_path / "run", sources, SETTINGS)


READOUT = {"readout", "posteriors", "quantify"}
LATER = {"labels", *READOUT}
EMBEDDED = {"embeddings", *READOUT}
EVERY = {"graph", "embeddings", *LATER}


def other_labels(graph: SmallGraph) -> np.ndarray:
    """New labels, changed ones, and some that are gone."""
    labels = graph.labels.copy()
    labelled, free = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    labels[free[:6]] = 1
    labels[labelled[:3]] = 1 - labels[labelled[:3]]
    labels[labelled[3:5]] = -1
    return labels


def other_features(nodes: str) -> None:
    table = pq.read_table(nodes)
    flat = table["features"].combine_chunks().flatten().to_numpy().copy()
    flat[3] += 1
    column = pa.FixedSizeListArray.from_arrays(pa.array(flat), 5)
    at = table.schema.get_field_index("features")
    pq.write_table(table.set_column(at, "features", column), nodes)


def renamed_communities(memberships: str) -> None:
    table = pq.read_table(memberships)
    pq.write_table(table.rename_columns(["town", "node_id"]), memberships)


@pytest.mark.parametrize(
    ("change", "expected", "words"),
    [
        ("labels", LATER, "stage labels: done again, changed: labels: other values"),
        ("memberships", {"quantify"}, "memberships: other values, in 150 rows"),
        (
            "features",
            EVERY,
            "stage graph: done again, changed: features: other values, in 150 rows",
        ),
        ("features.scale=none", EVERY, 'features.scale: "auto" -> "none"'),
        ("input.duplicates=sum", EVERY, 'input.duplicates: "drop" -> "sum"'),
        ("method=xnq+", EMBEDDED, 'method: "xnq" -> "xnq+"'),
        ("reservoir.dim=13", EMBEDDED, "reservoir.dim: 12 -> 13"),
        ("readout.C=0.1", READOUT, "readout.C: 1 -> 0.1"),
        ("readout.folds=4", READOUT, "readout.folds: 5 -> 4"),
        ("readout.memory=1GiB", set(), ""),
        ("quantifier=pcc", {"quantify"}, 'changed: quantifier: "sld" -> "pcc"'),
        ("leiden.resolution=2", set(), ""),
        ("communities=leiden", {"quantify"}, "the memberships table is not used"),
        ("anomalies.rate=0.2", set(), ""),
        ("columns.community=town", set(), ""),
    ],
)
def test_a_change_redoes_the_stages_that_depend_on_it(
    tmp_path, graph, run, client, caplog, change, expected, words
):
    sources, settings, before = members_of(graph), SETTINGS, attempts(run)
    if change == "labels":
        relabel(sources.nodes, other_labels(graph))
    elif change == "memberships":
        sources = members_of(graph, shift=10)
    elif change == "features":
        other_features(sources.nodes)
    else:
        settings = small_settings(*QUICK, change)
    if change == "columns.community=town":
        renamed_communities(sources.memberships)
    assert {*due_stages(run, sources, settings)} == expected | {"published"}
    with caplog.at_level("INFO", "xnq_dist"):
        whole_line(run.uri, sources, settings, client)
    assert redone(run, before) == expected
    assert words in caplog.text
    assert caplog.text.count("is not used") <= 1
    assert due_stages(run, sources, settings) == ()
    if change == "labels":
        fresh = whole_line(tmp_path / "fresh", sources, settings, client)
        assert_same(fresh, run)


def test_other_edges_or_weights_make_every_stage_due(graph, run):
    sources = members_of(graph)
    edges = pq.read_table(sources.edges)
    weights = pa.array(np.full(len(edges), 0.5))
    for changed in (edges[:-1], edges.append_column("weight", weights)):
        pq.write_table(changed, sources.edges)
        assert {*due_stages(run, sources, SETTINGS)} == EVERY | {"published"}


def test_same_content_elsewhere_keeps_every_stage(tmp_path, graph, run):
    """Tables in folders that are named by date, in other files, formats and orders."""
    sources, paths = members_of(graph), {}
    for name in ("nodes", "edges", "memberships"):
        table = pq.read_table(getattr(sources, name))
        table = table.take(np.random.default_rng(0).permutation(len(table)))
        folder = tmp_path / "2026-01-02" / name
        folder.mkdir(parents=True)
        for at, part in enumerate((table[:37], table[37:])):
            if name == "nodes":  # lists are not written to CSV
                path = folder / f"part-{at}.parquet"
                pq.write_table(part, path, compression="gzip")
            else:
                pacsv.write_csv(part, folder / f"part-{at}.csv")
        paths[name] = str(folder)
    assert due_stages(run, Sources(**paths), SETTINGS) == ()


def test_labels_at_fault_are_refused_and_the_stages_stay(graph, run):
    sources, before = members_of(graph), attempts(run)
    relabel(sources.nodes, np.where(graph.labels >= 0, 1, -1))
    with pytest.raises(InputError, match=r"labels of \[1\]: label nodes of two"):
        with_graph(run.uri, sources, SETTINGS)
    assert attempts(run) == before


def test_other_nodes_are_another_graph(tmp_path, graph, run):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    table = pq.read_table(sources.nodes)
    ids = pa.array([*range(149), 999])
    pq.write_table(table.set_column(0, "node_id", ids), sources.nodes)
    words = r"another graph with 150 nodes, or .* has 150 nodes: choose"
    with pytest.raises(RunDirectoryError, match=words):
        with_graph(out, sources, SETTINGS)
    assert attempts(run) == before


def test_stages_are_kept_across_versions_of_the_package(
    tmp_path, graph, run, monkeypatch
):
    sources = members_of(graph)
    monkeypatch.setattr("xnq_dist._version.__version__", "99.0")
    monkeypatch.setattr(
        "xnq_dist.core.store.stage_folder.versions", lambda: {"xnq-dist": "99.0"}
    )
    assert due_stages(run, sources, SETTINGS) == ()
    newer = replace(STAGES["readout"], format=99)
    monkeypatch.setitem(STAGES, "readout", newer)
    due = due_stages(run, sources, SETTINGS)
    assert due == ("readout", "posteriors", "quantify", "published")


@pytest.mark.parametrize("damage", ["cut", "digest", "key"])
def test_a_damaged_record_of_the_run_is_written_again(tmp_path, graph, run, damage):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    path = out / "_run.json"
    whole = path.read_bytes()
    digest = json.loads(whole)["nodes"]["digest"].encode()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "digest": whole.replace(digest, digest[::-1]),
            "key": whole.replace(b'"nodes"', b'"nodez"', 1),
        }[damage]
    )
    assert path.read_bytes() != whole
    with_graph(run.uri, sources, SETTINGS)
    assert redone(run, before) == set()
    assert path.read_bytes() == whole
    path.write_bytes(b"")
    # Opened by a run that finds nothing else to do: it writes tables and settings.
    with pipeline.open_run(run.uri, sources):
        assert due_stages(run, sources, SETTINGS) == ("published",)
    # The run directory still knows the graph that it was made from.
    path.write_bytes(b"")
    other = write_graph(tmp_path / "other", nodes=120, edges=300).sources
    with pytest.raises(RunDirectoryError, match="another graph with 150 nodes"):
        with_graph(out, other, SETTINGS)


def test_each_lost_stage_is_due_with_what_follows(tmp_path, graph, run):
    out, sources = tmp_path / "run", members_of(graph)
    follows = {
        "quantify": {"quantify"},
        "posteriors": {"posteriors", "quantify"},
        "readout": READOUT,
        "labels": LATER,
        "embeddings": EMBEDDED,
        "graph": EVERY,
    }
    for name, expected in follows.items():
        manifest = out / name / "_manifest.json"
        text = manifest.read_bytes()
        manifest.unlink()
        assert set(due_stages(run, sources, SETTINGS)) == expected | {"published"}
        manifest.write_bytes(text)
    assert due_stages(run, sources, SETTINGS) == ()
    assert set(follows) < set(STAGES)


def test_a_job_makes_every_stage_in_their_order():
    class Listed:
        first, done = "graph", []

        def do(self, name):
            self.done.append(name)

    each_stage(Listed())
    assert [*dict.fromkeys(row.made_by for row in STAGES.values())] == Listed.done


def test_a_row_and_a_function_are_a_stage(tmp_path, graph, client, monkeypatch):
    called = []
    row = StageRecord("more", 1, "more", after=("posteriors",))
    monkeypatch.setitem(STAGES, row.name, row)
    monkeypatch.setattr(pipeline, "more", lambda *given: called.append(given), False)
    run, sources = RunDirectory(tmp_path / "run"), members_of(graph)
    job = Job(run, sources, *[SETTINGS] * 2, object(), client)
    job.due = ["more"]
    monkeypatch.setattr(Job, "labels", lambda job, progress: None)
    each_stage(job)
    assert [(*given[:3],) for given in called] == [(run, SETTINGS, client)]
    assert [*job.made] == ["labels", "more"]


def test_results_that_are_gone_are_published_again(tmp_path, graph, run, client):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    (out / "prevalence.parquet").unlink()
    assert due_stages(run, sources, SETTINGS) == ("published",)
    assert nothing_changed(str(out), sources, SETTINGS) is None
    whole_line(out, sources, SETTINGS, client)
    assert redone(run, before) == set()
    assert (out / "prevalence.parquet").exists()


COMMAND = """
import sys, json, psutil
from xnq_dist.app.cli import main
seen = []
def children():
    return [child.name() for child in psutil.Process().children(recursive=True)]
try:
    main(sys.argv[1:])
finally:
    heavy = ("prefect", "distributed", "dask", "sklearn", "matplotlib", "numba")
    print(json.dumps({
        "children": children(),
        "modules": [name for name in heavy if name in sys.modules],
    }))
"""


def command(*arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The command line in a process of its own, and what that process holds last."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done, json.loads(done.stdout.splitlines()[-1])


def test_the_command_ends_at_once_when_nothing_changed(
    tmp_path, graph, run, monkeypatch
):
    out, sources = tmp_path / "run", members_of(graph)
    # Digests of old tables are recalled, so the tables are not read.
    monkeypatch.setattr("xnq_dist.graph.contents.RACY", 0)
    assert nothing_changed(str(out), sources, SETTINGS) is not None
    config = tmp_path / "settings.json"
    config.write_text(SETTINGS.model_dump_json())
    arguments = ["--nodes", sources.nodes, "--edges", sources.edges]
    arguments += ["--memberships", str(sources.memberships), "--out", str(out)]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    done, held = command("run", *arguments, "--config", str(config), "--json")
    assert done.returncode == 0, done.stderr
    assert "nothing changed since" in done.stderr
    assert held == {"children": [], "modules": []}
    summary = json.loads(done.stdout.splitlines()[-2])
    assert summary["communities"] == 10
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    # When this command ended is told.
    told = {out / "_status.json"}
    assert {path: time for path, time in after.items() if path not in told} == before
    # The same tables are elsewhere: later commands look for them there.
    moved = Sources(sources.nodes, sources.edges, str(tmp_path / "moved.parquet"))
    Path(str(sources.memberships)).rename(str(moved.memberships))
    assert nothing_changed(str(out), moved, SETTINGS) is not None
    assert RunRecord.read(run).sources == moved.absolute()
