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
from xnq_dist.evaluation.keep import PAPER, keep, publish, unpublish
from xnq_dist.evaluation.methods import embedded, gnn, known_methods
from xnq_dist.evaluation.methods.known_methods import METHODS, choose_methods
from xnq_dist.evaluation.results import result_rows, tidy_tables
from xnq_dist.evaluation.task import TaskSource
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.prepare import prepare

SETTINGS = small_settings(
    "reservoir.supersteps=4",
    "reservoir.recurrent_scale=select",
    "reservoir.input_scale=select",
    "readout.C=select",
)


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
    source = TaskSource("small", folds=(0, 1), **source)
    return EvaluationWork(directory.folder.location, source, settings)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    return write_graph(folder, nodes=500, edges=2000, labelled=1.0)


@pytest.fixture
def work(tmp_path, graph):
    return begin(tmp_path / "run", graph)


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


def test_validation_chooses_and_test_follows(client, work):
    result = evaluate(client, work)
    assert len(result.configurations) == 2
    assert len(result.validation) == 2 * 2 * 2 * 2
    # Always estimating one half has an error of .262 on this grid.
    assert (
        np.mean([f.errors["ae"] for f in result.test if f.quantifier == "sld"]) < 0.15
    )
    for figure in result.test:
        group = {
            (f.draw, f.calibration): f.errors["ae"]
            for f in result.validation
            if (f.split, f.quantifier) == (figure.split, figure.quantifier)
        }
        assert group[figure.draw, figure.calibration] == min(group.values())
        assert figure.estimate.shape == (63, 2)
        error = np.abs(figure.estimate - figure.true).mean()
        np.testing.assert_allclose(figure.errors["ae"], error)
    rows = result_rows(work.task(), result).to_pylist()
    test = [row for row in rows if row["split"] == "test"]
    validation = [row for row in rows if row["split"] == "validation"]
    assert (len(test), len(validation)) == (2 * 2 * 2, 16 * 2)
    assert all(row["selected"] for row in test)
    assert sum(row["selected"] for row in validation) == len(test)
    names = RunDirectory(work.run).folder.names()
    assert not [n for n in names if n.startswith(("draw", "embeddings"))]


def test_scores_of_a_gpu_are_kept_apart_from_a_cpus(work):
    method = METHODS["xnq"]
    (configuration,) = method.configurations(work.settings, 1)

    def key(*overrides):
        return run._unit_key(work, method, configuration, 0, small_settings(*overrides))

    assert key() == key("partitions=3")
    assert key() != key("backend=gpu")


def test_same_figures_for_any_number_of_partitions(client, graph, tmp_path):
    found = [
        figures(evaluate(client, begin(tmp_path / f"{count}", graph, count), draws=1))
        for count in (1, 3)
    ]
    assert found[0] == found[1]


def test_scores_are_computed_once_and_an_interrupted_search_resumes(
    client, work, monkeypatch
):
    real, calls = embedded.embed_draw, []

    def breaks(client, work, configuration):
        calls.append(configuration["seed"])
        if len(calls) == 2:
            raise StageError("stopped here")
        return real(client, work, configuration)

    def method():
        score = known_methods.partial(embedded.row_scores, breaks)
        return dataclasses.replace(METHODS["xnq"], score=score)

    with pytest.raises(StageError, match="stopped here"):
        run.evaluate_method(client, work, method(), 2, ("sld",))
    whole = run.evaluate_method(client, work, method(), 2, ("sld",))
    # The first configuration is kept, the second is computed again.
    assert calls[1] == calls[2] != calls[0]
    # Another quantifier needs no new fit.
    wider = run.evaluate_method(client, work, method(), 2, ("sld", "cc", "pacc"))
    assert len(calls) == 3
    assert figures(whole).items() <= figures(wider).items()


@pytest.mark.parametrize(
    ("name", "draws", "quantifiers"),
    [
        ("lr", 10, ("sld", "acc", "pacc")),
        ("wvrn", 5, ("sld", "acc", "pacc")),
        ("wvrn-hard", 5, ("sld", "acc", "pacc")),
        ("enq", 2, ("cc", "acc")),
        ("cdq", 4, ("cc", "acc")),
    ],
)
def test_baselines_are_methods(client, work, name, draws, quantifiers):
    result = evaluate(client, work, name, quantifiers=("sld", "cc", "acc", "pacc"))
    assert len(result.configurations) == draws
    assert {*quantifiers} <= {f.quantifier for f in result.test}
    assert ("sld" in {f.quantifier for f in result.test}) == ("sld" in quantifiers)
    # Twice as many edges within a class as between: neighbours' votes are informative.
    if name != "cdq":
        assert min(f.errors["ae"] for f in result.test) < 0.25


def test_lbq_estimates_the_complete_graph_once_a_fold(client, work):
    # Not a quantifier of posteriors: the requested quantifiers do not affect it.
    result = evaluate(client, work, "lbq", quantifiers=("sld",))
    task = work.task()
    assert not result.validation
    assert [f.quantifier for f in result.test] == ["lbq", "lbq"]
    for figure in result.test:
        rest = task.rows(figure.split, "calibration", "validation", "test")
        true = np.bincount(task.labels[rest], minlength=2) / len(rest)
        np.testing.assert_allclose(figure.true, true[None])
        found = np.abs(figure.estimate - true).mean()
        assert figure.errors["ae"] == pytest.approx(found)
        assert found < 0.25
    rows = result_rows(task, result).to_pylist()
    assert {row["split"] for row in rows} == {"test"}


def test_xnq_plus_is_a_method_without_a_search(client, graph, tmp_path, monkeypatch):
    settings = small_settings("readout.folds=3", "reservoir.recurrent_scale=select")
    work = begin(tmp_path / "run", graph, settings=settings)
    result = evaluate(client, work, "xnq+", quantifiers=("sld", "pcc"))
    (configuration,) = result.configurations
    assert configuration["recurrent_scale"] == [1.0, 3.0, 8.0, 20.0]
    by_sld = [f.errors["ae"] for f in result.test if f.quantifier == "sld"]
    assert np.mean(by_sld) < 0.15
    task = work.task()
    pooled = [task.rows(split, "train", "calibration") for split in (0, 1)]
    for unit in work.units().names():
        scores = work.read_scores(unit.removesuffix(".npy"))
        assert any(np.array_equal(scores.held, rows) for rows in pooled)
    names = RunDirectory(work.run).folder.names()
    assert not [n for n in names if n.startswith(("draw", "embeddings"))]
    monkeypatch.setattr("xnq_dist.readout.plus.learning.plus_scores", None)
    again = evaluate(client, work, "xnq+", quantifiers=("sld", "pcc", "cc"))
    assert figures(result).items() < figures(again).items()


@needs_gnn
def test_trained_networks_are_methods(client, work, monkeypatch):
    monkeypatch.setattr(gnn, "MAX_EPOCHS", 20)
    few = dataclasses.replace(
        METHODS["gcn"], configurations=lambda *_: [{"layers": 2, "width": 16}]
    )
    result = run.evaluate_method(client, work, few, 1, ("sld",))
    assert len(result.test) == 2
    assert np.mean([f.errors["ae"] for f in result.test]) < 0.25
    assert len(METHODS["gin"].configurations(SETTINGS, 1)) == 6


def test_tables_are_published_together_and_removed_together(client, work, tmp_path):
    out = RunDirectory(tmp_path).folder
    result = evaluate(client, work, "lr", quantifiers=("sld",))
    for name in ("one", "two"):
        task = dataclasses.replace(work.task(), dataset=name)
        keep(out.child(name), PAPER, tidy_tables(task, result), result.method)
    tables = publish(out, PAPER)
    assert set(tables["results"]["dataset"].to_pylist()) == {"one", "two"}
    assert tables["estimates"].num_rows == 2 * 2 * 63 * 2
    assert (tmp_path / "results.parquet").exists()
    unpublish(out, PAPER)
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize(
    ("name", "quantifiers", "error", "words"),
    [
        ("xnq", ("dys",), InputError, "'dys' is defined for two classes"),
        ("lbq", ("sld",), InputError, "'lbq' is defined for 2 classes, and small"),
        ("enq", ("sld",), StageError, "'enq' gives votes only"),
    ],
)
def test_undefined_combinations_are_refused(
    client, tmp_path, name, quantifiers, error, words
):
    graph = write_graph(tmp_path, nodes=400, edges=900, classes=3, labelled=1.0)
    with pytest.raises(error, match=words):
        evaluate(client, begin(tmp_path / "run", graph), name, 2, quantifiers)


@pytest.mark.parametrize(
    ("name", "features", "words"),
    [
        ("xqn", True, "no method 'xqn': choose from xnq"),
        ("lr", False, "'lr' needs node features"),
        ("gat", True, r"pip install 'xnq-dist\[gnn\]'"),
    ],
)
def test_methods_that_cannot_run_are_refused(monkeypatch, name, features, words):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=words):
        choose_methods([name], features)


def test_training_rows_beyond_the_memory_are_refused(client, graph, tmp_path):
    settings = small_settings("readout.memory=10 KiB")
    work = begin(tmp_path / "run", graph, settings=settings)
    with pytest.raises(Exception, match=r"more than readout\.memory"):
        evaluate(client, work, "xnq")
