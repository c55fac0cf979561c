"""The embedding with states on a device or the stand-in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import rest_in, small_settings, write_graph
from tests.gpu.conftest import DEVICES, play_a_gpu
from tests.reservoir.test_embed import embed, embeddings, twin
from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.store import RunDirectory
from xnq_dist.reservoir import embed as driver

SPARSE = ("reservoir.matrix=sparse", "reservoir.nonzeros=4")
on_devices = pytest.mark.parametrize("device_line", DEVICES, indirect=True)


@on_devices
@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(SPARSE, id="sparse"),
        pytest.param(
            (*SPARSE, "exchange.dtype=float16"),
            marks=pytest.mark.standin,
            id="float16-exchange",
        ),
        pytest.param(
            (*SPARSE, "reservoir.tile=7"), marks=pytest.mark.standin, id="tiles"
        ),
    ],
)
def test_sparse_states_have_the_cpus_bits_for_any_partitions(
    device_line, overrides, tmp_path, small_graph
):
    prepared = _prepared(tmp_path, small_graph, overrides)
    expected = twin(prepared, small_graph, small_settings(*overrides))
    for count in (1, 3):
        cut = ("backend=gpu", f"partitions={count}", "partitioner=random")
        run = embed(tmp_path / f"{count}", small_graph, device_line, *overrides, *cut)
        np.testing.assert_array_equal(embeddings(run), expected, err_msg=str(count))


def _prepared(tmp_path, graph, overrides) -> RunDirectory:
    run = RunDirectory(tmp_path / "prepared")
    run.folder.create()
    pipeline.prepare(run, graph.sources, small_settings(*overrides))
    return run


@on_devices
@pytest.mark.parametrize(
    "precision", rest_in("standin", ("float32", "bfloat16"), "float32")
)
def test_dense_states_are_the_same_for_any_partitions_and_tiles(
    device_line, precision, tmp_path, small_graph
):
    given = ("backend=gpu", f"reservoir.precision={precision}")
    if precision == "float32":
        given = (*given, "reservoir.recurrent_scale=[1.0,4.0]")
    answers = [
        embeddings(embed(tmp_path / name, small_graph, device_line, *given, *more))
        for name, more in {
            "one": ("partitions=1",),
            "four": ("partitions=4", "partitioner=random"),
            "tiles": ("partitions=3", "reservoir.tile=7"),
        }.items()
    ]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])
    assert answers[0].dtype == np.float32


@on_devices
def test_dense_states_at_a_low_scale_agree_with_the_cpus(
    device_line, tmp_path, small_graph
):
    low = ("reservoir.recurrent_scale=0.9", "partitions=2")
    there = embed(tmp_path / "a", small_graph, device_line, *low, "backend=gpu")
    here = embed(tmp_path / "b", small_graph, device_line, *low, "backend=cpu")
    np.testing.assert_allclose(embeddings(there), embeddings(here), atol=1e-4)
    facts = there.stage("embeddings").manifest().facts
    assert (facts["backend"], facts["precision"]) == ("gpu", "float32")
    assert here.stage("embeddings").manifest().facts["backend"] == "cpu"


@on_devices
def test_resuming_from_a_checkpoint_keeps_half_precision_states(
    device_line, tmp_path, small_graph, monkeypatch
):
    given = (
        *("backend=gpu", "reservoir.precision=bfloat16", "partitions=3"),
        "checkpoint.every=2",
    )
    whole = embeddings(embed(tmp_path / "a", small_graph, device_line, *given))
    settings = small_settings(*given)
    run = _prepared(tmp_path, small_graph, given)
    with monkeypatch.context() as patched:
        patched.setattr(driver, "_WriteEmbeddings", lambda *_: _stop)
        with pytest.raises(RuntimeError, match="stopped"):
            pipeline.embed(run, settings, device_line)
    resumed = []
    monkeypatch.setattr(driver.log, "info", lambda text, *_: resumed.append(text))
    pipeline.embed(run, settings, device_line)
    assert any("resuming" in text for text in resumed)
    np.testing.assert_array_equal(embeddings(run), whole)


def _stop(number, states):
    raise RuntimeError("stopped")


@on_devices
def test_auto_uses_a_device(device_line, tmp_path, small_graph):
    settings = small_settings("partitions=2", "backend=auto")
    assert cluster.settle(device_line, settings).backend == "gpu"
    auto = ("partitions=2", "backend=auto")
    run = embed(tmp_path / "a", small_graph, device_line, *auto)
    assert run.stage("embeddings").manifest().facts["backend"] == "gpu"


def test_a_missing_gpu_is_named_at_once(thread_client, tmp_path, monkeypatch):
    why = "CuPy finds no CUDA device: check nvidia-smi"
    without = cluster.gpu_facts().__class__({}, 0, why)
    monkeypatch.setattr(cluster, "gpu_facts", lambda: without)
    auto = small_settings("backend=auto")
    with pytest.raises(SettingsError, match=r"2 of 2 workers have no GPU.*no CUDA"):
        cluster.settle(thread_client, small_settings("backend=gpu"))
    assert cluster.settle(thread_client, auto).backend == "cpu"
    with pytest.raises(SettingsError, match=r"precision = tf32 needs a GPU"):
        cluster.settle(
            thread_client,
            small_settings("backend=auto", "reservoir.precision=tf32"),
        )


def test_auto_uses_the_cpu_where_some_workers_lack_a_gpu(
    thread_client, monkeypatch, caplog
):
    first = min(cluster.workers(thread_client))

    def why(dask_worker):
        return "" if dask_worker.address == first else "CuPy is not installed"

    monkeypatch.setattr(cluster, "_why_no_gpu", why)
    assert cluster.settle_backend(thread_client, "auto") == "cpu"
    assert "1 of 2 workers have no GPU" in caplog.text


def test_weighted_edges_agree_on_a_device(tmp_path, thread_client, monkeypatch):
    graph = write_graph(tmp_path / "input", weighted=True)
    here = embed(tmp_path / "a", graph, thread_client, *SPARSE, "backend=cpu")
    play_a_gpu(monkeypatch)
    there = embed(tmp_path / "b", graph, thread_client, *SPARSE, "backend=gpu")
    np.testing.assert_array_equal(embeddings(there), embeddings(here))
