"""The stage from end to end, on a constructed run directory and a real cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SmallGraph, small_settings, write_graph
from tests.quantify.samples import make_communities, slow_sld
from xnq_dist.core.errors import InputError, SettingsError, StageError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.groups.leiden import leiden
from xnq_dist.groups.own_groups import FINE, RESOLUTION, degree_groups
from xnq_dist.quantify import batches
from xnq_dist.quantify.classic.counts import neighbour_sums
from xnq_dist.quantify.interface import combine, make_quantifier
from xnq_dist.quantify.loading import load_node_table
from xnq_dist.quantify.stage import quantify

PRIOR = [0.4, 0.6]


@dataclasses.dataclass
class Made:
    """A run directory up to the posteriors, and what is in it."""

    run: RunDirectory
    graph: SmallGraph
    posteriors: np.ndarray


def make_run(folder: Path, partitions: int = 3, seed: int = 0) -> Made:
    """A prepared graph with drawn posteriors; node v's row depends on v alone."""
    graph = write_graph(folder / "input", nodes=300, edges=900, seed=seed)
    run = RunDirectory(folder / "run")
    manifest = prepare(run, graph.sources, small_settings("partitions=3"), partitions)
    rng = np.random.default_rng(5)
    posteriors = rng.dirichlet([1.0, 1.5], 300).astype(np.float32)
    write_posteriors(run, manifest, posteriors)
    return Made(run, graph, posteriors)


def write_posteriors(run, manifest, posteriors, prior=PRIOR):
    """The stages ``readout`` and ``posteriors`` as the readout writes them."""
    readout = run.stage("readout")
    attempt = readout.begin()
    adjacency = layout.read_adjacency(manifest)
    groups, fine = (
        leiden(adjacency, resolution, 0).astype(np.int32)
        for resolution in (RESOLUTION, FINE)
    )
    degree = degree_groups(np.diff(adjacency.indptr))
    arrays = {"groups": groups, "fine": fine, "degree": degree}
    files = [attempt.write_arrays("groups", **arrays)]
    attempt.commit(files, {}, {"prior": prior})
    target = run.stage("posteriors")
    attempt = target.begin()
    files = []
    for number in range(manifest.facts["partitions"]):
        rows = layout.load_nodes(manifest, number)
        known = run.stage("labels").manifest().named("labels-")[number]
        labels = run.stage("labels").read_table(known, "node_labels")
        own = posteriors[rows["index"].to_numpy()]
        table = pa.table(
            {
                "node_id": rows["node_id"],
                "posterior": pa.FixedSizeListArray.from_arrays(
                    pa.array(own.ravel()), posteriors.shape[1]
                ),
                "out_of_fold": labels["label"].is_valid(),
            }
        )
        files.append(attempt.write_table(f"part-{number:05d}", table, "posteriors"))
    attempt.commit(files, {"sum": float(posteriors.sum())}, {})


def draw_memberships(folder: Path, count: int = 40, seed: int = 1):
    """Overlapping sets of 1 to 120 nodes, shuffled rows, one row twice."""
    rng = np.random.default_rng(seed)
    sets = {
        f"set {k:03d}": np.sort(rng.choice(300, rng.integers(1, 120), replace=False))
        for k in range(count)
    }
    sets["all"] = np.arange(300)
    names = np.concatenate([[name] * len(m) for name, m in sets.items()])
    members = np.concatenate(list(sets.values()))
    order = rng.permutation(np.append(np.arange(len(names)), 0))
    folder.mkdir(exist_ok=True)
    path = folder / "memberships.parquet"
    table = pa.table({"community": names[order], "node_id": members[order]})
    pq.write_table(table, path)
    return str(path), sets


def answered(run, manifest):
    return run.stage("quantify").read_table(
        manifest.named("prevalence-")[0], "prevalence"
    )


def of(made, **changes):
    return dataclasses.replace(made.graph.sources, **changes)


def finish(made, sources, settings, client):
    """Do the stage, and record what the run was made from as a run does."""
    manifest = quantify(made.run, sources, settings, client)
    RunRecord(
        nodes=RunRecord.read(made.run).nodes,
        sources=sources.absolute(),
        settings=settings.model_dump(mode="json"),
    ).write(made.run)
    return manifest


def test_rows_are_those_of_each_community_alone(made, client, tmp_path):
    path, sets = draw_memberships(tmp_path)
    told = []
    manifest = quantify(
        made.run,
        of(made, memberships=path),
        small_settings(),
        client,
        lambda *what: told.append(what),
    )
    rows = answered(made.run, manifest).to_pylist()
    names = sorted(sets)
    assert [(r["community"], r["class"]) for r in rows] == [
        (name, c) for name in names for c in (0, 1)
    ]
    assert not batches._LOADED  # nodes that were read for the estimates
    labels = made.graph.labels
    for name, pair in zip(names, zip(rows[::2], rows[1::2], strict=True), strict=True):
        members = sets[name]
        unknown = members[labels[members] < 0]
        counts = np.bincount(labels[members][labels[members] >= 0], minlength=2)
        if len(unknown):
            q, _ = slow_sld(made.posteriors[unknown], np.array(PRIOR))
            counts = counts + len(unknown) * q
        for y, row in enumerate(pair):
            assert row["prevalence"] == pytest.approx(counts[y] / len(members))
            assert row["n_nodes"] == len(members)
            assert row["n_labelled"] == len(members) - len(unknown)
            assert row["n_estimated"] == len(unknown)
            assert row["method"] == "sld"
            assert row["lower"] <= row["prevalence"] <= row["upper"]
            assert (row["lower"] < row["upper"]) == (len(unknown) > 0)
            width = row["upper"] - row["lower"]
            rated = {width <= 0.15: "publishable", width > 0.4: "not publishable"}
            expected = rated.get(True, "caution")
            assert row["quality"] == ("suppressed" if len(members) < 10 else expected)
    facts = manifest.facts
    assert facts["n_communities"] == 41
    assert facts["n_memberships"] == sum(map(len, sets.values()))
    assert (facts["duplicates_dropped"], facts["unknown_dropped"]) == (1, 0)
    assert (facts["source"], facts["not_converged"]) == ("given", 0)
    assert told[-1][0] == "quantify"
    assert told[-1][1] == told[-1][2]
    left = made.run.stage("quantify").names()
    kept = [record.name for record in manifest.files]
    assert sorted(left) == sorted(["_manifest.json", *kept])
    assert [name.split("-")[0] for name in kept] == ["prevalence", "totals"]


def test_intervals_without_resamples_are_nulls(made, client, tmp_path):
    path, _ = draw_memberships(tmp_path, 5)
    settings = small_settings("intervals.resamples=0")
    manifest = quantify(made.run, of(made, memberships=path), settings, client)
    table = answered(made.run, manifest)
    assert table["lower"].null_count == table["upper"].null_count == table.num_rows


def test_calibration_nodes_are_the_reference(tmp_path):
    graph = write_graph(tmp_path / "input", nodes=200, edges=500)
    table = pq.read_table(graph.sources.nodes)
    labels = graph.labels
    role = np.where(np.arange(200) % 3 == 0, "calibration", "train")
    table = table.append_column("role", pa.array(role, mask=labels < 0))
    pq.write_table(table, graph.sources.nodes)
    run = RunDirectory(tmp_path / "run")
    manifest = prepare(run, graph.sources, small_settings(), 2)
    rng = np.random.default_rng(0)
    posteriors = rng.dirichlet([1.0, 1.0], 200).astype(np.float32)
    write_posteriors(run, manifest, posteriors)
    nodes = load_node_table(run)
    np.testing.assert_array_equal(nodes.posteriors, posteriors)
    np.testing.assert_array_equal(nodes.labels, labels)
    for y in (0, 1):
        chosen = (labels == y) & (np.arange(200) % 3 == 0)
        expected = posteriors[chosen].mean(axis=0)
        own = nodes.reference.posteriors[nodes.reference.labels == y].mean(axis=0)
        np.testing.assert_allclose(own, expected, atol=1e-6)


def test_excluded_labels_and_dropped_members_leave_a_row(made, client, tmp_path):
    known = int(np.flatnonzero(made.graph.labels >= 0)[0])
    unknown = int(np.flatnonzero(made.graph.labels < 0)[0])
    table = pa.table(
        {
            "community": ["known", "gone", "both", "both"],
            "node_id": [known, 5000, known, unknown],
        }
    )
    pq.write_table(table, tmp_path / "m.parquet")
    settings = small_settings("labelled=exclude", "input.unknown_nodes=drop")
    sources = of(made, memberships=str(tmp_path / "m.parquet"))
    manifest = quantify(made.run, sources, settings, client)
    rows = {r["community"]: r for r in answered(made.run, manifest).to_pylist()}
    assert rows["gone"]["n_nodes"] == 0
    assert rows["gone"]["prevalence"] is None
    assert "no member is in the graph" in rows["gone"]["note"]
    assert (rows["known"]["n_nodes"], rows["known"]["n_estimated"]) == (1, 0)
    assert rows["known"]["prevalence"] is None
    assert rows["both"]["note"] == "suppressed: fewer than 10 members"
    assert rows["both"]["prevalence"] is not None
    assert manifest.facts["unknown_dropped"] == 1


def test_detected_communities_hold_every_node(made, client, tmp_path):
    path, _ = draw_memberships(tmp_path, 2)

    def manifest_of(*changed):
        sources = of(made, memberships=path)
        settings = small_settings("communities=leiden", *changed)
        return quantify(made.run, sources, settings, client)

    manifest = manifest_of()
    assert manifest.facts["source"] == "leiden"
    found = made.run.stage("quantify").read_table(
        manifest.named("communities-")[0], "communities"
    )
    assert sorted(found["node_id"].to_pylist()) == list(range(300))
    sizes = found.group_by("community").aggregate([("node_id", "count")])
    rows = answered(made.run, manifest)
    by_name = dict(zip(*sizes.to_pydict().values(), strict=True))
    assert rows["n_nodes"].to_pylist()[::2] == [by_name[k] for k in sorted(by_name)]
    assert manifest_of("seed=1").attempt != manifest.attempt
    # Detection that is streamed depends on its memory.
    small, again, large = (
        manifest_of(f"input.memory={kib} KiB").attempt for kib in (64, 64, 128)
    )
    assert small == again != large


def test_detected_communities_keep_string_ids(tmp_path, client):
    graph = write_graph(tmp_path / "input", nodes=100, edges=300)
    nodes = pq.read_table(graph.sources.nodes)
    text = pa.array([f"n{v:03d}" for v in range(100)])
    pq.write_table(nodes.set_column(0, "node_id", text), graph.sources.nodes)
    edges = pq.read_table(graph.sources.edges)
    named = {c: text.take(edges[c].combine_chunks()) for c in ("src", "dst")}
    pq.write_table(pa.table(named), graph.sources.edges)
    run = RunDirectory(tmp_path / "run")
    manifest = prepare(run, graph.sources, small_settings(), 2)
    write_posteriors(run, manifest, np.full((100, 2), 0.5, np.float32))
    manifest = quantify(run, graph.sources, small_settings(), client)
    found = run.stage("quantify").read_table(
        manifest.named("communities-")[0], "communities"
    )
    assert sorted(found["node_id"].to_pylist()) == text.to_pylist()


def test_missing_memberships_and_stages_are_named(made, client, tmp_path):
    empty = RunDirectory(tmp_path / "empty")
    with pytest.raises(StageError, match="no complete stage 'graph'"):
        quantify(empty, made.graph.sources, small_settings(), client)
    absent = of(made, memberships=str(tmp_path / "absent.parquet"))
    with pytest.raises(InputError, match="does not exist"):
        quantify(made.run, absent, small_settings(), client)
    path, _ = draw_memberships(tmp_path, 2)
    sources = of(made, memberships=path)
    with pytest.raises(SettingsError, match="scratch = '/proc/nothing'"):
        quantify(made.run, sources, small_settings("scratch=/proc/nothing"), client)


def test_error_on_a_worker_leaves_the_stage_unfinished(tmp_path, client):
    made = make_run(tmp_path)
    manifest = made.run.stage("graph").manifest()
    broken = made.posteriors.copy()
    broken[17, 0] = np.nan
    write_posteriors(made.run, manifest, broken)
    path, _ = draw_memberships(tmp_path, 3)
    sources = of(made, memberships=path)
    with pytest.raises(StageError, match="not finite"):
        quantify(made.run, sources, small_settings(), client)
    assert made.run.stage("quantify").manifest() is None


@pytest.mark.parametrize("name", ["dmy", "npacc"])
def test_partitions_on_workers_give_the_estimates_of_one_process(
    made, client, tmp_path, name
):
    path, sets = draw_memberships(tmp_path, 8)
    settings = small_settings(f"quantifier={name}")
    tables = []
    for each in (made, make_run(tmp_path / "alone", partitions=1)):
        manifest = quantify(each.run, of(each, memberships=path), settings, client)
        tables.append(answered(each.run, manifest))
        left = each.run.stage("quantify").names()
        assert [file for file in left if file.startswith("sums")] == []
    table = tables[0]
    assert table.equals(tables[1])
    assert set(table["method"].to_pylist()) == {name}
    nodes = load_node_table(made.run)
    stage = made.run.stage("graph")
    adjacency = layout.read_adjacency(stage.manifest())
    found = neighbour_sums(adjacency, nodes.posteriors)
    nodes = nodes.with_neighbours(found)
    rows = nodes.reference.rows
    np.testing.assert_array_equal(rows, np.flatnonzero(nodes.labels >= 0))
    np.testing.assert_array_equal(nodes.reference.neighbours, found[rows])
    batch = make_communities(*(sets[key] for key in sorted(sets)))
    here = make_quantifier(name, settings).estimate(batch, nodes)
    whole = combine(batch, nodes, here, "count").prevalence
    rows = table["prevalence"].to_numpy().reshape(-1, 2)
    tolerance = 1e-6 if name == "npacc" else 0
    np.testing.assert_allclose(rows, whole, rtol=0, atol=tolerance)
