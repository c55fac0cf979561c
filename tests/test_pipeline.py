"""The pipeline as Python functions: the same results, resumed, repeated if due."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xnq_dist
from tests.conftest import (
    published_values,
    small_settings,
    with_graph,
    write_graph,
)
from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.core.errors import RunDirectoryError, StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.due import summary
from xnq_dist.graph.sources import Sources


def whole_line(out, sources: Sources, settings, client) -> RunDirectory:
    with pipeline.open_run(str(out), sources) as run:
        xnq_dist.run_stages(run, sources, settings, client)
    return run


@pytest.fixture(scope="module")
def made_once(
    cluster_connection: cluster.Connection, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A finished run, to be copied."""
    folder = tmp_path_factory.mktemp("pipeline")
    sources = write_graph(folder / "input").sources
    with cluster.connect(cluster_connection) as client:
        whole_line(folder / "run", sources, small_settings(), client)
    return folder / "run"


@pytest.fixture
def run(made_once: Path, tmp_path: Path) -> RunDirectory:
    """A copy of that run, whose tables are those of `small_graph`."""
    return RunDirectory(shutil.copytree(made_once, tmp_path / "run"))


NAMES = ("graph", "select", "embeddings", "labels", "readout", "posteriors", "quantify")


def attempts(run: RunDirectory) -> dict[str, str]:
    found = {name: run.stage(name).manifest() for name in NAMES}
    return {name: made.attempt for name, made in found.items() if made is not None}


def posteriors(run: RunDirectory) -> pa.Table:
    """All posteriors, by node id."""
    return pq.read_table(run.path("posteriors")).sort_by("node_id")


def assert_same(run: RunDirectory, other: RunDirectory) -> None:
    assert posteriors(other).equals(posteriors(run))
    assert published_values(other.uri).equals(published_values(run.uri))


def test_same_prevalence_for_any_partitions(tmp_path, small_graph, run, client):
    """The run that was made before has two."""
    for quantifier in ("sld", "pacc"):
        settings = small_settings(f"quantifier={quantifier}")
        whole_line(run.uri, small_graph.sources, settings, client)
        for count in (1, 7):
            chosen = small_settings(f"partitions={count}", f"quantifier={quantifier}")
            out = tmp_path / str(count)
            assert_same(run, whole_line(out, small_graph.sources, chosen, client))


@pytest.mark.parametrize(
    ("method", "count"),
    [
        ("xnq", 48),
        pytest.param("xnq", 1024, marks=pytest.mark.slow),
        pytest.param("xnq+", 1024, marks=pytest.mark.slow),
    ],
)
def test_same_results_with_many_partitions_on_two_workers(
    method, count, tmp_path, client
):
    """The manifest does not grow with them."""
    sources = write_graph(tmp_path / "input", nodes=1500, edges=5000).sources
    two, many = (
        whole_line(
            tmp_path / str(number),
            sources,
            small_settings(f"partitions={number}", f"method={method}"),
            client,
        )
        for number in (2, count)
    )
    assert_same(two, many)
    assert len(pickle.dumps(many.complete("graph"))) < 1000
    assert "halo_sizes" not in many.complete("graph").facts


def test_what_is_published_adds_up(small_graph, run):
    table = pq.read_table(run.path("prevalence.parquet"))
    sums = table.group_by("community").aggregate([("prevalence", "sum")])
    np.testing.assert_allclose(sums["prevalence_sum"].to_numpy(), 1.0, atol=1e-9)
    rows = table.to_pylist()
    assert sum(row["n_nodes"] for row in rows if row["class"] == 0) == 600
    for row in rows:
        assert row["lower"] <= row["prevalence"] <= row["upper"]
        assert row["n_labelled"] + row["n_estimated"] == row["n_nodes"]
    held_out = posteriors(run)["out_of_fold"].to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(held_out, small_graph.labels >= 0)
    assert summary(run)["nodes"] == 600


def test_auto_partitions_stay_when_the_number_of_workers_changes(
    tmp_path, small_graph, run, client
):
    first = attempts(run)
    other = small_settings("cluster.workers=1")
    again = whole_line(tmp_path / "run", small_graph.sources, other, client)
    assert attempts(again) == first


def test_embeddings_that_are_removed_are_made_again_when_needed(
    tmp_path, small_graph, made_once, client
):
    sources, out = small_graph.sources, tmp_path / "run"
    settings = small_settings("embeddings.write=false")
    run = whole_line(out, sources, settings, client)
    assert not list((out / "embeddings").glob("*.parquet"))
    expected = published_values(out)
    first = attempts(run)
    # Nothing is due while the readout is complete.
    assert attempts(whole_line(out, sources, settings, client)) == first
    # Lost posteriors need them again.
    next((out / "posteriors").glob("part-*")).unlink()
    mended = attempts(whole_line(out, sources, settings, client))
    assert mended["graph"] == first["graph"]
    assert mended["embeddings"] != first["embeddings"]
    assert published_values(out).equals(expected)
    # Another readout needs them again.
    other = small_settings("embeddings.write=false", "readout.C=0.1")
    run = whole_line(out, sources, other, client)
    assert attempts(run)["embeddings"] != mended["embeddings"]
    assert not list((out / "embeddings").glob("*.parquet"))
    assert not published_values(out).equals(expected)
    assert published_values(made_once).equals(expected)


def test_a_selected_scale_is_recorded_and_kept_until_labels_change(
    tmp_path, small_graph, client
):
    """The scale that is given is kept, too."""
    settings = small_settings("reservoir.input_scale=select")
    sources, out = small_graph.sources, tmp_path / "run"
    run = whole_line(out, sources, settings, client)
    chosen = run.stage("select").manifest().facts
    assert chosen["recurrent_scale"] == 2.0
    assert sorted(row["input_scale"] for row in chosen["tried"]) == [0.1, 0.3, 1.0]
    assert run.stage("select").names() == ["_manifest.json"]
    used = run.stage("embeddings").manifest().facts
    assert used["input_scale"] == chosen["input_scale"]
    first = attempts(run)
    assert attempts(whole_line(out, sources, settings, client)) == first
    labels = small_graph.labels.copy()
    labels[np.flatnonzero(labels < 0)[0]] = 1
    relabel(sources.nodes, labels)
    again = attempts(whole_line(out, sources, settings, client))
    kept = run.stage("select").manifest().facts["input_scale"] == used["input_scale"]
    same = {name for name in again if again[name] == first[name]}
    assert same == {"graph", *(("embeddings",) if kept else ())}


def relabel(nodes: str, labels: np.ndarray) -> None:
    """Replace the labels of a node table; -1 is none."""
    table = pq.read_table(nodes)
    at = table.schema.get_field_index("label")
    column = pa.array(labels, pa.int64(), mask=labels < 0)
    pq.write_table(table.set_column(at, "label", column), nodes)


def test_chaotic_scales_are_selected_only_where_they_gain():
    from xnq_dist.readout.select import Score, choose_recurrent

    scores = [Score(1.0, 0.3, 0.52, 0.01), Score(8.0, 0.3, 0.50, 0.03)]
    assert choose_recurrent(scores).recurrent_scale == 1.0
    better = [Score(1.0, 0.3, 0.60, 0.01), Score(8.0, 0.3, 0.50, 0.03)]
    assert choose_recurrent(better).recurrent_scale == 8.0


def test_another_graphs_directory_needs_overwrite(tmp_path, run):
    other = write_graph(tmp_path / "other", nodes=500).sources
    words = r"another graph with 600 nodes.*--over"
    with pytest.raises(RunDirectoryError, match=words):
        with_graph(run.uri, other, small_settings())
    assert Path(run.uri, "prevalence.parquet").exists()
    with_graph(run.uri, other, small_settings(), overwrite=True)
    assert run.complete("graph").facts["n_nodes"] == 500
    # The next results are compared with these by the names of the communities.
    assert list(run.history())


def test_estimate_bounds_the_measured_run(small_graph, run):
    plan = pipeline.estimate(small_graph.sources, small_settings())
    assert (plan.nodes, plan.partitions, plan.halo_is_bound) == (600, 2, True)
    assert sum(run.stage("graph").manifest().facts["halo"]) <= plan.halo_rows
    sizes = [path.stat().st_size for path in Path(run.uri).rglob("*.parquet")]
    assert sum(sizes) < 10 * plan.run_disk


def test_summary_of_an_incomplete_run_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(StageError, match="no complete stage 'graph'"):
        summary(run)


def test_string_ids_and_shuffled_rows_give_the_same_answer(
    tmp_path, small_graph, run, client
):
    """Tables may have any row order and any ids."""
    rng = np.random.default_rng(1)
    nodes = pq.read_table(small_graph.sources.nodes)
    names = pa.array([f"user {i:04d}" for i in nodes["node_id"].to_pylist()])
    edges = pq.read_table(small_graph.sources.edges)
    for at, name in enumerate(("src", "dst")):
        edges = edges.set_column(at, name, names.take(edges[name]))
    paths = []
    for table in (nodes.set_column(0, "node_id", names), edges):
        paths.append(str(tmp_path / f"{len(paths)}.parquet"))
        pq.write_table(table.take(rng.permutation(len(table))), paths[-1])
    found = whole_line(tmp_path / "b", Sources(*paths), small_settings(), client)
    assert published_values(found.uri).equals(published_values(run.uri))
    rows = posteriors(found)
    assert rows["node_id"].to_pylist()[:2] == ["user 0000", "user 0001"]
    assert rows["posterior"].equals(posteriors(run)["posterior"])


def test_a_complete_run_is_accepted_on_a_full_disk(
    tmp_path, small_graph, run, client, monkeypatch
):
    out = tmp_path / "run"
    first = attempts(run)
    monkeypatch.setattr(cluster, "smallest_memory", lambda _: 1)
    monkeypatch.setattr(cluster, "free_memory", lambda: 1)
    again = whole_line(out, small_graph.sources, small_settings(), client)
    assert attempts(again) == first


def test_workers_leave_the_client_what_ingest_takes(small_graph, monkeypatch):
    free = 10 * 2**30
    monkeypatch.setattr(cluster, "free_memory", lambda: free)
    planned = pipeline.estimate(small_graph.sources, small_settings())
    assert planned.worker_limit == int(0.9 * (free - planned.client_memory)) // 2
