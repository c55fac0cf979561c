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

from tests.conftest import SmallGraph, published_values, small_settings, write_graph
from xnq_dist import pipeline
from xnq_dist.core.errors import InputError, RunDirectoryError
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import RunDirectory
from xnq_dist.due import due_stages, nothing_changed
from xnq_dist.graph.tables import Sources

NAMES = ("graph", "select", "embeddings", "labels", "readout", "posteriors", "quantify")


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


def relabelled(graph: SmallGraph, labels: np.ndarray, name: str = "nodes") -> Sources:
    """The graph's node table with other labels."""
    table = pq.read_table(graph.sources.nodes)
    at = table.schema.get_field_index("label")
    column = pa.array(labels.astype(np.int64), mask=labels < 0)
    path = graph.sources.nodes.replace("nodes.parquet", f"{name}.parquet")
    pq.write_table(table.set_column(at, "label", column), path)
    return Sources(path, graph.sources.edges, graph.sources.memberships)


def night(out: Path, sources: Sources, settings: Any, client: Any) -> RunDirectory:
    """One run, in which a stage is computed only if it is due."""
    with pipeline.open_run(str(out), sources) as run:
        pipeline.prepare(run, sources, settings)
        pipeline.embed(run, settings, client)
        pipeline.fit_readout(run, settings, client)
        pipeline.posteriors(run, settings, client)
        pipeline.quantify(run, sources, settings, client)
        pipeline.publish(run, settings)
    return run


def attempts(run: RunDirectory) -> dict[str, str]:
    found = {name: run.stage(name).manifest() for name in NAMES}
    return {name: made.attempt for name, made in found.items() if made is not None}


def redone(run: RunDirectory, before: dict[str, str]) -> set[str]:
    after = attempts(run)
    return {name for name in after if after[name] != before.get(name)}


def answers(run: RunDirectory) -> dict[str, list[dict[str, Any]]]:
    """The published values without names of the run."""
    return {
        name: published_values(run.uri, name).to_pylist()
        for name in ("prevalence", "partitions")
    }


SETTINGS = small_settings("partitions=2", "reservoir.supersteps=3", "reservoir.dim=12")


@pytest.fixture(scope="session")
def made_once(thread_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied."""
    folder = tmp_path_factory.mktemp("night")
    graph = write_graph(folder / "input", nodes=150, edges=500)
    night(folder / "run", members_of(graph), SETTINGS, thread_client)
    return folder / "run"


@pytest.fixture
def run(
    made_once: Path, graph: SmallGraph, client: Any, tmp_path: Path
) -> RunDirectory:
    """A copy of that run, repeated with the tables of this test."""
    shutil.copytree(made_once, tmp_path / "run")
    return night(tmp_path / "run", members_of(graph), SETTINGS, client)


LATER = {"labels", "readout", "posteriors", "quantify"}


def test_new_labels_redo_the_readout_and_what_follows(
    tmp_path, graph, run, client, caplog
):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    labels = graph.labels.copy()
    labelled, free = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    labels[free[:4]] = 1
    labels[labelled[:3]] = 1 - labels[labelled[:3]]
    labels[labelled[3:5]] = -1
    new = relabelled(SmallGraph(sources, *vars_of(graph)), labels)
    assert due_stages(run, new, SETTINGS) == (
        *("labels", "readout", "posteriors", "quantify"),
        "published",
    )
    with caplog.at_level("INFO", "xnq_dist"):
        night(out, new, SETTINGS, client)
    assert redone(run, before) == LATER
    assert "stage labels: done again, changed: labels" in caplog.text
    assert "readout and quantify are done again" in caplog.text
    # The results equal those of a new run.
    fresh = night(tmp_path / "fresh", new, SETTINGS, client)
    assert answers(fresh) == answers(run)


def vars_of(graph: SmallGraph) -> tuple[Any, ...]:
    return graph.features, graph.edges, graph.labels


def test_new_memberships_redo_the_quantification_alone(
    tmp_path, graph, run, client, caplog
):
    out = tmp_path / "run"
    before = attempts(run)
    new = members_of(graph, shift=10)
    assert due_stages(run, new, SETTINGS) == ("quantify", "published")
    with caplog.at_level("INFO", "xnq_dist"):
        night(out, new, SETTINGS, client)
    assert redone(run, before) == {"quantify"}
    assert "memberships: 150 as before, but with other values" in caplog.text
    fresh = night(tmp_path / "fresh", new, SETTINGS, client)
    assert answers(fresh) == answers(run)


@pytest.mark.parametrize("form", ["moved", "split", "csv", "shuffled"])
def test_same_content_elsewhere_keeps_every_stage(tmp_path, graph, run, client, form):
    """Tables in folders that are named by date."""
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    folder = tmp_path / "2026-01-02"
    paths = {}
    for name in ("nodes", "edges", "memberships"):
        table = pq.read_table(getattr(sources, name))
        (folder / name).mkdir(parents=True)
        if form == "shuffled":
            table = table.take(np.random.default_rng(0).permutation(len(table)))
        parts = [table]
        if form == "split":
            parts = [table[:37], table[37:]]
        for at, part in enumerate(parts):
            path = folder / name / f"part-{at}.parquet"
            if form == "csv" and name != "nodes":  # lists are not written to CSV
                pacsv.write_csv(part, path.with_suffix(".csv"))
            else:
                pq.write_table(part, path, compression="gzip")
        paths[name] = str(folder / name)
    elsewhere = Sources(**paths)
    assert due_stages(run, elsewhere, SETTINGS) == ()
    night(out, elsewhere, SETTINGS, client)
    assert redone(run, before) == set()


@pytest.mark.parametrize("what", ["edges", "weights", "features"])
def test_other_edges_or_features_redo_everything(
    tmp_path, graph, run, client, caplog, what
):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    edges, nodes = pq.read_table(sources.edges), pq.read_table(sources.nodes)
    words = "edges: 500 as before, but with other values"
    if what == "edges":
        edges = edges[:-1]
        words = f"edges: {len(edges):,} instead of {len(edges) + 1:,}"
    elif what == "weights":
        words = f"edges: {len(edges):,} as before, but with other values"
        edges = edges.append_column("weight", pa.array(np.full(len(edges), 0.5)))
    else:
        words = "features: 150 as before, but with other values"
        flat = nodes["features"].combine_chunks().flatten().to_numpy().copy()
        flat[3] += 1
        at = nodes.schema.get_field_index("features")
        column = pa.FixedSizeListArray.from_arrays(pa.array(flat), 5)
        nodes = nodes.set_column(at, "features", column)
    pq.write_table(edges, sources.edges)
    pq.write_table(nodes, sources.nodes)
    due = due_stages(run, sources, SETTINGS)
    assert set(due) == {"graph", "embeddings", "published", *LATER}
    with caplog.at_level("INFO", "xnq_dist"):
        night(out, sources, SETTINGS, client)
    assert redone(run, before) == {"graph", "embeddings", *LATER}
    assert (
        f"stage graph: done again, changed: {words}: the graph is partitioned and "
        "embedded again" in caplog.text
    )


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("quantifier=pcc", {"quantify"}),
        ("labelled=exclude", {"quantify"}),
        ("readout.C=0.1", {"readout", "posteriors", "quantify"}),
        ("reservoir.dim=13", {"embeddings", "readout", "posteriors", "quantify"}),
        ("anomalies.rate=0.2", set()),
        ("cluster.threads=2", set()),
        ("columns.community=town", set()),
    ],
)
def test_settings_redo_what_depends_on_them(
    tmp_path, graph, run, client, override, expected, caplog
):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    changed = small_settings(
        "partitions=2", "reservoir.supersteps=3", "reservoir.dim=12", override
    )
    if override.startswith("columns."):
        table = pq.read_table(sources.memberships)
        table = table.rename_columns(["town", "node_id"])
        pq.write_table(table, sources.memberships)
    due = due_stages(run, sources, changed)
    assert set(due) == expected | {"published"}
    with caplog.at_level("INFO", "xnq_dist"):
        night(out, sources, changed, client)
    assert redone(run, before) == expected
    if override == "quantifier=pcc":
        words = 'stage quantify: done again, changed: quantifier: "sld" -> "pcc"'
        assert words in caplog.text
    assert due_stages(run, sources, changed) == ()


def test_selected_scales_that_stay_keep_the_embeddings(tmp_path, graph, client):
    settings = small_settings(
        "partitions=2", "reservoir.supersteps=3", "reservoir.recurrent_scale=select"
    )
    out, sources = tmp_path / "run", members_of(graph)
    run = night(out, sources, settings, client)
    before = attempts(run)
    chosen = run.stage("select").manifest().facts["recurrent_scale"]
    labels = graph.labels.copy()
    labels[np.flatnonzero(labels < 0)[:1]] = 1
    new = relabelled(SmallGraph(sources, *vars_of(graph)), labels)
    night(out, new, settings, client)
    again = run.stage("select").manifest().facts["recurrent_scale"]
    expected = {"select", *LATER}
    if again != chosen:
        expected |= {"embeddings"}
    assert redone(run, before) == expected


def test_labels_at_fault_are_refused_and_the_stages_stay(graph, run):
    before = attempts(run)
    lone = relabelled(graph, np.where(graph.labels >= 0, 1, -1))
    with (
        pytest.raises(InputError, match="holds a single class, 1"),
        pipeline.open_run(run.uri, lone) as held,
    ):
        pipeline.prepare(held, lone, SETTINGS)
    assert attempts(run) == before


def test_other_nodes_are_another_graph(tmp_path, graph, run):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    table = pq.read_table(sources.nodes)
    ids = pa.array([*range(149), 999])
    pq.write_table(table.set_column(0, "node_id", ids), sources.nodes)
    words = r"another graph with 150 nodes; .* has 150 nodes, not the same"
    with (
        pytest.raises(RunDirectoryError, match=words),
        pipeline.open_run(str(out), sources) as held,
    ):
        pipeline.prepare(held, sources, SETTINGS)
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


@pytest.mark.parametrize("damage", ["cut", "empty", "digest", "key", "list"])
def test_a_damaged_record_of_the_run_is_written_again(
    tmp_path, graph, run, client, damage
):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    path = out / "_run.json"
    whole = path.read_bytes()
    digest = json.loads(whole)["nodes"]["digest"].encode()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "empty": b"",
            "digest": whole.replace(digest, digest[::-1]),
            "key": whole.replace(b'"nodes"', b'"nodez"', 1),
            "list": b"[1]",
        }[damage]
    )
    assert path.read_bytes() != whole
    night(out, sources, SETTINGS, client)
    assert redone(run, before) == set()
    assert path.read_bytes() == whole
    # The run directory still knows the graph that it was made from.
    path.write_bytes(b"")
    other = write_graph(tmp_path / "other", nodes=120, edges=300)
    with (
        pytest.raises(RunDirectoryError, match="another graph with 150 nodes"),
        pipeline.open_run(str(out), other.sources) as held,
    ):
        pipeline.prepare(held, other.sources, SETTINGS)


def test_each_lost_stage_is_due_with_what_follows(tmp_path, graph, run):
    out, sources = tmp_path / "run", members_of(graph)
    follows = {
        "quantify": {"quantify"},
        "posteriors": {"posteriors", "quantify"},
        "readout": {"readout", "posteriors", "quantify"},
        "labels": LATER,
        "embeddings": {"embeddings", "readout", "posteriors", "quantify"},
        "graph": {"graph", "embeddings", *LATER},
    }
    for name, expected in follows.items():
        manifest = out / name / "_manifest.json"
        text = manifest.read_bytes()
        manifest.unlink()
        assert set(due_stages(run, sources, SETTINGS)) == expected | {"published"}
        manifest.write_bytes(text)
    assert due_stages(run, sources, SETTINGS) == ()
    assert set(follows) < set(STAGES)


def test_results_that_are_gone_are_published_again(tmp_path, graph, run, client):
    out, sources = tmp_path / "run", members_of(graph)
    before = attempts(run)
    (out / "prevalence.parquet").unlink()
    assert due_stages(run, sources, SETTINGS) == ("published",)
    assert nothing_changed(str(out), sources, SETTINGS) is None
    night(out, sources, SETTINGS, client)
    assert redone(run, before) == set()
    assert (out / "prevalence.parquet").exists()


def test_earlier_results_that_changed_are_compared_with_again(tmp_path, graph, client):
    sources = members_of(graph)
    auto = ("partitions=2", "reservoir.supersteps=3", "quantifier=auto")
    earlier, out = tmp_path / "earlier", tmp_path / "run"
    night(earlier, sources, small_settings(*auto), client)
    settings = small_settings(*auto, f"anomalies.last={earlier}")
    run = night(out, sources, settings, client)
    assert due_stages(run, sources, settings) == ()
    night(earlier, members_of(graph, "other", 10), small_settings(*auto), client)
    assert due_stages(run, sources, settings) == ("published",)


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
