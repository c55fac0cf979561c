"""An evaluation on workers: selection, resuming, independence of the partitioning."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from distributed import Client

from tests.conftest import small_settings, write_graph
from tests.evaluation.methods.test_gnn import needs_gnn
from xnq_dist.core.errors import InputError, SettingsError, StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation import grid_search
from xnq_dist.evaluation import on_workers as run
from xnq_dist.evaluation import split_fit as fit
from xnq_dist.evaluation.keep import PAPER, keep, publish, unpublish
from xnq_dist.evaluation.methods import known_methods
from xnq_dist.evaluation.methods.gnn import GnnSettings
from xnq_dist.evaluation.methods.known_methods import METHODS, choose_methods
from xnq_dist.evaluation.results import result_rows, tidy_tables
from xnq_dist.evaluation.task import TaskSource, load_task
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.prepare import prepare

SETTINGS = small_settings(
    "reservoir.supersteps=4",
    "reservoir.recurrent_scale=select",
    "reservoir.input_scale=select",
    "readout.C=select",
).model_copy(deep=True)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small search and few, small samples instead of the paper's."""
    monkeypatch.setattr(grid_search, "DIMS", (16, 24))
    monkeypatch.setattr(known_methods, "CALIBRATIONS", ("bcts", "none"))
    monkeypatch.setattr(run, "SAMPLE_SIZE", 40)
    monkeypatch.setattr(run, "REPEATS", 3)


def begin(folder, graph, partitions=2, settings=SETTINGS, **source) -> EvaluationWork:
    directory = RunDirectory(folder)
    prepare(directory, graph.sources, settings, partitions)
    wanted = TaskSource("small", folds=(0, 1), **source)
    task = load_task(directory, wanted, 0)
    return EvaluationWork.begin(directory, task, settings)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    return write_graph(folder, nodes=500, edges=2000, labelled=1.0)


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def evaluate(client, work, name="xnq", draws=2, quantifiers=("sld", "cc")):
    return run.evaluate_method(client, work, METHODS[name], draws, quantifiers)


def figures(result):
    return {
        (f.draw, f.split, f.quantifier, f.calibration): f.errors
        for f in result.validation
    }


def test_validation_chooses_and_test_follows(client, graph, tmp_path):
    work = begin(tmp_path / "run", graph)
    result = evaluate(client, work)
    assert len(result.configurations) == 2
    assert len(result.validation) == 2 * 2 * 2 * 2
    found = figures(result)
    for figure in result.test:
        choice = figure.choice
        group = {
            key: values["ae"]
            for key, values in found.items()
            if key[1:3] == (choice.split, choice.quantifier)
        }
        chosen = (choice.draw, choice.split, choice.quantifier, choice.calibration)
        assert group[chosen] == min(group.values())
        assert choice.compared == len(group) == 4
        assert figure.estimate.shape == (63, 2)
        np.testing.assert_allclose(
            figure.errors["ae"], np.abs(figure.estimate - figure.true).mean()
        )
    rows = result_rows(work.task(), result).to_pylist()
    test = [row for row in rows if row["split"] == "test"]
    assert len(test) == 2 * 2 * 2
    assert all(row["selected"] for row in test)
    validation = [row for row in rows if row["split"] == "validation"]
    assert len(validation) == 16 * 2
    assert sum(row["selected"] for row in validation) == len(test)
    # Only scores are kept; embeddings of draws are deleted.
    left = [name for name in RunDirectory(work.run).folder.names() if "draw" in name]
    assert left == []


def test_scores_of_a_gpu_are_kept_apart_from_a_cpus(graph, tmp_path):
    work = begin(tmp_path / "run", graph)
    method = METHODS["xnq"]
    (configuration,) = method.configurations(work.settings, 1)

    def key(*overrides):
        return run._unit_key(work, method, configuration, 0, small_settings(*overrides))

    assert key() == key("partitions=3")
    assert key() != key("backend=gpu")


def test_scores_are_better_than_the_prior(client, graph, tmp_path):
    result = evaluate(client, begin(tmp_path / "run", graph), quantifiers=("sld",))
    mean = np.mean([figure.errors["ae"] for figure in result.test])
    # Always estimating one half has an error of .262 on this grid.
    assert mean < 0.15


def test_same_figures_for_any_number_of_partitions(client, graph, tmp_path):
    found = [
        figures(evaluate(client, begin(tmp_path / f"{count}", graph, count)))
        for count in (1, 3)
    ]
    assert found[0] == found[1]


def test_nothing_is_scored_twice(client, graph, tmp_path, monkeypatch):
    work = begin(tmp_path / "run", graph)
    first = evaluate(client, work, draws=1)

    def must_not(*_, **__):
        raise AssertionError("scored again")

    with monkeypatch.context() as patched:
        patched.setattr(run, "fit_split", must_not)
        patched.setattr(run, "run_reservoir", must_not)
        again = evaluate(client, work, draws=1)
        # Another quantifier and a further share of labels need no new fit of these.
        wider = evaluate(client, work, draws=1, quantifiers=("sld", "cc", "pacc"))
    assert figures(first) == figures(again)
    assert figures(first).items() <= figures(wider).items()
    longer = evaluate(client, work, draws=2)
    assert figures(first).items() <= figures(longer).items()


def test_interrupted_evaluation_resumes(client, graph, tmp_path, monkeypatch):
    whole = evaluate(client, begin(tmp_path / "whole", graph))
    work = begin(tmp_path / "broken", graph)
    real, calls = fit.fit_split, []

    def breaks(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise StageError("stopped here")
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(run, "fit_split", breaks)
        with pytest.raises(StageError, match="stopped here"):
            evaluate(client, work)
    kept = [n for n in work.units().folder.names() if n.endswith(".npy")]
    assert 1 <= len(kept) < 4
    assert figures(evaluate(client, work)) == figures(whole)


def test_features_alone_are_a_method(client, graph, tmp_path):
    work = begin(tmp_path / "run", graph)
    result = evaluate(client, work, "lr", quantifiers=("sld",))
    assert [c["C"] for c in result.configurations] == pytest.approx(
        np.logspace(-2, 3, 10)
    )
    assert np.mean([f.errors["ae"] for f in result.test]) < 0.25


@pytest.mark.parametrize(
    ("name", "draws", "quantifiers"),
    [
        ("wvrn", 5, ("sld", "acc")),
        ("wvrn-hard", 5, ("sld", "acc")),
        ("enq", 2, ("cc", "acc")),
        ("cdq", 4, ("cc",)),
    ],
)
def test_network_baselines_are_methods(
    client, graph, tmp_path, name, draws, quantifiers
):
    work = begin(tmp_path / "run", graph)
    result = evaluate(client, work, name, quantifiers=(*quantifiers, "pacc"))
    assert len(result.configurations) == draws
    wanted = {*quantifiers} | ({"pacc"} if "wvrn" in name else set())
    assert {f.choice.quantifier for f in result.test} == wanted
    # Twice as many edges within a class as between: neighbours' votes are informative.
    if name != "cdq":
        best = min(np.mean([f.errors["ae"]]) for f in result.test)
        assert best < 0.25
    left = [n for n in RunDirectory(work.run).folder.names() if "draw" in n]
    assert left == []


def test_hard_votes_are_kept_apart_from_soft_ones(client, graph, tmp_path):
    work = begin(tmp_path / "run", graph)
    soft, hard = (
        figures(evaluate(client, work, name, quantifiers=("sld",)))
        for name in ("wvrn", "wvrn-hard")
    )
    assert soft.keys() == hard.keys()
    assert soft != hard


def test_the_whole_graph_is_answered_for_once_a_fold(client, graph, tmp_path):
    work = begin(tmp_path / "run", graph)
    # Not a quantifier of posteriors: the requested quantifiers do not affect it.
    result = evaluate(client, work, "lbq", quantifiers=("sld",))
    task = work.task()
    assert not result.validation
    assert [f.choice.quantifier for f in result.test] == ["lbq", "lbq"]
    for figure in result.test:
        rest = task.rows(figure.choice.split, "calibration", "validation", "test")
        true = np.bincount(task.labels[rest], minlength=2) / len(rest)
        np.testing.assert_allclose(figure.true, true[None])
        np.testing.assert_allclose(figure.estimate.sum(), 1.0)
        found = np.abs(figure.estimate - true).mean()
        assert figure.errors["ae"] == pytest.approx(found)
        assert found < 0.25
    rows = result_rows(task, result).to_pylist()
    assert {row["split"] for row in rows} == {"test"}


PLUS = ("readout.folds=3", "reservoir.recurrent_scale=select")


def test_xnq_plus_is_a_method(client, graph, tmp_path, monkeypatch):
    settings = small_settings(*PLUS)
    work = begin(tmp_path / "run", graph, settings=settings)
    result = evaluate(client, work, "xnq+", quantifiers=("sld", "pcc"))
    (configuration,) = result.configurations
    assert configuration["recurrent_scale"] == [1.0, 3.0, 8.0, 20.0]
    # One embedding and one calibration, without a search.
    assert {f.choice.compared for f in result.test} == {1}
    by_sld = [f.errors["ae"] for f in result.test if f.choice.quantifier == "sld"]
    assert np.mean(by_sld) < 0.15
    task = work.task()
    for unit in work.units().folder.names():
        if unit.endswith(".npy"):
            scores = work.units().read(unit.removesuffix(".npy"))
            pooled = [task.rows(split, "train", "calibration") for split in (0, 1)]
            assert any(np.array_equal(scores.held, rows) for rows in pooled)
    names = RunDirectory(work.run).folder.names()
    assert not [n for n in names if n.startswith(("draw", "embeddings"))]
    with monkeypatch.context() as patched:
        patched.setattr("xnq_dist.readout.plus.learning.plus_scores", None)
        again = evaluate(client, work, "xnq+", quantifiers=("sld", "pcc", "cc"))
    assert figures(result).items() < figures(again).items()


@needs_gnn
def test_trained_networks_are_methods(client, graph, tmp_path, monkeypatch):
    quick = GnnSettings(max_epochs=20, device="cpu")
    monkeypatch.setattr("xnq_dist.evaluation.methods.gnn.GnnSettings", lambda: quick)
    few = dataclasses.replace(
        METHODS["gcn"], configurations=lambda *_: [{"layers": 2, "width": 16}]
    )
    work = begin(tmp_path / "run", graph)
    result = run.evaluate_method(client, work, few, 1, ("sld",))
    assert len(result.test) == 2
    assert np.mean([f.errors["ae"] for f in result.test]) < 0.25
    assert len(METHODS["gin"].configurations(SETTINGS, 1)) == 6


def test_methods_that_vote_need_a_quantifier_of_votes(client, graph, tmp_path):
    work = begin(tmp_path / "run", graph)
    with pytest.raises(StageError, match="'enq' gives votes only"):
        evaluate(client, work, "enq", quantifiers=("sld",))


def test_fewer_labels_are_other_units(client, graph, tmp_path):
    work = begin(tmp_path / "run", graph, label_shares=(1.0, 0.2))
    result = evaluate(client, work, draws=1, quantifiers=("sld",))
    shares = [work.task().splits[f.choice.split].label_share for f in result.test]
    assert sorted(shares) == [0.2, 0.2, 1.0, 1.0]
    rows = result_rows(work.task(), result).to_pylist()
    assert {row["label_share"] for row in rows} == {0.2, 1.0}


def test_tables_are_published_together_and_removed_together(client, graph, tmp_path):
    out = RunDirectory(tmp_path).folder
    for name in ("one", "two"):
        work = begin(tmp_path / name, graph)
        result = evaluate(client, work, draws=1, quantifiers=("sld",))
        task = dataclasses.replace(work.task(), dataset=name)
        keep(out.child(name), PAPER, tidy_tables(task, result), result.method)
    tables = publish(out, PAPER)
    assert set(tables["results"]["dataset"].to_pylist()) == {"one", "two"}
    assert tables["estimates"].num_rows == 2 * 2 * 63 * 2
    assert (tmp_path / "results.parquet").exists()
    unpublish(out, PAPER)
    assert not list(tmp_path.glob("*.parquet"))


def test_undefined_combinations_are_refused(client, tmp_path):
    graph = write_graph(tmp_path, nodes=400, edges=900, classes=3, labelled=1.0)
    work = begin(tmp_path / "run", graph)
    with pytest.raises(InputError, match="'dys' is defined for two classes"):
        evaluate(client, work, quantifiers=("dys",))
    with pytest.raises(SettingsError, match="no method 'xqn': choose from xnq"):
        choose_methods(["xqn"], True)
    with pytest.raises(SettingsError, match="'lr' needs node features"):
        choose_methods(["lr"], False)
    with pytest.raises(InputError, match="'lbq' is defined for 2 classes, and small"):
        evaluate(client, work, "lbq")


def test_networks_without_pytorch_are_refused(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"pip install 'xnq-dist\[gnn\]'"):
        choose_methods(["xnq", "gat"], True)


def test_training_rows_beyond_the_memory_are_refused(client, graph, tmp_path):
    settings = SETTINGS.model_copy(
        update={"readout": SETTINGS.readout.model_copy(update={"memory": "10 KiB"})}
    )
    work = begin(tmp_path / "run", graph, settings=settings)
    with pytest.raises(Exception, match=r"more than readout\.memory"):
        evaluate(client, work)
