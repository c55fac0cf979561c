"""Scores of another model (`columns.scores`) in the readout of xnq+."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import rest_in, small_settings, with_graph
from tests.readout.samples import graph_with_scores
from tests.readout.test_plus import PLUS, to_posteriors
from tests.test_pipeline import posteriors
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.layout import node_index
from xnq_dist.graph.profile.inputs import check_findings, profile_inputs
from xnq_dist.graph.sources import Sources

BASE = (*PLUS, "columns.features=features", "partitions=1")


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Sources:
    return graph_with_scores(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory, sources, thread_client) -> dict[str, RunDirectory]:
    """A run for each setting of the scores."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        names: to_posteriors(
            folder / names,
            sources,
            small_settings(*BASE, f"columns.scores=[{names}]"),
            thread_client,
        )
        for names in ("", "gaps")
    }


def facts(run: RunDirectory) -> dict:
    return run.stage("readout").manifest().facts


def error(run: RunDirectory, sources: Sources) -> float:
    """Share of unlabelled nodes whose most probable class is not theirs."""
    nodes = pq.read_table(sources.nodes)
    free = nodes["label"].is_null().to_numpy()
    found = np.array(posteriors(run)["posterior"].to_pylist()).argmax(axis=1)
    return float((found != nodes["truth"].to_numpy())[free].mean())


def test_a_good_score_lowers_log_loss_and_error(runs, sources):
    without, with_score = facts(runs[""]), facts(runs["gaps"])
    assert with_score["log_loss"] < 0.8 * without["log_loss"]
    assert error(runs["gaps"], sources) < 0.8 * error(runs[""], sources)
    assert "scores" not in without
    assert "scores" not in without["pool"]
    assert with_score["pool"]["scores"] > with_score["pool"]["prior"]
    gain = with_score["scores"]["gain"]
    assert with_score["scores"]["columns"] == ["gaps"]
    assert 0.2 < gain["lower"] < gain["value"] < gain["upper"]


def test_a_gap_in_a_score_is_a_column_of_its_own(runs, sources):
    graph, stage = (runs["gaps"].stage(name) for name in ("graph", "scores"))
    (record,) = stage.manifest().named("scores-")
    (rows,) = node_index(graph.manifest())
    score, missing = stage.read_arrays(record)["scores"].T
    gaps = pq.read_table(sources.nodes)["gaps"].is_null().to_numpy()[rows]
    np.testing.assert_array_equal(missing > 0, gaps)
    assert len(np.unique(score[gaps])) == 1
    assert facts(runs["gaps"])["scores"]["gain"]["lower"] > 0


def test_same_posteriors_with_scores_for_any_partitions(
    tmp_path, sources, runs, client
):
    settings = small_settings(*BASE[:-1], "columns.scores=[gaps]", "partitions=3")
    other = to_posteriors(tmp_path, sources, settings, client)
    assert posteriors(other).equals(posteriors(runs["gaps"]))
    assert facts(other) == facts(runs["gaps"])


@pytest.mark.usefixtures("no_trees")
def test_the_log_says_when_scores_do_not_help(tmp_path, sources, thread_client, caplog):
    settings = small_settings(*BASE, "columns.scores=[noise]")
    with caplog.at_level(logging.INFO):
        run = to_posteriors(tmp_path, sources, settings, thread_client)
    assert "the scores (noise) do not help measurably: they reduce" in caplog.text
    assert facts(run)["scores"]["gain"]["lower"] < 0


@pytest.mark.data
@pytest.mark.parametrize("share", rest_in("slow", [0.06, 0.6], 0.06))
def test_a_score_of_noise_costs_at_most_1_percent_of_log_loss(
    tmp_path: Path, data_folder: Path, thread_client, share
):
    nodes = pq.read_table(data_folder / "twitch-de" / "nodes.parquet")
    truth = nodes["label"].to_numpy()
    rng = np.random.default_rng(3)
    shown = np.where(rng.random(len(truth)) < share, truth, -1)
    columns = {
        "node_id": nodes["node_id"],
        "label": pa.array(shown, mask=shown < 0),
        "features": nodes["features"],
        "noise": rng.random(len(truth)),
    }
    edges = str(data_folder / "twitch-de" / "edges.parquet")
    sources = Sources(str(tmp_path / "nodes.parquet"), edges)
    pq.write_table(pa.table(columns), sources.nodes)
    losses = []
    for names in ("[]", "[noise]"):
        settings = load_settings(overrides=[f"columns.scores={names}", "partitions=1"])
        run = to_posteriors(tmp_path / "run", sources, settings, thread_client)
        found = posteriors(run)
        p = np.array(found["posterior"].to_pylist())
        free = ~found["out_of_fold"].to_numpy()
        each = truth[found["node_id"].to_numpy()]
        losses.append(-np.log(p[np.arange(len(p)), each])[free].mean())
    assert losses[1] < 1.01 * losses[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["columns.scores=[a]", "method=xnq"], "columns.scores needs method = xnq"),
        (["columns.scores=[a,a]"], "columns.scores names 'a', which columns names"),
        (["columns.scores=[label]"], "columns.scores names 'label', which"),
        (["columns.scores=[x]", "columns.role=x"], "columns.scores names 'x'"),
    ],
)
def test_settings_that_contradict_scores_are_refused(overrides, message):
    with pytest.raises(SettingsError, match=message):
        load_settings(overrides=overrides)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("words", r"'words' of .* is string, .* columns\.scores, which takes numbers"),
        ("pairs", r"'pairs' of .* is list.* columns\.scores, which takes numbers"),
        ("days", r"'days' of .* is date32.* leave it out of columns\.scores"),
        ("wide", r"'wide' is infinite or too large for float32 in row 4"),
    ],
)
def test_columns_of_other_types_are_refused_before_the_graph_is_made(
    tmp_path, sources, name, message
):
    nodes = pq.read_table(sources.nodes)
    count = len(nodes)
    wide = np.arange(count, dtype=np.float64)
    wide[3] = np.inf
    made = {
        "words": pa.array(["high"] * count),
        "days": pa.array([1] * count, pa.int32()).cast(pa.date32()),
        "pairs": pa.array([[0.2, 0.8]] * count),
        "wide": wide,
    }
    nodes = nodes.append_column(name, pa.array(made[name]))
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    changed = Sources(str(tmp_path / "nodes.parquet"), sources.edges)
    settings = small_settings(*BASE, f"columns.scores=[{name}]")
    with pytest.raises(InputError, match=message):
        with_graph(tmp_path / "run", changed, settings)
    assert RunDirectory(tmp_path / "run").stage("graph").manifest() is None


def test_a_score_that_copies_the_label_is_refused(tmp_path, sources):
    nodes = pq.read_table(sources.nodes)
    nodes = nodes.append_column("vendor", nodes["label"])
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    copied = Sources(str(tmp_path / "nodes.parquet"), sources.edges)
    profile = profile_inputs(copied, small_settings(*BASE, "columns.scores=[vendor]"))
    message = r"'vendor' of .* is a copy of the label .* columns\.scores"
    with pytest.raises(InputError, match=message):
        check_findings(profile.findings)


def test_auto_leaves_scores_out_of_the_features(tmp_path, sources):
    nodes = pq.read_table(sources.nodes).drop_columns(["features", "truth"])
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    changed = Sources(str(tmp_path / "nodes.parquet"), sources.edges)
    settings = small_settings(*PLUS, "columns.scores=[good]")
    stage = with_graph(tmp_path / "run", changed, settings).stage("graph")
    (record,) = stage.manifest().named("feature-scaling")
    names = stage.read_table(record, "feature_scaling")["feature"].to_pylist()
    assert names == ["gaps", "gaps is missing", "noise"]
