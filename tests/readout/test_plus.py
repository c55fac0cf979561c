"""xnq+ on Dask: same results for any partitions, no leaks, reuse of stages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import log_softmax

from tests.conftest import published_values, small_settings, with_graph, write_graph
from tests.readout.samples import graph_with_scores
from tests.test_pipeline import posteriors, whole_line
from xnq_dist import pipeline
from xnq_dist.core import sections
from xnq_dist.core.errors import DoesNotFitError, InputError
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation.methods.embedded import plus_scores
from xnq_dist.graph.layout import load_labels, node_index, read_adjacency
from xnq_dist.graph.sources import Sources
from xnq_dist.readout.plus import learning
from xnq_dist.readout.plus.first_stage import node_folds
from xnq_dist.readout.plus.label_features import read_features
from xnq_dist.readout.plus.learning import fit
from xnq_dist.readout.plus.plus_model import SavedPlus
from xnq_dist.readout.plus.second_stage import (
    pool_weights,
    second_rows,
    used_by_trees,
)
from xnq_dist.readout.rows import FEATURES, OWN, Part
from xnq_dist.readout.stage import Embedded, ReadoutWork
from xnq_dist.reservoir.context import matrix_of

PLUS = (
    "method=xnq+",
    "reservoir.recurrent_scale=select",
    "readout.folds=3",
)


SCORES = ("columns.scores=[good, gaps]", "columns.features=features")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return write_graph(tmp_path_factory.mktemp("input"), nodes=400, edges=1600)


@pytest.fixture(scope="module")
def run(tmp_path_factory, graph, thread_client):
    """The complete pipeline with xnq+ in one partition."""
    settings = small_settings(*PLUS, "partitions=1")
    out = tmp_path_factory.mktemp("run")
    return whole_line(out, graph.sources, settings, thread_client)


def to_posteriors(out, sources, settings, client) -> RunDirectory:
    """The pipeline without communities and report."""
    run = with_graph(out, sources, settings)
    pipeline.embed(run, settings, client)
    pipeline.fit_readout(run, settings, client)
    pipeline.posteriors(run, settings, client)
    return run


def saved(run: RunDirectory) -> SavedPlus:
    stage = run.stage("readout")
    (record,) = stage.manifest().named("readout-")
    return SavedPlus.read(stage, record)


def scores(run, client, labels, attempt, *overrides, groups=None):
    settings = small_settings(*PLUS, *overrides)
    classes = run.stage("labels").manifest().facts["classes"]
    known = labels, np.ones(len(labels)), classes
    work = client, Embedded.of(run, settings), *known, settings, attempt
    return plus_scores(ReadoutWork(*work, groups=groups))


def test_same_prevalence_and_posteriors_for_any_partitions(
    tmp_path, graph, run, client
):
    settings = small_settings(*PLUS, "partitions=3")
    other = whole_line(tmp_path, graph.sources, settings, client)
    assert posteriors(other).equals(posteriors(run))
    assert published_values(other.uri).equals(published_values(run.uri))
    facts = [which.stage("readout").manifest().facts for which in (run, other)]
    assert facts[0] == facts[1]


@pytest.mark.usefixtures("no_trees")
def test_held_rows_are_independent_of_the_labels_of_their_group(
    graph, run, thread_client, monkeypatch
):
    """Swapping all labels of one group does not change the scores of the group."""
    stage = run.stage("readout")
    manifest = stage.manifest()
    groups = stage.read_arrays(manifest.named("groups-")[0])["groups"]
    labels = load_labels(run.stage("labels").manifest()).codes
    known = np.flatnonzero(labels >= 0)
    written = stage.read_arrays(manifest.named("held-")[0])
    np.testing.assert_array_equal(written["index"], known)
    own = groups[known] == np.bincount(groups[known]).argmax()
    other = labels.copy()
    other[known[own]] = 1 - other[known[own]]
    seen = []

    def watched(logs, labels, weights):
        seen.append(logs)
        return pool_weights(logs, labels, weights)

    monkeypatch.setattr(learning, "pool_weights", watched)
    for shown in (labels, other):
        attempt = run.stage("trial").begin()
        more = "readout.C=1"
        found = scores(run, thread_client, shown, attempt, more, groups=groups)
    again = found.by_group[1]
    run.stage("trial").delete_folder()
    before, after = seen
    np.testing.assert_array_equal(before[:, own], after[:, own])
    assert (before[:, ~own] != after[:, ~own]).any()
    assert (written["posterior"] != again).any()


def test_labels_beyond_the_limit_of_the_models_are_used_elsewhere(
    tmp_path, graph, run, thread_client, monkeypatch
):
    """The rest of the labels counts among neighbours alone."""
    monkeypatch.setattr(sections, "MAX_ROWS", 120)
    settings = small_settings(*PLUS, "partitions=2")
    made = to_posteriors(tmp_path, graph.sources, settings, thread_client)
    facts = made.stage("readout").manifest().facts
    assert facts["n_fitted"] == 120
    assert facts["n_labelled"] == int((graph.labels >= 0).sum())
    both = [
        np.array(posteriors(which)["posterior"].to_pylist()) for which in (run, made)
    ]
    assert 0 < np.abs(both[0] - both[1]).mean() < 0.1


def test_facts_of_the_readout_are_recorded(graph, run):
    table = posteriors(run)
    ids, flags = table["node_id"].to_numpy(), table["out_of_fold"].to_numpy()
    np.testing.assert_array_equal(graph.labels[ids] >= 0, flags)
    facts = run.stage("readout").manifest().facts
    labelled = int((graph.labels >= 0).sum())
    assert facts["n_labelled"] == facts["n_fitted"] == labelled
    assert facts["prior"] == pytest.approx(
        np.bincount(graph.labels[graph.labels >= 0]) / labelled
    )
    kinds = {"prior", "logistic", "trees", "trees with spectrum"}
    blocks = {f"block {at}" for at in range(2)}
    assert set(facts["pool"]) == set(facts["second_stage_log_losses"]) == kinds | blocks
    # Reservoir; five features and the degree of the node and at two hops.
    assert run.stage("embeddings").manifest().facts["blocks"] == [24, 18]
    # In this graph of blocks, neighbours' labels are informative.
    assert facts["log_loss"] < facts["second_stage_log_losses"]["block 0"]
    assert facts["log_loss"] < facts["second_stage_log_losses"]["prior"]
    assert all(sum(one["count"]) == labelled for one in facts["reliability"])
    assert run.stage("embeddings").manifest().facts["recurrent_scale"] == [1, 3, 8, 20]
    names = run.stage("readout").names()
    names += run.stage("embeddings").names()
    passing = (
        "labels around",
        "models",
        "hops",
        "desc",
    )
    assert not [name for name in names if name.startswith(passing)]


def test_an_undirected_graph_has_a_spectrum(tmp_path, graph, thread_client):
    """Its columns are singular vectors of the normalised adjacency."""
    found = {}
    for count in (1, 3):
        settings = small_settings(*PLUS, f"partitions={count}", "input.directed=false")
        made = with_graph(tmp_path / str(count), graph.sources, settings)
        pipeline.embed(made, settings, thread_client)
        stage = made.stage("embeddings")
        manifest = stage.manifest()
        rows = [
            stage.read_table(record, "embeddings") for record in manifest.named("part-")
        ]
        table = pa.concat_tables(rows).sort_by("node_id")
        found[count] = np.array(table["embedding"].to_pylist(), np.float32)
    np.testing.assert_array_equal(found[1], found[3])
    blocks = manifest.facts["blocks"]
    assert blocks == [24, 18, 64]
    adjacency = read_adjacency(made.stage("graph").manifest())
    root = np.sqrt(np.maximum(adjacency.sum(axis=1), 1e-9))
    normalised = (adjacency.toarray() / root[:, None]) / root
    spectrum = found[1][:, -64:].astype(np.float64)
    lengths = np.linalg.norm(spectrum, axis=0)
    np.testing.assert_allclose(
        lengths[:3],
        np.sort(np.abs(np.linalg.eigvalsh(normalised)))[::-1][:3],
        rtol=5e-3,
    )
    unit = spectrum[:, 0] / lengths[0]
    np.testing.assert_allclose(normalised @ unit, unit, atol=1e-3)
    features = found[1][:, 24:29]
    wanted = (graph.features - graph.features.mean(axis=0)) / graph.features.std(axis=0)
    np.testing.assert_allclose(features, wanted, atol=1e-3)


@pytest.fixture(scope="module")
def run_with_scores(tmp_path_factory, thread_client):
    """Embeddings of a graph with scores of another model."""
    sources = graph_with_scores(tmp_path_factory.mktemp("scores"))
    settings = small_settings(*PLUS, "partitions=1", *SCORES)
    run = with_graph(tmp_path_factory.mktemp("run"), sources, settings)
    pipeline.embed(run, settings, thread_client)
    return run


@pytest.mark.usefixtures("no_trees")
def test_flipping_a_label_leaves_the_models_of_its_own_fold(
    tmp_path, run_with_scores, thread_client
):
    """At fixed C, rounds, pool and calibration the node's score keeps its bits."""
    run = run_with_scores
    labels = load_labels(run.stage("labels").manifest()).codes
    kept, features = {}, {}
    node = int(np.flatnonzero(labels >= 0)[17])
    for name in ("before", "after"):
        shown = labels.copy()
        shown[node] = labels[node] if name == "before" else 1 - labels[node]
        stage = RunDirectory(tmp_path / name).stage("readout")
        graph, settings = run.stage("graph"), small_settings(*PLUS, *SCORES)
        work = ReadoutWork(
            thread_client,
            Embedded.of(run, settings),
            shown,
            np.ones(len(shown)),
            run.stage("labels").manifest().facts["classes"],
            settings,
            stage.begin(),
        )
        (record, features_record), _ = fit(work)
        kept[name] = SavedPlus.read(stage, record)
        (rows,) = node_index(graph.manifest())
        features[name] = read_features(stage, features_record, "each")[rows == node]
        (part,) = work.parts
        x = np.concatenate([values for _, values in part.states()])[rows == node]
    (fold,) = node_folds(np.array([node]), 3, kept["before"].seed)
    features = {name: values[:, fold] for name, values in features.items()}
    np.testing.assert_array_equal(features["before"], features["after"])
    before, after = kept["before"], kept["after"]
    first = [which.first.scores(x)[:, fold] for which in (before, after)]
    np.testing.assert_array_equal(*first)
    z = second_rows(first[0], features["before"])
    assert len(before.second.weights) == len(after.second.weights)
    assert before.second.scores_coef.shape[2] == 3
    for own, other in zip(
        before.second.components(first[0], z, x, fold),
        after.second.components(first[1], z, x, fold),
        strict=True,
    ):
        np.testing.assert_array_equal(own, other)
    others = [which.first.scores(x)[:, fold - 1] for which in (before, after)]
    assert not np.array_equal(*others)


def test_unlabelled_nodes_have_the_mean_score_of_all_folds(run):
    """A labelled one has that of its own fold, which a second file has of all nodes."""
    model, classes = saved(run), run.stage("labels").manifest().facts["classes"]
    graph, stage = run.stage("graph"), run.stage("posteriors")
    labels = load_labels(run.stage("labels").manifest()).codes
    for number, rows in enumerate(node_index(graph.manifest())):
        record = run.stage("readout").manifest().named(FEATURES)[number]
        features = read_features(run.stage("readout"), record, "each")
        embeddings = run.stage("embeddings").manifest().named("part-")[number]
        part = Part(run, 1, None, embeddings, None)
        x = np.concatenate([v for _, v in part.states()])
        logs = np.empty((len(rows), 3, len(classes)))
        for row in range(len(rows)):
            first = model.first.scores(x[[row]])
            for fold in range(3):
                z = second_rows(first[:, fold], features[[row], fold])
                inputs = (
                    first[:, fold],
                    z,
                    x[[row]][:, used_by_trees(model.first.blocks)],
                )
                logs[row, fold] = model.second.scores(*inputs, fold)[0]
        alone = [model.logits(x[[k]], features[[k]], rows[[k]]) for k in range(9)]
        np.testing.assert_array_equal(
            np.concatenate(alone, axis=1), model.logits(x[:9], features[:9], rows[:9])
        )
        assert (labels[rows[:9]] >= 0).any()
        own = logs[np.arange(len(rows)), node_folds(rows, 3, model.seed)]
        mean = log_softmax(logs.mean(axis=1), axis=1)
        known = (labels[rows] >= 0)[:, None]
        table = stage.read_table(stage.manifest().named("part-")[number], "posteriors")
        found = matrix_of(table["posterior"])
        due = model.calibration.apply(np.where(known, own, mean))
        np.testing.assert_allclose(found, due, atol=1e-6)
        by_own = stage.read_arrays(stage.manifest().named(OWN)[number])["posterior"]
        np.testing.assert_allclose(by_own, model.calibration.apply(own), atol=1e-6)
        assert not np.allclose(found, by_own)


def test_scores_for_evaluation_are_those_of_the_run(tmp_path, run, thread_client):
    before = {name: run.stage(name).manifest() for name in ("readout", "posteriors")}
    labels = load_labels(run.stage("labels").manifest()).codes
    attempt = RunDirectory(tmp_path).stage("readout").begin()
    found = scores(run, thread_client, labels, attempt)
    kept = saved(run)
    table = posteriors(run)
    expected = np.array(table["posterior"].to_pylist())
    again = kept.calibration.apply(found.logits.astype(np.float64))
    np.testing.assert_allclose(again, expected, atol=1e-5)
    for name, manifest in before.items():
        assert run.stage(name).manifest() == manifest


def test_more_classes_roles_and_isolated_nodes(tmp_path, thread_client):
    graph = write_graph(tmp_path / "input", nodes=480, edges=1400, classes=3)
    nodes = pq.read_table(graph.sources.nodes)
    roles = np.random.default_rng(9).choice(["train", "calibration", None], 480)
    roles[graph.labels < 0] = None
    nodes = nodes.append_column("role", pa.array(roles.tolist(), pa.string()))
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    sources = Sources(str(tmp_path / "nodes.parquet"), graph.sources.edges)
    settings = small_settings(*PLUS, "partitions=2")
    run = to_posteriors(tmp_path / "run", sources, settings, thread_client)
    facts = run.stage("readout").manifest().facts
    pooled = np.array([role is not None for role in roles])
    assert facts["n_labelled"] == int(pooled.sum())
    assert {"logistic", "trees"} <= facts["pool"].keys()
    # A label without a role: nothing has seen it, so its posterior is held out too.
    flags = posteriors(run)["out_of_fold"].to_numpy()
    np.testing.assert_array_equal(flags, graph.labels >= 0)
    np.testing.assert_array_equal(saved(run).index, np.flatnonzero(pooled))


def test_impossible_fits_are_refused_at_once(tmp_path, run, thread_client):
    labels = load_labels(run.stage("labels").manifest()).codes
    folder = RunDirectory(tmp_path)
    lone = labels.copy()
    lone[np.flatnonzero(lone == 1)[1:]] = -1
    with pytest.raises(InputError, match=r"class '?1'? has one labelled node"):
        scores(run, thread_client, lone, folder.stage("a").begin())
    none = np.full_like(labels, -1)
    with pytest.raises(InputError, match="has no labelled node"):
        scores(run, thread_client, none, folder.stage("b").begin())
    with pytest.raises(DoesNotFitError, match=r"set readout\.memory to 1MiB"):
        scores(
            run, thread_client, labels, folder.stage("c").begin(), "readout.memory=9kB"
        )
