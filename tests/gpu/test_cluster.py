"""GPU clusters and their memory: error messages, and plans before a run."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from tests.conftest import small_settings
from xnq_dist import pipeline
from xnq_dist.core import backend as backends
from xnq_dist.core import cluster
from xnq_dist.core.clusters import cuda as cuda_kind
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import ClusterError, DoesNotFitError, SettingsError
from xnq_dist.core.need import human
from xnq_dist.plan import GraphSize, Workers, add_up, check_fits

FACTS = backends.GpuFacts(4, "", 80 * 2**30)
SIZE = GraphSize(2_000_000, 20_000_000, 16, 2, 10_000)


def cuda(*overrides):
    return load_settings(overrides=["cluster.kind=cuda", *overrides])


def test_the_settings_for_gpus_are_as_documented():
    settings = load_settings([Path(__file__).parents[2] / "deploy" / "gpu.yaml"])
    assert (settings.backend, settings.cluster.kind) == ("gpu", "cuda")


def test_missing_packages_and_devices_are_named_in_a_sentence(monkeypatch, small_graph):
    monkeypatch.setattr(backends, "missing", lambda *_: ["dask_cuda", "rmm"])
    with (
        pytest.raises(ClusterError, match=r"needs dask_cuda, rmm.*pip install") as told,
        cluster.open_cluster(cuda().cluster),
    ):
        pass
    assert "\n" not in str(told.value)
    monkeypatch.setattr(backends, "missing", lambda *names: [*names])
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SettingsError, match=r"CuPy cannot be imported .*pip install"):
        backends.choose("gpu")
    assert not backends.choose("cpu").on_device
    # A plan for GPUs elsewhere needs their memory, or a GPU here.
    with pytest.raises(ClusterError, match="installed"):
        pipeline.estimate(small_graph.sources, cuda())
    given = "cluster.device_memory=60GiB"
    assert pipeline.estimate(small_graph.sources, cuda(given)).device_limit == 60 << 30
    monkeypatch.setattr(backends, "missing", lambda *_: [])
    without = backends.GpuFacts(0, "CuPy finds no CUDA device")
    monkeypatch.setattr(backends, "gpu_facts", lambda: without)
    with pytest.raises(SettingsError, match="finds no CUDA device"):
        backends.gpu()
    with pytest.raises(ClusterError, match="finds no CUDA device"):
        backends.cuda_cluster()


def test_a_cuda_cluster_gets_the_planned_options(monkeypatch):
    given = {}

    def start(**options):
        given.update(options)
        raise RuntimeError("no GPU is played here")

    module = types.SimpleNamespace(LocalCUDACluster=start)
    monkeypatch.setitem(sys.modules, "dask_cuda", module)
    monkeypatch.setattr(backends, "missing", lambda *_: [])
    for where in (backends, cuda_kind):
        monkeypatch.setattr(where, "gpu_facts", lambda: FACTS)
    settings = cuda("cluster.device_memory=10GiB").cluster
    with (
        pytest.raises(ClusterError, match=r"4 workers cannot be started.*no GPU"),
        cluster.open_cluster(settings),
    ):
        pass
    assert (given["n_workers"], given["threads_per_worker"]) == (4, 1)
    # Generated credentials with any packages.
    assert given["protocol"] == "tls"
    assert given["security"].require_encryption
    assert given["rmm_maximum_pool_size"] == 10 * 2**30
    assert given["device_memory_limit"] is None
    size = cuda_kind.size(cuda("cluster.workers=2", "cluster.threads=3").cluster)
    assert (size.count, size.threads) == (2, 3)
    assert size.device == int(80 * 2**30 * cluster.DEVICE_SHARE)


def test_workers_that_share_a_gpu_plan_with_all_of_it(thread_client, monkeypatch):
    monkeypatch.setattr(cluster, "device_share", lambda: ("0000:01:00.0", 100))
    settings = small_settings().cluster
    assert cluster.device_memory(thread_client, settings) == 45
    given = small_settings("cluster.device_memory=7B").cluster
    assert cluster.device_memory(thread_client, given) == 7


def test_the_plan_of_a_gpu_machine_counts_its_gpus(monkeypatch, small_graph):
    monkeypatch.setattr("xnq_dist.plan.of_tables.gpu_facts", lambda: FACTS)
    limits = {
        asked: pipeline.estimate(small_graph.sources, small_settings(*asked))
        for asked in (
            ("backend=auto",),
            ("backend=cpu",),
            ("backend=auto", "exchange.dtype=float16"),
        )
    }
    each = int(80 * 2**30 * cluster.DEVICE_SHARE) // 2
    assert [plan.device_limit for plan in limits.values()] == [each, 0, 0]


def test_states_beyond_a_gpu_are_refused():
    single = "reservoir.dim=1024", "method=xnq", "reservoir.recurrent_scale=1"
    workers = Workers(1, 1, 2**40, 20 * 2**30)
    plan = add_up(SIZE, cuda(*single), 1, workers)
    resident = 2_000_000 * 1024 * 4 * 3
    assert resident < plan.device_memory < 1.3 * resident
    needed = f"{human(plan.device_memory)} of 20.0 GiB"
    assert dict(plan.lines())["memory of a GPU"].startswith(needed)
    with pytest.raises(
        DoesNotFitError, match=r"use 20\.0 GiB: set a smaller reservoir"
    ):
        check_fits(plan)
    # Independent reservoirs fit one after the other.
    several = add_up(SIZE, cuda("reservoir.dim=1024", "method=xnq+"), 1, workers)
    check_fits(several)
    assert several.turns > 1
    on_cpu = add_up(SIZE, cuda(*single), 1, Workers(1, 1, 2**40))
    assert (on_cpu.device_memory, on_cpu.device_limit) == (0, 0)
    assert "memory of a GPU" not in dict(on_cpu.lines())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("backend=cpu", "needs backend = auto or gpu"),
        ("exchange.dtype=float16", "exchange.dtype = float32"),
    ],
)
def test_settings_that_contradict_a_gpu_are_refused(override, message):
    with pytest.raises(SettingsError, match=message):
        cuda(override)


@pytest.mark.gpu
def test_dask_cuda_starts_the_workers():
    pytest.importorskip("dask_cuda")
    if backends.gpu_facts().reason:
        pytest.skip(backends.gpu_facts().reason)
    with (
        cluster.open_cluster(cuda().cluster) as connection,
        cluster.connect(connection) as client,
    ):
        assert cluster.settle(client, cuda()).backend == "gpu"
        assert cluster.device_memory(client, cuda().cluster) > 0
