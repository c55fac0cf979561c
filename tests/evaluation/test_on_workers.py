"""An evaluation on workers: selection, resuming, independence of the partitioning."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from distributed import Client

from tests.conftest import small_settings, write_graph
from tests.evaluation.methods.test_gnn import needs_gnn
from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation import on_workers as run
from xnq_dist.evaluation import search
from xnq_dist.evaluation.keep import keep, publish
from xnq_dist.evaluation.methods import embedded, gnn
from xnq_dist.evaluation.methods.known_methods import METHODS, choose_methods
from xnq_dist.evaluation.task import EvaluationWork, TaskSource, read_arrays
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
    monkeypatch.setattr(search, "DIMS", (16, 24))
    monkeypatch.setattr(run, "KINDS", ("bcts", "none"))
    monkeypatch.setattr(run, "SAMPLE_SIZE", 40)
    monkeypatch.setattr(run, "REPEATS", 3)


def begin(folder, graph, partitions=2, settings=SETTINGS, **source) -> EvaluationWork:
    directory = RunDirectory(folder)
    prepare(directory, graph.sources, settings, partitions)
    source = TaskSource("small", folds=(0, 1), **source)
    return EvaluationWork(directory.location, source, settings)


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


def rows(tables, split="test", metric="ae"):
    """Errors by fold, quantifier, draw and calibration."""
    names = ("fold", "quantifier", "draw", "calibration")
    return {
        tuple(row[name] for name in names): row["value"]
        for row in tables["results"].to_pylist()
        if (row["split"], row["metric"]) == (split, metric)
    }


def test_validation_chooses_and_test_follows(client, work):
    tables = evaluate(client, work)
    validation, test = rows(tables, "validation"), rows(tables)
    assert len(validation) == 2 * 2 * 2 * 2
    # Always estimating one half has an error of .262 on this grid.
    assert np.mean([v for (_, name, *_), v in test.items() if name == "sld"]) < 0.15
    assert len(test) == 2 * 2
    for fold, quantifier, *chosen in test:
        errors = {
            k[2:]: v for k, v in validation.items() if k[:2] == (fold, quantifier)
        }
        assert errors[tuple(chosen)] == min(errors.values())
        of_fold = [
            row
            for row in tables["estimates"].to_pylist()
            if (row["fold"], row["quantifier"]) == (fold, quantifier)
        ]
        assert len(of_fold) == 63 * 2
        error = np.mean([abs(row["estimate"] - row["true"]) for row in of_fold])
        np.testing.assert_allclose(test[fold, quantifier, *chosen], error)
    every = tables["results"].to_pylist()
    selected = [row["split"] for row in every if row["selected"]]
    assert (selected.count("test"), selected.count("validation")) == (8, 8)
    names = RunDirectory(work.run).names()
    assert not [n for n in names if n.startswith(("draw", "embeddings"))]


def test_scores_of_a_gpu_are_kept_apart_from_a_cpus(client, work, monkeypatch):
    evaluate(client, work, "wvrn", quantifiers=("sld",))
    kept = len(work.folder("units").names())
    on_gpu = work.settings.model_copy(update={"backend": "gpu"})
    monkeypatch.setattr(run.cluster, "settle", lambda *_: on_gpu)
    evaluate(client, work, "wvrn", quantifiers=("sld",))
    assert len(work.folder("units").names()) == 2 * kept


def test_same_figures_for_any_number_of_partitions(client, graph, tmp_path):
    found = [
        rows(evaluate(client, begin(tmp_path / f"{count}", graph, count), draws=1))
        for count in (1, 3)
    ]
    assert found[0] == found[1]


def test_scores_are_computed_once_and_an_interrupted_search_resumes(
    client, work, monkeypatch
):
    real, calls = embedded.embed_method, []

    def breaks(name, client, work, configuration):
        calls.append(configuration["seed"])
        if len(calls) == 2:
            raise StageError("stopped here")
        return real(name, client, work, configuration)

    monkeypatch.setattr(embedded, "embed_method", breaks)
    with pytest.raises(StageError, match="stopped here"):
        evaluate(client, work, quantifiers=("sld",))
    whole = evaluate(client, work, quantifiers=("sld",))
    # The first configuration is kept, the second is computed again.
    assert calls[1] == calls[2] != calls[0]
    # Another quantifier needs no new fit.
    wider = evaluate(client, work, quantifiers=("sld", "cc", "pacc"))
    assert len(calls) == 3
    assert rows(whole, "validation").items() <= rows(wider, "validation").items()


@pytest.mark.parametrize(
    ("name", "draws", "quantifiers"),
    [
        ("lr", 10, ("sld", "acc", "pacc")),
        ("wvrn", 5, ("sld", "acc", "pacc")),
        ("enq", 2, ("cc", "acc")),
        ("cdq", 4, ("cc", "acc")),
    ],
)
def test_baselines_are_methods(client, work, name, draws, quantifiers):
    tables = evaluate(client, work, name, quantifiers=("sld", "cc", "acc", "pacc"))
    assert len(set(tables["results"]["draw"].to_pylist())) == draws
    used = {quantifier for _, quantifier, *_ in rows(tables)}
    assert {*quantifiers} <= used
    assert ("sld" in used) == ("sld" in quantifiers)
    # Twice as many edges within a class as between: neighbours' votes are informative.
    if name != "cdq":
        assert min(rows(tables).values()) < 0.25


def test_xnq_plus_is_a_method_without_a_search(client, graph, tmp_path, monkeypatch):
    settings = small_settings("readout.folds=3", "reservoir.recurrent_scale=select")
    work = begin(tmp_path / "run", graph, settings=settings)
    tables = evaluate(client, work, "xnq+", quantifiers=("sld", "pcc"))
    by_sld = [v for (_, name, *_), v in rows(tables).items() if name == "sld"]
    assert np.mean(by_sld) < 0.15
    task, units = work.task(), work.folder("units")
    pooled = [task.rows(split, "train", "calibration") for split in (0, 1)]
    for unit in units.names():
        held = read_arrays(units, unit.removesuffix(".npy"))["held"]
        assert any(np.array_equal(held, each) for each in pooled)
    names = RunDirectory(work.run).names()
    assert not [n for n in names if n.startswith(("draw", "embeddings"))]
    monkeypatch.setattr("xnq_dist.evaluation.methods.embedded.plus_scores", None)
    again = evaluate(client, work, "xnq+", quantifiers=("sld", "pcc", "cc"))
    assert rows(tables).items() < rows(again).items()


@needs_gnn
def test_trained_networks_are_methods(client, work, monkeypatch):
    monkeypatch.setattr(gnn, "MAX_EPOCHS", 20)
    few = dataclasses.replace(
        METHODS["gcn"], configurations=lambda *_: [{"layers": 2, "width": 16}]
    )
    errors = rows(run.evaluate_method(client, work, few, 1, ("sld",)))
    assert len(errors) == 2
    assert np.mean([*errors.values()]) < 0.25
    assert len(METHODS["gin"].configurations(SETTINGS, 1)) == 6


def test_tables_are_published_together(client, work, tmp_path):
    out = RunDirectory(tmp_path)
    tables = evaluate(client, work, "lr", quantifiers=("sld",))
    for name in ("one", "two"):
        keep(out.child(name), tables, "lr")
    published = publish(out, ["results", "estimates"])
    assert published["estimates"].num_rows == 2 * 2 * 63 * 2
    assert (tmp_path / "results.parquet").exists()


def test_quantifiers_that_need_scores_are_refused_for_votes(client, work):
    with pytest.raises(StageError, match="'enq' gives votes only"):
        evaluate(client, work, "enq", quantifiers=("sld",))


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
