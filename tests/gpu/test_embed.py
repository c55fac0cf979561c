"""The embedding with states on a device or the stand-in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import small_settings, write_graph
from tests.gpu.conftest import one_worker, play_a_gpu
from tests.gpu.standin import DeviceArray, HeldBytes
from tests.reservoir.test_embed import assert_resumes, embed, embeddings
from tests.reservoir.test_in_turn import prepared, size_here
from tests.reservoir.test_rounds import prepared as partitioned
from tests.reservoir.test_rounds import propagated
from xnq_dist import pipeline
from xnq_dist.core import backend as backends
from xnq_dist.core import cluster
from xnq_dist.core.errors import SettingsError
from xnq_dist.reservoir import device, needs

SPARSE = ("reservoir.matrix=sparse",)


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    """Directed and weighted, 600 nodes."""
    return write_graph(tmp_path_factory.mktemp("gpu") / "input", weighted=True)


def facts_of(run):
    return run.stage("embeddings").manifest().facts


@pytest.mark.parametrize(
    "matrix",
    [
        SPARSE,
        pytest.param(("reservoir.recurrent_scale=[1.0,4.0]",), id="dense"),
        pytest.param(
            (*SPARSE, "reservoir.recurrent_scale=[1,20]", "reservoir.dim=23"),
            marks=pytest.mark.standin,
            id="odd-width",
        ),
    ],
)
def test_states_have_the_same_bits_for_any_partitions_and_workers(
    device_client, matrix, tmp_path, weighted
):
    def on_gpus(client, count, partitioner="contiguous"):
        name = tmp_path / f"{count}-{client.id}"
        cut = (f"partitions={count}", f"partitioner={partitioner}", "backend=gpu")
        run = embed(name, weighted, client, *matrix, *cut)
        assert facts_of(run)["backend"] == "gpu"
        return embeddings(run)

    expected = on_gpus(device_client, 1)
    for count, partitioner in ((2, "metis"), (5, "contiguous")):
        found = on_gpus(device_client, count, partitioner)
        np.testing.assert_array_equal(found, expected, err_msg=f"{count} on 2 workers")
    with one_worker(device_client) as single:
        np.testing.assert_array_equal(on_gpus(single, 3), expected)
    if "reservoir.matrix=sparse" in matrix:
        cpu = embed(tmp_path / "cpu", weighted, device_client, *matrix, "backend=cpu")
        np.testing.assert_array_equal(embeddings(cpu), expected)


def test_resumes_from_a_checkpoint_with_the_same_bits(
    device_client, tmp_path, small_graph
):
    given = ("backend=gpu", "partitions=3", "checkpoint.every=2")
    assert_resumes(tmp_path, small_graph, device_client, 4, *given)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_sums_over_neighbours_have_the_cpus_bits(
    device_client, weighted, tmp_path, monkeypatch
):
    graph = write_graph(tmp_path / "input", 200, 900, weighted=True)
    run, manifest = partitioned(tmp_path / "run", graph, 3)
    given = run, manifest, device_client, [1, 3]
    here = propagated(*given, weighted=weighted)
    sums = []
    real = device.gather

    def counted(*args):
        sums.append(args)
        real(*args)

    monkeypatch.setattr(device, "gather", counted)
    monkeypatch.setattr(device, "COLUMNS", 1)  # fewer than there are
    there = propagated(*given, weighted=weighted, backend="gpu")
    for turn in (1, 3):
        np.testing.assert_array_equal(there[turn], here[turn])
    # Visible only if workers are threads of this process.
    played = device_client.scheduler.address.startswith("inproc")
    assert len(sums) == (3 * 3 * 2 if played else 0)


@pytest.mark.parametrize("more", [SPARSE, ()], ids=["sparse", "dense"])
def test_reservoirs_run_in_turn_on_a_small_gpu_with_the_same_bits(
    device_client, more, tmp_path, weighted, monkeypatch
):
    for module in (device, needs):  # sums over neighbours need less than states
        monkeypatch.setattr(module, "COLUMNS", 4)
    more = (*more, "backend=gpu", "method=xnq+")
    run, settings = prepared(tmp_path / "together", weighted, *more)
    pipeline.embed(run, settings, device_client)
    assert facts_of(run)["units_at_once"] == 23
    expected = embeddings(run)
    size = size_here(run, settings, device_client)
    together = needs._supersteps(size, settings, 23, 1).device
    alone = needs._supersteps(size, settings, 8, 3).device
    little = f"cluster.device_memory={(alone + together) // 2}B"
    run, settings = prepared(tmp_path / "turn", weighted, *more, little)
    said = []
    pipeline.embed(run, settings, device_client, lambda *it: said.append(it[0]))
    assert facts_of(run)["units_at_once"] == 8
    assert "supersteps, reservoir 3 of 3" in said
    np.testing.assert_array_equal(embeddings(run), expected)


@pytest.mark.parametrize(
    ("workers", "partitions"),
    [(1, 1), (1, 3), (2, 2), pytest.param(2, 8, marks=pytest.mark.standin)],
)
def test_states_take_no_more_of_a_gpu_than_planned(
    thread_client, monkeypatch, tmp_path, weighted, workers, partitions
):
    """Bytes of the stand-in's arrays; most rows are sent, which is the worst case."""
    play_a_gpu(monkeypatch)
    cut = ("partitioner=contiguous", f"partitions={partitions}", "backend=gpu")
    with one_worker(thread_client) as single:
        client = single if workers == 1 else thread_client
        held = HeldBytes()
        monkeypatch.setattr(DeviceArray, "watch", held)
        run = embed(tmp_path / "run", weighted, client, *cut)
        size = size_here(run, small_settings(*cut), client)
    planned = needs.supersteps_of(size, small_settings(*cut)).device
    assert 0.8 * planned < held.peak <= planned


def test_auto_uses_a_gpu_that_every_worker_has(device_client, tmp_path, small_graph):
    run = embed(tmp_path / "a", small_graph, device_client, "backend=auto")
    assert facts_of(run)["backend"] == "gpu"
    half = ("backend=auto", "exchange.dtype=float16")
    run = embed(tmp_path / "b", small_graph, device_client, *half)
    assert facts_of(run)["backend"] == "cpu"


def test_auto_uses_cpus_where_some_workers_lack_a_gpu(
    thread_client, monkeypatch, caplog
):
    first = min(cluster.workers(thread_client))

    def facts(dask_worker):
        why = "" if dask_worker.address == first else "CuPy is not installed"
        return backends.GpuFacts(1, why)

    monkeypatch.setattr(cluster, "gpu_facts", facts)
    auto = small_settings("backend=auto")
    assert cluster.settle(thread_client, auto).backend == "cpu"
    assert "1 of 2 workers have no GPU" in caplog.text


def test_a_missing_gpu_is_named_at_once(thread_client, monkeypatch):
    why = "CuPy finds no CUDA device: check nvidia-smi"
    monkeypatch.setattr(cluster, "gpu_facts", lambda: backends.GpuFacts(0, why))
    with pytest.raises(SettingsError, match=r"2 of 2 workers have no GPU.*no CUDA"):
        cluster.settle(thread_client, small_settings("backend=gpu"))
    auto = small_settings("backend=auto")
    assert cluster.settle(thread_client, auto).backend == "cpu"
