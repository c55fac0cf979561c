"""New labels or memberships on existing embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import (
    flip,
    published_values,
    small_settings,
    with_graph,
    write_graph,
)
from tests.readout.samples import graph_with_scores
from tests.test_due import (
    LATER,
    QUICK,
    READOUT,
    SETTINGS,
    client,
    graph,
    made_once,
    members_of,
    other_labels,
    redone,
    run,
)
from tests.test_pipeline import attempts, relabel, whole_line
from xnq_dist import jobs, pipeline
from xnq_dist.core import cluster
from xnq_dist.core.errors import (
    InputError,
    RunDirectoryError,
    SettingsError,
    StageError,
)
from xnq_dist.core.store import RunDirectory
from xnq_dist.due import due_stages
from xnq_dist.reuse import Request

__all__ = ["client", "graph", "made_once", "run"]


def requantify(client: Any, base: RunDirectory, *out: Path, **what: Any) -> Any:
    request = Request.of(base.uri, *map(str, out), **what)
    return RunDirectory(jobs.requantify(request, client)["run"])


def prevalence(run: RunDirectory) -> list[dict[str, Any]]:
    return published_values(run.uri).to_pylist()


def contents_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def label_table(folder: Path, labels: np.ndarray) -> str:
    """A table with the labels of the labelled nodes only."""
    nodes = np.flatnonzero(labels >= 0)
    path = folder / "labels.parquet"
    pq.write_table(pa.table({"node_id": nodes, "label": labels[nodes]}), path)
    return str(path)


def test_new_labels_answer_as_a_run_from_nothing(tmp_path, graph, run, client):
    sources, before, labels = members_of(graph), attempts(run), other_labels(graph)
    out = tmp_path / "other"
    made = requantify(client, run, out, labels=label_table(tmp_path, labels))
    assert redone(made, before) == LATER
    relabel(sources.nodes, labels)
    fresh = whole_line(tmp_path / "fresh", sources, SETTINGS, client)
    assert prevalence(made) == prevalence(fresh)
    # The same holds for a run with these labels in its node table.
    again = attempts(made)
    whole_line(out, sources, SETTINGS, client)
    assert redone(made, again) == set()


def with_scores(*names):
    named = ("columns.features=features", f"columns.scores=[{', '.join(names)}]")
    plus = ("method=xnq+", "reservoir.recurrent_scale=[1.0]", "readout.folds=3")
    return small_settings(*plus, *named)


@pytest.mark.usefixtures("no_trees")
def test_new_scores_change_the_readout_and_new_labels_keep_them(tmp_path, client):
    """Scores cannot be changed without the node table."""
    sources = graph_with_scores(tmp_path / "input")
    run = whole_line(tmp_path / "run", sources, with_scores("noise", "gaps"), client)
    for names in (), ("good",):
        due = due_stages(run, sources, with_scores(*names))
        assert {*due} == {"scores", *READOUT, "published"}
    before, settings = attempts(run), with_scores("good")
    whole_line(run.uri, sources, settings, client)
    assert redone(run, before) == READOUT
    assert run.stage("scores").manifest().inputs["columns"] == ["good"]
    assert due_stages(run, sources, settings) == ()
    labels = pq.read_table(sources.nodes)["truth"].to_numpy()
    Path(sources.nodes).unlink()
    made = requantify(client, run, labels=label_table(tmp_path, labels))
    facts = made.stage("readout").manifest().facts
    assert facts["n_labelled"] == 400
    assert facts["scores"]["gain"]["lower"] > 0
    for other in ("[]", "[noise]"):
        with pytest.raises(SettingsError, match=r"made with other settings .*scores"):
            requantify(client, run, overrides=[f"columns.scores={other}"])


def test_new_memberships_need_no_table_of_the_graph(tmp_path, graph, run, client):
    sources = members_of(graph)
    before = attempts(run)
    new = members_of(graph, "new", shift=10)
    expected = prevalence(whole_line(tmp_path / "fresh", new, SETTINGS, client))
    Path(sources.nodes).unlink()
    Path(sources.edges).unlink()
    made = requantify(client, run, tmp_path / "other", memberships=str(new.memberships))
    assert redone(made, before) == {"quantify"}
    assert prevalence(made) == expected
    assert attempts(run) == before


def test_the_base_is_never_written_and_may_go(tmp_path, graph, run, client):
    before = contents_of(tmp_path / "run")
    made = requantify(
        client, run, tmp_path / "b", labels=label_table(tmp_path, other_labels(graph))
    )
    assert contents_of(tmp_path / "run") == before
    first = prevalence(made)
    (tmp_path / "run").rename(tmp_path / "gone")
    again = requantify(client, made, overrides=["quantifier=pcc"])
    assert prevalence(again) != first
    assert contents_of(tmp_path / "gone") == {
        path.replace("/run/", "/gone/"): value for path, value in before.items()
    }


@pytest.mark.parametrize("links", [True, False])
def test_files_are_shared_with_the_base_or_copied(
    tmp_path, graph, run, client, monkeypatch, links
):
    def refused(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    if not links:
        monkeypatch.setattr("os.link", refused)
    made = requantify(client, run, tmp_path / "b")
    assert prevalence(made) == prevalence(run)
    for name in ("graph", "embeddings", "posteriors"):
        for record in run.stage(name).manifest().files:
            one, other = (Path(r.uri) / name / record.name for r in (run, made))
            assert one.samefile(other) == links
            assert one.read_bytes() == other.read_bytes()


def test_what_new_tables_show_is_refused_before_workers_start(
    tmp_path, graph, run, monkeypatch
):
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("workers started")

    monkeypatch.setattr(cluster, "open_cluster", start)
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"community": ["a"], "node_id": [5000]}), foreign)
    classes = np.where(np.arange(150) % 3, graph.labels, 2)
    minus = tmp_path / "minus.parquet"
    nodes = np.flatnonzero(graph.labels >= 0)
    codes = pa.table({"node_id": nodes, "label": graph.labels[nodes] - 1})
    pq.write_table(codes, minus)
    for what, words in (
        ({"memberships": str(foreign)}, "5000"),
        ({"labels": str(minus)}, "-1 .* unlike a class"),
        (
            {
                "labels": label_table(tmp_path, classes),
                "overrides": ["quantifier=hdy"],
            },
            "quantifier=hdy is defined for two classes",
        ),
        ({"overrides": ["labels.prior={a: .5, b: .5}"]}, "labels.prior"),
    ):
        request = Request.of(run.uri, str(tmp_path / "new"), **what)
        with pytest.raises((InputError, SettingsError), match=words):
            jobs.requantify(request)
    assert not (tmp_path / "new" / "quantify").exists()


def test_a_second_call_reuses_every_stage(tmp_path, graph, run, client):
    labels = label_table(tmp_path, other_labels(graph))
    made = requantify(client, run, tmp_path / "b", labels=labels)
    before = contents_of(tmp_path / "b")
    kept = attempts(made)
    assert redone(requantify(client, run, tmp_path / "b", labels=labels), kept) == set()
    changed = {
        path
        for path, value in contents_of(tmp_path / "b").items()
        if before.get(path) != value
    }
    assert {Path(path).name for path in changed} <= {
        "_run.json",
        "_contents.json",
        "_profile.json",
    }
    # Without --labels, those of the run are used.
    back = requantify(client, run, tmp_path / "b")
    assert prevalence(back) == prevalence(run)


def test_settings_of_other_embeddings_are_refused(tmp_path, graph, run, client):
    for override in ("reservoir.dim=99", "seed=9", "input.directed=false"):
        with pytest.raises(SettingsError, match="leave these settings out"):
            requantify(client, run, tmp_path / "b", overrides=[override])


@pytest.mark.parametrize("value", ["class=robot", "class_names={robot: bots}"])
def test_a_page_about_a_class_that_does_not_exist_is_refused(
    tmp_path, run, client, value
):
    with pytest.raises(SettingsError, match=r"report\..* = robot is not a class"):
        requantify(client, run, tmp_path / "b", overrides=[f"report.{value}"])


def test_labels_of_unknown_nodes_are_refused_or_dropped_as_set(
    tmp_path, graph, run, client
):
    labels, before = other_labels(graph), attempts(run)
    path = label_table(tmp_path, labels)
    more = pa.table({"node_id": [777], "label": [1]})
    pq.write_table(pa.concat_tables([pq.read_table(path), more]), path)
    with pytest.raises(InputError, match=r"names node 777, which is not in the gr"):
        requantify(client, run, labels=path, overrides=["input.unknown_nodes=error"])
    assert attempts(run) == before
    drop = ["input.unknown_nodes=drop"]
    made = requantify(client, run, labels=path, overrides=drop)
    facts = made.stage("labels").manifest().facts
    assert facts["unknown_dropped"] == 1
    assert facts["n_labelled"] == int((labels >= 0).sum())


def test_embeddings_that_were_not_kept_serve_memberships_alone(tmp_path, graph, client):
    settings = small_settings(*QUICK, "embeddings.write=false")
    run = whole_line(tmp_path / "run", members_of(graph), settings, client)
    before = attempts(run)
    new = members_of(graph, "new", shift=10)
    made = requantify(client, run, memberships=str(new.memberships))
    assert redone(made, before) == {"quantify"}
    before = attempts(made)
    with pytest.raises(StageError, match="were not kept"):
        requantify(client, run, labels=label_table(tmp_path, other_labels(graph)))
    with pytest.raises(StageError, match="were not kept"):
        requantify(client, run, overrides=["readout.C=0.1"])
    assert attempts(made) == before


def test_directories_that_cannot_serve_are_refused(tmp_path, graph, run, client):
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        Request.of(str(tmp_path / "nowhere"))
    sources = members_of(graph)
    other = write_graph(tmp_path / "o", nodes=120, edges=300)
    theirs = tmp_path / "theirs"
    with_graph(theirs, other.sources, SETTINGS)
    with pytest.raises(RunDirectoryError, match="another graph with 120 nodes"):
        requantify(client, run, theirs)
    (tmp_path / "run" / "embeddings" / "_manifest.json").unlink()
    with pytest.raises(StageError, match="no complete stage 'embeddings'"):
        requantify(client, run, tmp_path / "b")
    leiden = small_settings(*QUICK, "communities=leiden")
    detected = whole_line(tmp_path / "d", graph.sources, leiden, client)
    with pytest.raises(SettingsError, match="--set communities=given"):
        Request.of(detected.uri, memberships=str(sources.memberships))


def test_a_base_that_changes_meanwhile_is_noticed(
    tmp_path, graph, run, client, monkeypatch
):
    from xnq_dist import reuse as module

    real, other = module._take_file, small_settings(*QUICK, "readout.C=0.3")

    def changes(source, target, name):
        real(source, target, name)
        if source.uri.endswith("/graph"):
            pipeline.fit_readout(run, other, client)

    monkeypatch.setattr(module, "_take_file", changes)
    with pytest.raises(RunDirectoryError, match="run again when no other run uses"):
        requantify(client, run, tmp_path / "b")
    monkeypatch.undo()
    assert prevalence(
        requantify(client, run, tmp_path / "b", overrides=["readout.C=1.0"])
    )


def test_column_of_the_node_table_needs_that_table(tmp_path, graph, client):
    settings = small_settings(*QUICK, "communities=column:label")
    run = whole_line(tmp_path / "run", graph.sources, settings, client)
    made = requantify(client, run, tmp_path / "b", overrides=["quantifier=pcc"])
    assert prevalence(made)
    nodes = Path(graph.sources.nodes)
    nodes.rename(nodes.with_name("gone.parquet"))
    with pytest.raises(InputError, match="does not exist"):
        requantify(client, run, tmp_path / "b", overrides=["quantifier=cc"])


def test_damage_in_the_base_is_named(tmp_path, graph, run, client):
    stage = run.stage("embeddings")
    flip(stage.path(stage.manifest().files[0].name))
    with pytest.raises(RunDirectoryError, match=r"repair it with xnq-dist run on"):
        requantify(client, run, tmp_path / "third")
    # In the same directory the stage is deleted and the readout computed again.
    labels = label_table(tmp_path, other_labels(graph))
    with pytest.raises(StageError, match="no complete stage 'embeddings'"):
        requantify(client, run, labels=labels)


@pytest.mark.usefixtures("no_trees")
def test_weights_of_labels_come_with_a_table_of_labels(tmp_path, graph, client):
    plus = ("method=xnq+", "readout.folds=3", "partitions=1")
    small = ("reservoir.dim=12", "reservoir.supersteps=3")
    sources = members_of(graph)
    run = whole_line(tmp_path / "run", sources, small_settings(*plus, *small), client)
    weighted = ["labels.drawn=weighted", "columns.label_weight=w"]
    with pytest.raises(SettingsError, match="name their table with --labels"):
        requantify(client, run, tmp_path / "other", overrides=weighted)
    path = label_table(tmp_path, other_labels(graph))
    table = pq.read_table(path)
    weights = np.linspace(1, 5, len(table))
    pq.write_table(table.append_column("w", pa.array(weights)), path)
    out = tmp_path / "weighted"
    made = requantify(client, run, out, labels=path, overrides=weighted)
    assert made.stage("labels").manifest().named("label-weights-")
    prior = made.stage("readout").manifest().facts["prior"]
    shares = np.bincount(table["label"].to_numpy(), weights) / weights.sum()
    np.testing.assert_allclose(prior, shares)
