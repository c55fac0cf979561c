"""xnq+ on Dask: one answer however it is cut, nothing leaked, nothing redone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import published_values, small_settings, write_graph
from tests.test_pipeline import posteriors, whole_line
from xnq_dist import pipeline
from xnq_dist.errors import DoesNotFitError, InputError
from xnq_dist.graph.layout import load_labels, node_index, read_adjacency
from xnq_dist.graph.tables import Sources
from xnq_dist.readout import row_blocks
from xnq_dist.readout.plus import plus_scores
from xnq_dist.readout.plus_model import SavedPlus
from xnq_dist.readout.rows import FEATURES
from xnq_dist.store import RunDirectory

PLUS = (
    "method=xnq+",
    "reservoir.recurrent_scale=select",
    "readout.folds=3",
    "plus.rounds=[2]",
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return write_graph(tmp_path_factory.mktemp("input"), nodes=400, edges=1600)


@pytest.fixture(scope="module")
def run(tmp_path_factory, graph, thread_client):
    """The whole line by xnq+ in one partition."""
    settings = small_settings(*PLUS, "partitions=1")
    out = tmp_path_factory.mktemp("run")
    return whole_line(out, graph.sources, settings, thread_client)


def to_posteriors(out, sources, settings, client) -> RunDirectory:
    """The line without communities and report."""
    with pipeline.open_run(str(out), sources) as run:
        pipeline.prepare(run, sources, settings)
        pipeline.embed(run, settings, client)
        pipeline.fit_readout(run, settings, client)
    return run


def attempts(run: RunDirectory) -> dict[str, str]:
    names = ("graph", "embeddings", "readout", "posteriors")
    return {name: run.stage(name).manifest().attempt for name in names}


def saved(run: RunDirectory) -> SavedPlus:
    stage = run.stage("readout")
    (record,) = stage.manifest().named("readout-")
    return SavedPlus.from_arrays(stage.read_arrays(record))


def scores(run, client, labels, attempt, *overrides):
    graph, embeddings = run.stage("graph"), run.stage("embeddings")
    settings = small_settings(*PLUS, *overrides)
    classes = run.stage("labels").manifest().facts["classes"]
    return plus_scores(
        client,
        graph,
        graph.manifest(),
        embeddings,
        embeddings.manifest(),
        labels,
        classes,
        settings,
        attempt,
    )


def test_same_prevalence_and_posteriors_for_any_partitions(
    tmp_path, graph, run, client, thread_client
):
    # Worker processes once, threads of one process otherwise.
    for count, where, line in (
        (2, client, whole_line),
        (3, thread_client, to_posteriors),
    ):
        settings = small_settings(*PLUS, f"partitions={count}")
        other = line(tmp_path / str(count), graph.sources, settings, where)
        assert posteriors(other).equals(posteriors(run))
        if line is whole_line:
            tables = [published_values(which.uri) for which in (run, other)]
            assert tables[0].equals(tables[1])
        facts = [which.stage("readout").manifest().facts for which in (run, other)]
        assert facts[0] == facts[1]


def test_rows_beyond_the_memory_give_other_posteriors(
    tmp_path, graph, run, thread_client, monkeypatch
):
    monkeypatch.setattr(row_blocks, "GROUP_ROWS", 64)
    settings = small_settings(*PLUS, "partitions=2", "readout.memory=20kB")
    beyond = to_posteriors(tmp_path, graph.sources, settings, thread_client)
    names = beyond.stage("readout").folder.names()
    assert not [name for name in names if name.endswith(".rows")]
    columns = [posteriors(which)["posterior"].to_pylist() for which in (run, beyond)]
    np.testing.assert_allclose(*columns, atol=5e-3)


def test_what_the_readout_says_of_itself(graph, run):
    table = posteriors(run)
    ids, flags = table["node_id"].to_numpy(), table["out_of_fold"].to_numpy()
    np.testing.assert_array_equal(graph.labels[ids] >= 0, flags)
    facts = run.stage("readout").manifest().facts
    labelled = int((graph.labels >= 0).sum())
    assert facts["n_labelled"] == facts["n_fitted"] == facts["n_judged"] == labelled
    assert facts["prior"] == pytest.approx(
        np.bincount(graph.labels[graph.labels >= 0]) / labelled
    )
    assert facts["second_stage"] in facts["second_stage_log_losses"]
    kinds = {"logistic", "boosted", "mean", "boosted+features", "mean+features"}
    assert set(facts["second_stage_log_losses"]) == kinds
    # Five features of the node, of its neighbours and of theirs.
    assert facts["node_features"] == 15
    # The blocks of this graph make a neighbour's label say something.
    assert facts["log_loss"] < facts["first_stage_log_loss"]
    assert sum(facts["reliability"]["count"]) == labelled
    assert run.stage("embeddings").manifest().facts["recurrent_scale"] == [1, 3, 8, 20]
    names = run.stage("readout").folder.names()
    passing = ("hops", "votes", "near", "described", "models")
    assert not [name for name in names if name.startswith(passing)]
    assert "second_stage" in run.folder.read_bytes("report.html").decode()


def test_scores_for_evaluation_are_those_of_the_run(tmp_path, run, thread_client):
    before = {name: run.stage(name).manifest() for name in ("readout", "posteriors")}
    labels = load_labels(run.stage("labels"), run.stage("labels").manifest())
    attempt = RunDirectory(tmp_path).stage("readout").begin()
    found = scores(run, thread_client, labels, attempt)
    np.testing.assert_array_equal(found.held, np.flatnonzero(labels >= 0))
    kept = saved(run)
    np.testing.assert_array_equal(found.held_logits, kept.second.out_of_fold)
    np.testing.assert_array_equal(
        found.logits[found.held], found.held_logits.astype(np.float32)
    )
    table = posteriors(run)
    expected = np.array(table["posterior"].to_pylist())
    again = kept.calibration.apply(found.logits.astype(np.float64))
    np.testing.assert_allclose(again, expected, atol=1e-5)
    for name, manifest in before.items():
        assert run.stage(name).manifest() == manifest


def test_labels_that_are_hidden_have_no_part(tmp_path, run, thread_client):
    """Other labels than the graph's; the hidden ones may be anything."""
    labels = load_labels(run.stage("labels"), run.stage("labels").manifest())
    shown = np.where(np.arange(len(labels)) % 3 > 0, labels, -1).astype(np.int32)
    attempt = RunDirectory(tmp_path).stage("a").begin()
    found = scores(run, thread_client, shown, attempt, "plus.boosting=never")
    np.testing.assert_array_equal(found.held, np.flatnonzero(shown >= 0))
    assert found.facts["second_stage"] == "logistic"
    assert found.facts["n_labelled"] == int((shown >= 0).sum())
    hidden = np.flatnonzero((labels >= 0) & (shown < 0))
    right = found.logits[hidden].argmax(axis=1) == labels[hidden]
    assert right.mean() > 0.7


def test_random_labels_earn_nothing(tmp_path, run, thread_client):
    """A leak of a node's own label would show as a loss below that of the prior."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, run.stage("graph").manifest().facts["n_nodes"])
    attempt = RunDirectory(tmp_path).stage("a").begin()
    found = scores(run, thread_client, labels.astype(np.int32), attempt)
    losses = found.facts["second_stage_log_losses"]
    assert min(losses.values()) > np.log(2) - 0.01


def test_features_in_the_files_are_label_shares_of_the_graph(run):
    """Hop 1 and the degree, from the adjacency put back together."""
    stage, graph = run.stage("readout"), run.stage("graph")
    (rows,) = node_index(graph, graph.manifest())
    (record,) = stage.manifest().named(FEATURES)
    found = stage.read_arrays(record)["features"]
    adjacency = read_adjacency(graph, graph.manifest()).toarray()
    kept = saved(run)
    labels = load_labels(run.stage("labels"), run.stage("labels").manifest())
    for fold in range(3):
        seen = np.zeros(len(labels), bool)
        seen[kept.index[kept.folds != fold]] = True
        count = np.stack([adjacency @ (seen & (labels == c)) for c in (0, 1)], axis=1)
        share = (count + 10 * kept.prior) / (count.sum(axis=1, keepdims=True) + 10)
        np.testing.assert_allclose(found[:, fold, 0], share[rows, 1], atol=1e-6)
    degree = np.log1p(adjacency.sum(axis=1))
    np.testing.assert_allclose(found[:, 0, -1], degree[rows], atol=1e-6)


def test_switching_the_method_redoes_what_depends_on_it(tmp_path, graph, thread_client):
    scales = ("reservoir.recurrent_scale=[1, 3]", "partitions=2")
    plain = small_settings(*scales)
    plus = small_settings(*PLUS, *scales)

    def redo(settings) -> dict[str, str]:
        return attempts(to_posteriors(tmp_path, graph.sources, settings, thread_client))

    first, second = redo(plain), redo(plus)
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"readout", "posteriors"}
    assert redo(plus) == second
    third = redo(small_settings(*PLUS, *scales, "plus.node_features=0"))
    assert {name for name in first if second[name] != third[name]} == changed
    again = redo(plain)
    assert again["embeddings"] == first["embeddings"]
    assert again["readout"] != third["readout"]


def test_more_classes_roles_and_isolated_nodes(tmp_path, thread_client):
    graph = write_graph(tmp_path / "input", nodes=240, edges=700, classes=3)
    nodes = pq.read_table(graph.sources.nodes)
    roles = np.random.default_rng(9).choice(["train", "calibration", None], 240)
    roles[graph.labels < 0] = None
    nodes = nodes.append_column("role", pa.array(roles.tolist(), pa.string()))
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    sources = Sources(str(tmp_path / "nodes.parquet"), graph.sources.edges)
    settings = small_settings(*PLUS, "partitions=2")
    run = to_posteriors(tmp_path / "run", sources, settings, thread_client)
    facts = run.stage("readout").manifest().facts
    pooled = np.array([role is not None for role in roles])
    assert facts["n_labelled"] == int(pooled.sum())
    assert facts["second_stage_log_losses"].keys() == {"logistic"}
    # A label without a role: nothing has seen it, so its posterior is held out too.
    flags = posteriors(run)["out_of_fold"].to_numpy()
    np.testing.assert_array_equal(flags, graph.labels >= 0)
    np.testing.assert_array_equal(saved(run).index, np.flatnonzero(pooled))


def test_what_cannot_be_is_said_before_any_work(tmp_path, run, thread_client):
    labels = load_labels(run.stage("labels"), run.stage("labels").manifest())
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
