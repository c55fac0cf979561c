"""`auto` on a run directory: what it learns from, edges, partitions, intervals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.conftest import small_settings
from tests.quantify.samples import make_communities
from tests.quantify.test_run import (
    answered,
    draw_memberships,
    make_run,
    of,
    write_posteriors,
)
from xnq_dist.errors import SettingsError
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.quantify import batches
from xnq_dist.quantify import run as stage
from xnq_dist.quantify.auto import Auto
from xnq_dist.quantify.cohesion import internal_edges
from xnq_dist.quantify.fit_check import FitCheck
from xnq_dist.quantify.here import communities_of, learn_here
from xnq_dist.quantify.loading import load_node_table
from xnq_dist.quantify.run import estimate_with, quantify
from xnq_dist.store import RunDirectory

AUTO = "quantifier=auto"


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def test_batches_or_partitions_change_a_bit(client, tmp_path, monkeypatch):
    made = make_run(tmp_path / "one")
    path, sets = draw_memberships(tmp_path)
    sources = of(made, memberships=path)
    manifest = quantify(made.run, sources, small_settings(AUTO), client)
    first = answered(made.run, manifest)
    left = made.run.stage("quantify").folder.names()
    assert sorted(left) == sorted(["_manifest.json", manifest.files[0].name])
    monkeypatch.setattr(stage, "FEWEST_MEMBERSHIPS", 100)
    monkeypatch.setattr(stage, "MOST_MEMBERSHIPS", 100)
    other = make_run(tmp_path / "two", partitions=2)
    sources = of(other, memberships=path)
    again = quantify(other.run, sources, small_settings(AUTO), client)
    assert answered(other.run, again).equals(first)
    rows = first.to_pylist()
    labels = made.graph.labels
    for row in rows:
        members = sets[row["community"]]
        known = labels[members][labels[members] >= 0]
        share = np.count_nonzero(known == int(row["class"])) / len(members)
        rest = 1 - len(known) / len(members)
        assert row["lower"] - 1e-9 <= row["prevalence"] <= row["upper"] + 1e-9
        # Known labels are counted: nothing is left open of them.
        assert share - 1e-9 <= row["lower"]
        assert row["upper"] <= share + rest + 1e-9
        if len(known) == len(members):
            assert row["lower"] == row["upper"] == row["prevalence"]
    assert manifest.facts["learnt_from"] > 20
    assert manifest.facts["reference_communities"] == 0


def test_evidence_of_some_communities_is_that_of_the_first(
    client, tmp_path, monkeypatch
):
    made = make_run(tmp_path)
    path, _ = draw_memberships(tmp_path)
    sources = of(made, memberships=path)
    monkeypatch.setattr(stage, "MOST_LEARNT_FROM", 10)
    found = []
    for size in (100, 1 << 22):
        monkeypatch.setattr(stage, "FEWEST_MEMBERSHIPS", size)
        monkeypatch.setattr(stage, "MOST_MEMBERSHIPS", size)
        manifest = quantify(made.run, sources, small_settings(AUTO), client)
        found.append((answered(made.run, manifest), manifest.facts["learnt_from"]))
        made.run.stage("quantify").folder.delete_folder()
    assert found[0][0].equals(found[1][0])
    assert 1 <= found[0][1] == found[1][1] <= 10


def test_labels_outside_of_the_communities_are_not_learnt_from(client, tmp_path):
    made = make_run(tmp_path)
    labels = made.graph.labels
    some = np.flatnonzero(labels < 0)[:40]
    path = tmp_path / "few.parquet"
    pq.write_table(
        pa.table({"community": np.repeat([0, 1], 20), "node_id": some}), path
    )
    sources = of(made, memberships=str(path))
    manifest = quantify(made.run, sources, small_settings(AUTO), client)
    assert manifest.facts["reference_communities"] > 1
    assert manifest.facts["learnt_from"] > 1
    assert answered(made.run, manifest).num_rows == 4
    never = small_settings(AUTO, "auto.reference_edges=0")
    manifest = quantify(made.run, sources, never, client)
    assert manifest.facts["reference_communities"] == 0
    assert manifest.facts["learnt_from"] == 0


def slow_counts(run, sets):
    """Edges inside and volumes from the whole adjacency."""
    manifest = run.stage("graph").manifest()
    matrix = layout.read_adjacency(run.stage("graph"), manifest).toarray() > 0
    np.fill_diagonal(matrix, False)
    names = sorted(sets)
    inside = [matrix[np.ix_(sets[s], sets[s])].sum() for s in names]
    into = [matrix[sets[s]].sum() for s in names]
    out = [matrix[:, sets[s]].sum() for s in names]
    return np.array([inside, into, out]).T


@pytest.mark.parametrize("directed", [True, False])
def test_edges_of_communities_are_not_those_of_the_graph(
    client, tmp_path, monkeypatch, directed
):
    made = make_run(tmp_path / "made")
    settings = small_settings(AUTO, f"input.directed={str(directed).lower()}")
    if not directed:
        made.run.stage("graph").folder.delete_folder()
        graph = prepare(made.run, made.graph.sources, settings, 3)
        write_posteriors(made.run, graph, made.posteriors)
    path, sets = draw_memberships(tmp_path)
    seen = {}
    read = batches._read_learnt

    def spy(job, record, batch, edges):
        seen[batch.first] = read(job, record, batch, edges)
        return seen[batch.first]

    monkeypatch.setattr(batches, "_read_learnt", spy)
    quantify(made.run, of(made, memberships=path), settings, client)
    learnt = seen[0]
    expected = slow_counts(made.run, sets)
    np.testing.assert_array_equal(learnt.counts.inside[:, :2], expected[:, :2])
    np.testing.assert_array_equal(learnt.counts.outgoing, expected[:, 2])
    manifest = made.run.stage("graph").manifest()
    matrix = layout.read_adjacency(made.run.stage("graph"), manifest).toarray()
    p = made.posteriors.astype(float)
    np.testing.assert_allclose(learnt.mixing.between, p.T @ matrix @ p, rtol=1e-5)
    np.testing.assert_allclose(learnt.mixing.into, matrix.sum(axis=1) @ p, rtol=1e-5)
    np.testing.assert_allclose(learnt.mixing.out_of, matrix.sum(axis=0) @ p, rtol=1e-5)
    np.testing.assert_allclose(learnt.mixing.mass, p.sum(axis=0), rtol=1e-5)
    assert learnt.mixing.edges == pytest.approx(matrix.sum())
    assert internal_edges is batches.internal_edges


def test_graph_of_loops_has_communities(client, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(200) >= 150, rng.integers(0, 2, 200), -1)
    nodes = pa.table(
        {
            "node_id": np.arange(200),
            "features": pa.FixedSizeListArray.from_arrays(
                pa.array(rng.normal(size=400).astype(np.float32)), 2
            ),
            "label": pa.array(labels, mask=labels < 0),
        }
    )
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    edges = pa.table({"src": np.arange(5), "dst": np.arange(5)})
    pq.write_table(edges, tmp_path / "edges.parquet")
    members = pa.table({"community": np.arange(200) // 50, "node_id": np.arange(200)})
    pq.write_table(members, tmp_path / "members.parquet")
    sources = Sources(
        str(tmp_path / "nodes.parquet"),
        str(tmp_path / "edges.parquet"),
        str(tmp_path / "members.parquet"),
    )
    run = RunDirectory(tmp_path / "run")
    graph = prepare(run, sources, small_settings(), 2)
    write_posteriors(run, graph, rng.dirichlet([1, 1], 200).astype(np.float32))
    table = answered(run, quantify(run, sources, small_settings(AUTO), client))
    notes = table["note"].to_pylist()
    assert all("hardly any edge" in note for note in notes[:6])
    assert notes[6] == notes[7] == "every member is labelled: counted exactly"
    with pytest.raises(SettingsError, match="needs more than the posteriors"):
        estimate_with(run, sources, small_settings(), "auto", "1")


def test_stage_and_one_process_differ(client, tmp_path):
    """The same from partitions on workers as from the whole adjacency here."""
    made = make_run(tmp_path)
    path, sets = draw_memberships(tmp_path)
    settings = small_settings(AUTO, "labelled=exclude")
    table = answered(
        made.run, quantify(made.run, of(made, memberships=path), settings, client)
    )
    nodes, reference = load_node_table(made.run, [0.4, 0.6])
    manifest = made.run.stage("graph").manifest()
    adjacency = layout.read_adjacency(made.run.stage("graph"), manifest)
    batch = make_communities(*(sets[name] for name in sorted(sets)))
    reference = dataclasses.replace(reference, fit=FitCheck.of(reference, nodes))
    auto = learn_here(
        Auto.of(settings),
        batch,
        nodes,
        reference,
        adjacency,
        communities_of(np.zeros(300, np.int64)),
    )
    found = auto.estimate(batch, nodes, reference, "exclude")
    for name, values in (
        ("prevalence", found.prevalence),
        ("lower", found.lower),
        ("upper", found.upper),
    ):
        own = table[name].to_numpy(zero_copy_only=False)
        np.testing.assert_allclose(own, values.ravel(), atol=1e-9)
