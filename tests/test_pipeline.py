"""The pipeline as Python functions: the same results, resumed, repeated if due."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xnq_dist
from tests.conftest import (
    SmallGraph,
    published_values,
    small_settings,
    write_graph,
)
from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.core.errors import DoesNotFitError, RunDirectoryError, StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.due import summary
from xnq_dist.graph.tables import Sources
from xnq_dist.plan.of_tables import make_plan


def whole_line(
    out, sources: Sources, settings, client, overwrite=False
) -> RunDirectory:
    with pipeline.open_run(str(out), sources, overwrite) as run:
        xnq_dist.prepare(run, sources, settings)
        xnq_dist.embed(run, settings, client)
        xnq_dist.fit_readout(run, settings, client)
        xnq_dist.posteriors(run, settings, client)
        xnq_dist.quantify_communities(run, sources, settings, client)
        xnq_dist.publish(run, settings)
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


def attempts(run: RunDirectory) -> dict[str, str]:
    names = ("graph", "embeddings", "readout", "posteriors", "quantify")
    return {name: run.stage(name).manifest().attempt for name in names}


def posteriors(run: RunDirectory) -> pa.Table:
    """All posteriors, by node id."""
    return pq.read_table(run.folder.path("posteriors")).sort_by("node_id")


def test_same_prevalence_for_any_partitions(tmp_path, small_graph, client):
    tables = {"sld": [], "pacc": []}
    for count in (1, 2, 3, 7):
        for quantifier, found in tables.items():
            chosen = (f"partitions={count}", f"quantifier={quantifier}")
            run = whole_line(
                tmp_path / str(count),
                small_graph.sources,
                small_settings(*chosen),
                client,
            )
            found.append((posteriors(run), published_values(run.uri)))
    for first, *others in tables.values():
        for rows, prevalence in others:
            assert rows.equals(first[0])
            assert prevalence.equals(first[1])


def test_what_is_published_adds_up(small_graph, run):
    rows = pq.read_table(run.folder.path("prevalence.parquet")).to_pylist()
    detected = pq.read_table(run.folder.path("communities.parquet"))
    assert detected.num_rows == 600
    assert sum(row["n_nodes"] for row in rows if row["class"] == 0) == 600
    by_community: dict[int, float] = {}
    for row in rows:
        by_community.setdefault(row["community"], 0.0)
        by_community[row["community"]] += row["prevalence"]
        assert row["lower"] <= row["prevalence"] <= row["upper"]
        assert row["n_labelled"] + row["n_estimated"] == row["n_nodes"]
    np.testing.assert_allclose(list(by_community.values()), 1.0, atol=1e-9)
    labelled = {
        node for node, label in enumerate(small_graph.labels.tolist()) if label >= 0
    }
    table = posteriors(run)
    fold = dict(
        zip(table["node_id"].to_pylist(), table["out_of_fold"].to_pylist(), strict=True)
    )
    assert {node for node, flag in fold.items() if flag} == labelled
    pointer = json.loads(run.folder.read_bytes("published.json"))
    names = ("prevalence", "totals", "communities", "partitions")
    tables = {f"{name}.parquet" for name in names}
    assert tables <= pointer["tables"].keys()
    assert {row["run_id"] for row in rows} == {pointer["run_id"]}
    found = summary(run)
    assert found["nodes"] == 600


def test_known_labels_are_counted_exactly(tmp_path, client):
    """If every member is labelled, the estimate is the share of the labels."""
    graph = write_graph(tmp_path / "input", labelled=1.0)
    settings = small_settings("communities=column:label")
    run = whole_line(tmp_path / "run", graph.sources, settings, client)
    rows = pq.read_table(run.folder.path("prevalence.parquet")).to_pylist()
    assert [row["prevalence"] for row in rows] == [1.0, 0.0, 0.0, 1.0]
    assert {row["n_estimated"] for row in rows} == {0}


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
    # Another readout needs them again.
    other = small_settings("embeddings.write=false", "readout.C=0.1")
    run = whole_line(out, sources, other, client)
    assert attempts(run)["embeddings"] != first["embeddings"]
    assert not list((out / "embeddings").glob("*.parquet"))
    assert not published_values(out).equals(expected)
    assert published_values(made_once).equals(expected)


def test_selected_scales_are_recorded_and_reused(tmp_path, small_graph, client):
    settings = small_settings(
        "reservoir.recurrent_scale=select", "reservoir.input_scale=select"
    )
    sources, out = small_graph.sources, tmp_path / "run"
    run = whole_line(out, sources, settings, client)
    chosen = run.stage("select").manifest()
    assert len(chosen.facts["tried"]) == 6
    assert chosen.facts["recurrent_scale"] in (1.0, 3.0, 8.0, 20.0)
    assert run.stage("select").folder.names() == ["_manifest.json"]
    used = run.stage("embeddings").manifest().facts
    assert used["recurrent_scale"] == chosen.facts["recurrent_scale"]
    again = whole_line(out, sources, settings, client)
    assert again.stage("select").manifest().attempt == chosen.attempt


def test_one_given_scale_is_kept_while_the_other_is_selected(
    tmp_path, small_graph, client
):
    from xnq_dist.readout.select import select_scales

    settings = small_settings("reservoir.input_scale=select")
    with pipeline.open_run(str(tmp_path / "run"), small_graph.sources) as run:
        pipeline.prepare(run, small_graph.sources, settings)
        recurrent, _ = select_scales(run, settings, client)
        tried = run.stage("select").manifest().facts["tried"]
    assert recurrent == 2.0
    assert sorted(row["input_scale"] for row in tried) == [0.1, 0.3, 1.0]


def test_chaotic_scales_are_selected_only_where_they_gain():
    from xnq_dist.readout.select import Score, choose_recurrent

    scores = [Score(1.0, 0.3, 0.52, 0.01), Score(8.0, 0.3, 0.50, 0.03)]
    assert choose_recurrent(scores).recurrent_scale == 1.0
    better = [Score(1.0, 0.3, 0.60, 0.01), Score(8.0, 0.3, 0.50, 0.03)]
    assert choose_recurrent(better).recurrent_scale == 8.0


def test_roles_train_and_calibrate_apart(tmp_path, client):
    graph = write_graph(tmp_path / "input", labelled=0.8)
    nodes = pq.read_table(graph.sources.nodes)
    labels = nodes["label"].to_pylist()
    roles = [
        None if label is None else ("calibration" if at % 3 == 0 else "train")
        for at, label in enumerate(labels)
    ]
    pq.write_table(nodes.append_column("role", pa.array(roles)), graph.sources.nodes)
    run = whole_line(tmp_path / "run", graph.sources, small_settings(), client)
    table = posteriors(run)
    flags = table["out_of_fold"].to_pylist()
    assert flags == [role == "calibration" for role in roles]


def test_another_graphs_directory_needs_overwrite(tmp_path, client):
    one = write_graph(tmp_path / "one")
    two = write_graph(tmp_path / "two", nodes=500)
    out = tmp_path / "run"
    whole_line(out, one.sources, small_settings(), client)
    with (
        pytest.raises(RunDirectoryError, match=r"another graph with 600 nodes.*--over"),
        pipeline.open_run(str(out), two.sources) as run,
    ):
        xnq_dist.prepare(run, two.sources, small_settings())
    assert (out / "prevalence.parquet").exists()
    run = whole_line(out, two.sources, small_settings(), client, overwrite=True)
    assert summary(run)["nodes"] == 500


def test_plan_is_refused_before_the_supersteps(
    tmp_path, small_graph, client, monkeypatch
):
    monkeypatch.setattr(cluster, "smallest_memory", lambda _: 100 * 2**20)
    with pipeline.open_run(str(tmp_path / "run"), small_graph.sources) as run:
        pipeline.prepare(run, small_graph.sources, small_settings())
        with pytest.raises(DoesNotFitError, match=r"may use 100\.0 MiB"):
            pipeline.embed(run, small_settings(), client)


def test_estimate_bounds_the_measured_run(tmp_path, small_graph, client):
    assert pipeline.estimate(small_graph.sources, small_settings()).partitions == 2
    plan = pipeline.estimate(small_graph.sources, small_settings("partitions=3"))
    assert (plan.nodes, plan.halo_is_bound) == (600, True)
    run = whole_line(
        tmp_path / "run", small_graph.sources, small_settings("partitions=3"), client
    )
    facts = run.stage("graph").manifest().facts
    assert sum(facts["halo"]) <= plan.halo_rows
    sizes = [p.stat().st_size for p in (tmp_path / "run").rglob("*.parquet")]
    assert sum(sizes) < 10 * plan.run_disk


def test_summary_of_an_incomplete_run_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(StageError, match="not a complete run"):
        summary(run)


def test_unknown_names_of_the_package_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        xnq_dist.nothing  # noqa: B018


def test_string_ids_and_shuffled_rows_give_the_same_answer(
    tmp_path, small_graph, run, client
):
    """Tables may have any row order and any ids."""
    rng = np.random.default_rng(1)
    shuffled = SmallGraphCopy(small_graph, tmp_path / "shuffled", rng)
    found = whole_line(tmp_path / "b", shuffled.sources, small_settings(), client)
    old, new = published_values(run.uri), published_values(found.uri)
    assert new.equals(old)
    rows = posteriors(found)
    assert rows["node_id"].to_pylist()[:2] == ["user 0000", "user 0001"]
    assert rows["posterior"].equals(posteriors(run)["posterior"])


class SmallGraphCopy:
    """The same graph under string names of the same order, rows shuffled."""

    def __init__(self, graph: SmallGraph, folder, rng) -> None:
        folder.mkdir()
        nodes = pq.read_table(graph.sources.nodes)
        names = pa.array([f"user {i:04d}" for i in nodes["node_id"].to_pylist()])
        nodes = nodes.set_column(0, "node_id", names)
        pq.write_table(nodes.take(rng.permutation(len(nodes))), folder / "n.parquet")
        edges = pq.read_table(graph.sources.edges)
        for at, name in enumerate(("src", "dst")):
            edges = edges.set_column(at, name, names.take(edges[name]))
        pq.write_table(edges.take(rng.permutation(len(edges))), folder / "e.parquet")
        self.sources = Sources(str(folder / "n.parquet"), str(folder / "e.parquet"))


def test_input_inside_the_run_directory_is_refused_and_kept(tmp_path, small_graph, run):
    """Detected communities can be used as memberships and are kept."""
    out = tmp_path / "run"
    detected = str(out / "communities.parquet")
    sources = Sources(small_graph.sources.nodes, small_graph.sources.edges, detected)
    with (
        pytest.raises(RunDirectoryError, match="lies in the run directory"),
        pipeline.open_run(str(out), sources),
    ):
        pass
    assert (out / "communities.parquet").exists()


def test_only_what_was_published_is_replaced_or_removed(
    tmp_path, small_graph, run, client
):
    out = tmp_path / "run"
    (out / "notes.parquet").write_bytes(b"mine")
    (out / "changes.parquet").write_bytes(b"of an earlier version")
    whole_line(out, small_graph.sources, small_settings(), client)
    assert (out / "notes.parquet").read_bytes() == b"mine"
    assert not (out / "changes.parquet").exists()


def test_sources_are_checked_before_anything_runs(small_graph):
    from xnq_dist.core.errors import InputError, SettingsError

    with pytest.raises(SettingsError, match="needs a memberships table"):
        pipeline.check_sources(small_graph.sources, small_settings("communities=given"))
    with pytest.raises(InputError, match="no column 'town'"):
        pipeline.check_sources(
            small_graph.sources, small_settings("communities=column:town")
        )


def test_a_lone_label_is_named_before_the_search(tmp_path, client):
    from xnq_dist.core.errors import InputError

    graph = write_graph(tmp_path / "input")
    nodes = pq.read_table(graph.sources.nodes)
    labels = ["troll"] + [
        None if label is None else ("bot" if label else "human")
        for label in nodes["label"].to_pylist()[1:]
    ]
    at = nodes.schema.get_field_index("label")
    pq.write_table(nodes.set_column(at, "label", pa.array(labels)), graph.sources.nodes)
    settings = small_settings("reservoir.recurrent_scale=select")
    with pipeline.open_run(str(tmp_path / "run"), graph.sources) as run:
        pipeline.prepare(run, graph.sources, settings)
        with pytest.raises(InputError, match="troll"):
            pipeline.embed(run, settings, client)


def test_a_complete_run_is_accepted_on_a_full_disk(
    tmp_path, small_graph, run, client, monkeypatch
):
    out = tmp_path / "run"
    first = attempts(run)
    monkeypatch.setattr(cluster, "smallest_memory", lambda _: 1)
    monkeypatch.setattr(cluster, "free_memory", lambda: 1)
    again = whole_line(out, small_graph.sources, small_settings(), client)
    assert attempts(again) == first


def write_pages(graph: SmallGraph, count: int) -> Sources:
    """Memberships of fifty nodes a page, beside the graph's tables."""
    nodes = np.arange(50 * count)
    table = pa.table(
        {"community": [f"page {k // 50}" for k in nodes], "node_id": nodes}
    )
    path = graph.sources.nodes.replace("nodes.parquet", "pages.parquet")
    pq.write_table(table, path)
    return Sources(graph.sources.nodes, graph.sources.edges, path)


def test_changes_since_the_last_run_are_reported(tmp_path, client):
    """Repeated runs in the same directory with the same tables."""
    graph = write_graph(tmp_path / "input", labelled=1.0)
    settings = small_settings("quantifier=auto")
    out = tmp_path / "run"
    whole_line(out, write_pages(graph, 10), settings, client)
    assert not (out / "changes.parquet").exists()
    nodes = pq.read_table(graph.sources.nodes)
    labels = graph.labels.copy()
    labels[:50] = 1 - labels[:50]
    at = nodes.schema.get_field_index("label")
    pq.write_table(nodes.set_column(at, "label", pa.array(labels)), graph.sources.nodes)
    whole_line(out, write_pages(graph, 11), settings, client)
    rows = pq.read_table(out / "changes.parquet").to_pylist()
    of = {row["community"]: row for row in rows if row["class"] == 1}
    assert len(of) == 11
    assert summary(RunDirectory(out))["changes"] == f"{out}/changes.parquet"
    assert of["page 10"]["status"] == "new"
    changed = {name for name, row in of.items() if row["changed"]}
    assert changed == {"page 0"}
    moved = np.mean(labels[:50]) - np.mean(graph.labels[:50])
    assert of["page 0"]["effect"] == pytest.approx(moved)
    # A resumed run that has nothing to do reports the same.
    whole_line(out, write_pages(graph, 11), settings, client)
    assert pq.read_table(out / "changes.parquet").to_pylist() == rows
    # Results of another graph replace these and are not compared with them.
    sources = write_graph(tmp_path / "other", nodes=500, labelled=1.0).sources
    with pipeline.open_run(str(out), sources, overwrite=True):
        assert pq.read_table(out / "changes.parquet").to_pylist() == rows
    whole_line(out, sources, settings, client)
    assert not (out / "changes.parquet").exists()


def test_refusals_come_before_the_work(tmp_path, small_graph, client):
    from xnq_dist.core.errors import SettingsError

    out = tmp_path / "run"
    three = write_graph(tmp_path / "three", classes=3)
    auto = small_settings("quantifier=auto", "partitions=2")
    earlier = whole_line(tmp_path / "earlier", write_pages(three, 5), auto, client)
    named = small_settings("quantifier=auto", f"anomalies.last={earlier.uri}")
    sources = write_pages(small_graph, 5)
    pipeline.check_sources(sources, named)
    with (
        pipeline.open_run(str(out), sources) as run,
        pytest.raises(SettingsError, match="classes = 0, 1, 2 and this run with 0, 1"),
    ):
        pipeline.prepare(run, sources, named)
    nowhere = small_settings(f"anomalies.last={tmp_path / 'nowhere'}")
    with pytest.raises(SettingsError, match="is not a complete run"):
        pipeline.check_sources(sources, nowhere)
    own = small_settings("quantifier=auto", f"anomalies.last={out}")
    with (
        pipeline.open_run(str(out), sources) as run,
        pytest.raises(SettingsError, match="own directory"),
    ):
        pipeline.prepare(run, sources, own)


def test_workers_leave_the_client_what_ingest_takes(small_graph, monkeypatch):
    free = 10 * 2**30
    monkeypatch.setattr(cluster, "free_memory", lambda: free)
    planned = make_plan(small_graph.sources, small_settings()).planned
    assert planned.worker_limit == int(0.9 * (free - planned.client_memory)) // 2
