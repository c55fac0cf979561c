"""GPU clusters and their memory: error messages, and plans before a run."""

from __future__ import annotations

import dataclasses
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings
from tests.graph.graphs import node_table
from xnq_dist import pipeline
from xnq_dist.core import backend as backends
from xnq_dist.core import cluster
from xnq_dist.core.clusters import cuda as cuda_kind
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import ClusterError, DoesNotFitError, SettingsError
from xnq_dist.core.sizes import human
from xnq_dist.graph import gpu_ingest
from xnq_dist.graph.head import id_text
from xnq_dist.graph.ids import NodeIds
from xnq_dist.plan import (
    GraphSize,
    Workers,
    add_up,
    check_client_fits,
    check_fits,
)

FACTS = backends.GpuFacts({}, 4, "", 80 * 2**30)
SIZE = GraphSize(2_000_000, 20_000_000, 16, 2, 10_000)


def cuda(*overrides):
    return load_settings(overrides=["cluster.kind=cuda", *overrides])


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(backends, "_installed", lambda name: name == "cupy")
    with (
        pytest.raises(ClusterError, match=r"needs dask_cuda, rmm.*pip install") as told,
        cluster.open_cluster(cuda().cluster),
    ):
        pass
    assert "\n" not in str(told.value)


def test_missing_cupy_or_device_is_named(monkeypatch):
    monkeypatch.setattr(backends, "_installed", lambda name: False)
    with pytest.raises(SettingsError, match=r"CuPy is not installed: pip install"):
        backends.choose("gpu")
    assert backends.choose("auto").name == "cpu"
    for needed in (backends.data_frames, backends.cugraph):
        with pytest.raises(SettingsError, match="is not installed: pip install"):
            needed()
    monkeypatch.setattr(backends, "_installed", lambda name: True)
    without = backends.GpuFacts({}, 0, "CuPy finds no CUDA device")
    monkeypatch.setattr(backends, "gpu_facts", lambda: without)
    for needed in (backends.data_frames, backends.cugraph, backends.gpu):
        with pytest.raises(SettingsError, match="finds no CUDA device"):
            needed()
    with pytest.raises(ClusterError, match="finds no CUDA device"):
        backends.cuda_cluster()


@pytest.mark.parametrize("protocol", ["auto", "tcp", "ucx"])
def test_a_cuda_cluster_gets_the_planned_options(monkeypatch, caplog, protocol):
    given = {}

    class Stand:
        """Records a cluster's options without starting one."""

        def __init__(self, **options):
            given.update(options)
            raise RuntimeError("no GPU is played here")

    module = types.SimpleNamespace(LocalCUDACluster=Stand)
    monkeypatch.setitem(sys.modules, "dask_cuda", module)
    monkeypatch.setattr(backends, "_installed", lambda name: True)
    for where in (backends, cuda_kind):
        monkeypatch.setattr(where, "gpu_facts", lambda: FACTS)
    chosen = f"cluster.protocol={protocol}"
    settings = cuda("cluster.device_memory=10GiB", chosen).cluster
    with (
        pytest.raises(ClusterError, match=r"4 workers cannot be started.*no GPU"),
        cluster.open_cluster(settings),
    ):
        pass
    assert given["n_workers"] == 4
    assert given["threads_per_worker"] == 1
    # Generated credentials with any packages; UCX only on request.
    if protocol == "ucx":
        assert (given["protocol"], given["security"]) == ("ucx", None)
        assert "UCX has no encryption" in caplog.text
    else:
        assert given["protocol"] == "tls"
        assert given["security"].require_encryption
        assert "UCX" not in caplog.text
    assert given["rmm_maximum_pool_size"] == 10 * 2**30
    assert given["device_memory_limit"] is None
    size = cuda_kind.size(cuda("cluster.workers=2", "cluster.threads=3").cluster)
    assert (size.workers, size.threads) == (2, 3)
    assert size.device == int(80 * 2**30 * cluster.DEVICE_SHARE)


def test_a_plan_for_gpus_elsewhere_needs_one_here(small_graph, monkeypatch):
    monkeypatch.setattr(backends, "_installed", lambda name: False)
    with pytest.raises(ClusterError, match="needs cupy, dask_cuda, rmm"):
        pipeline.estimate(small_graph.sources, cuda())
    there = cuda("cluster.device_memory=60GiB")
    assert pipeline.estimate(small_graph.sources, there).device_limit == 60 * 2**30


def test_workers_that_share_a_gpu_plan_with_all_of_it(thread_client, monkeypatch):
    monkeypatch.setattr(cluster, "device_share", lambda: ("0000:01:00.0", 100))
    settings = small_settings().cluster
    assert cluster.device_memory(thread_client, settings) == 45
    given = small_settings("cluster.device_memory=7B").cluster
    assert cluster.device_memory(thread_client, given) == 7


def test_states_beyond_a_gpu_are_refused():
    settings = cuda("reservoir.dim=1024")
    workers = Workers(1, 1, 2**40, 20 * 2**30)
    plan = add_up(SIZE, settings, 1, workers)
    resident = 2_000_000 * 1024 * 4 * 3
    assert resident < plan.device_memory < 1.3 * resident
    assert ("memory of a GPU", "25.4 GiB of 20.0 GiB") in plan.lines()
    with pytest.raises(DoesNotFitError, match=r"reservoir\.tile=512, .*float16"):
        check_fits(plan)
    for change in ("reservoir.tile=512", "reservoir.precision=bfloat16"):
        check_fits(add_up(SIZE, cuda("reservoir.dim=1024", change), 1, workers))
    on_cpu = add_up(SIZE, settings, 1, Workers(1, 1, 2**40))
    assert (on_cpu.device_memory, on_cpu.device_limit) == (0, 0)
    assert "memory of a GPU" not in dict(on_cpu.lines())


def test_a_batch_of_communities_is_planned_for():
    workers = Workers(1, 1, 2**40, 20 * 2**30)
    # Little else: states of one column at a time.
    given = "reservoir.dim=8", "reservoir.tile=1", "method=xnq", "readout.memory=1MiB"
    many = dataclasses.replace(SIZE, classes=50)
    sld = cuda(*given, "quantifier=sld")
    # Every thread has one, as far as there are members.
    for threads, members in ((3, 3 * 2**22), (9, 8 * many.nodes)):
        crew = dataclasses.replace(workers, threads=threads)
        batches = 32 * members + many.nodes * (4 * 50 + 1)
        assert add_up(many, sld, 1, crew).device_memory == batches


def test_folds_fitted_at_a_time_are_planned_for():
    given = "reservoir.dim=512", "reservoir.tile=1", "method=xnq", "readout.folds=4"
    known = dataclasses.replace(SIZE, labelled=1_000_000)

    def need(threads, *more):
        workers = Workers(1, threads, 2**40, 2**40)
        return add_up(known, cuda(*given, *more), 1, workers).device_memory

    rows, block = 4 * 1_000_000 * 512, 8 * 512 * (16_384 + 2 * 512)
    assert need(1, "readout.memory=64GiB") == rows + block
    assert need(16, "readout.memory=64GiB") == 4 * (rows + block)
    # At most as many rows at a time as fit the readout's memory in float64.
    assert need(16, "readout.memory=4GiB") == 2**31 + 4 * block


@pytest.fixture
def cudf_here(monkeypatch):
    """A machine with cuDF and a GPU, as far as plans need to know."""
    facts = backends.GpuFacts({"cudf": True}, 1, "", 80 * 2**30)
    monkeypatch.setattr(gpu_ingest, "gpu_facts", lambda: facts)


GRAPH_LINE = "memory of a GPU, stage graph"


def test_reading_edges_on_a_gpu_is_in_the_plan(small_graph, cudf_here):
    count = pq.read_metadata(small_graph.sources.edges).num_rows
    need = 600 * 8 + count * (96 + 3 * (2 * 8 + 8))
    asked = small_settings("input.engine=cudf")
    there = pipeline.estimate(small_graph.sources, asked)
    assert (there.ingest_memory, there.ingest_limit) == (need, int(80 * 2**30 * 0.9))
    assert dict(there.lines())[GRAPH_LINE] == f"{human(need)} of 72.0 GiB"
    assert there.device_limit == 0  # supersteps on the CPU
    little = small_settings("input.engine=cudf", "input.memory=64KiB")
    held = pipeline.estimate(small_graph.sources, little).ingest_memory
    assert held == 600 * 8 + 64 * 2**10
    # The CPU reads, by default and on request.
    for engine in ("auto", "cpu"):
        here = small_settings(f"input.engine={engine}")
        assert GRAPH_LINE not in dict(
            pipeline.estimate(small_graph.sources, here).lines()
        )
    # Beside a cluster of GPUs it is the default; what is read already is not planned.
    beside = add_up(SIZE, cuda(), 1, Workers(1, 1, 2**40, 2**40, 2**34))
    assert beside.ingest_memory == 2_000_000 * 8 + 2**30
    cut = dataclasses.replace(SIZE, halo=[0])
    after = add_up(cut, cuda(), 1, Workers(1, 1, 2**40, 2**40, 2**34))
    assert (after.ingest_memory, after.ingest_limit) == (0, 0)


def test_a_plan_for_cudf_elsewhere_needs_it_here(small_graph, monkeypatch):
    monkeypatch.setattr(backends, "_installed", lambda name: False)
    asked = "input.engine=cudf"
    with pytest.raises(SettingsError, match="cudf is not installed: pip install"):
        pipeline.estimate(small_graph.sources, small_settings(asked))
    there = small_settings(asked, "cluster.device_memory=60GiB")
    assert pipeline.estimate(small_graph.sources, there).ingest_limit == 60 * 2**30
    counts = pipeline.estimate_counts(SIZE, small_settings(asked), "gpu")
    assert counts.ingest_limit == counts.device_limit > 0
    assert pipeline.estimate_counts(SIZE, small_settings(asked)).ingest_limit == 0


def test_edges_that_a_gpu_cannot_read_are_refused_at_once(
    small_graph, cudf_here, tmp_path, monkeypatch
):
    little = "cluster.device_memory=100MiB"
    asked = small_settings("input.engine=cudf", little)
    found = pipeline.estimate(small_graph.sources, asked)
    said = (
        r"edges of 600 nodes on a GPU needs 256\.0 MiB of its memory but may use "
        r"100\.0 MiB: set input\.engine=cpu"
    )
    with pytest.raises(DoesNotFitError, match=said):
        check_fits(found)
    with pytest.raises(DoesNotFitError, match=said):
        check_client_fits(found)
    assert dict(found.lines())[GRAPH_LINE] == "256.0 MiB of 100.0 MiB is not enough"
    out = str(tmp_path / "run")
    with (
        pipeline.open_run(out, small_graph.sources) as run,
        pytest.raises(DoesNotFitError, match=said),
    ):
        pipeline.prepare(run, small_graph.sources, asked)
    # If it was only the default, the CPU reads and the plan reports this.
    beside = pipeline.estimate(small_graph.sources, cuda(little))
    check_client_fits(beside)
    assert beside.ingest_memory == 0
    assert dict(beside.lines())[GRAPH_LINE].endswith(": a CPU reads")


@pytest.mark.parametrize("kind", ["string", "dense", "large"])
def test_ids_take_no_more_of_a_gpu_than_planned(kind, tmp_path):
    found = pa.array(range(0, 1500, 3), pa.int64())
    if kind != "dense":
        words = [f"somebody-{number:05d}" for number in range(500)]
        found = pa.array(words, pa.string() if kind == "string" else pa.large_string())
    table = node_table(500, node_id=found)
    pq.write_table(table, tmp_path / "nodes.parquet")
    text = id_text(str(tmp_path / "nodes.parquet"), small_settings())
    assert (text > 0) == (kind != "dense")
    ids = NodeIds(found)
    planned = gpu_ingest.min_bytes(500, text, 0)
    assert gpu_ingest.lookup_bytes(ids) <= planned < 500 * 200


def test_the_plan_of_a_gpu_machine_counts_its_gpus(monkeypatch, small_graph):
    monkeypatch.setattr("xnq_dist.plan.of_tables.gpu_facts", lambda: FACTS)
    auto = small_settings("backend=auto")
    there = pipeline.estimate(small_graph.sources, auto)
    assert there.device_limit == int(80 * 2**30 * cluster.DEVICE_SHARE) // 2
    here = pipeline.estimate(small_graph.sources, small_settings("backend=cpu"))
    assert here.device_limit == 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("backend=cpu", "cluster.kind=cuda"), "need backend = auto or gpu"),
        (("backend=cpu", "reservoir.precision=tf32"), "need backend = auto or gpu"),
        (
            ("reservoir.precision=bfloat16", "exchange.dtype=float16"),
            "bfloat16 states need",
        ),
        (("cluster.kind=cuda", "cluster.address=tcp://x:1"), "cluster.kind = address"),
        (("cluster.device_memory=much",), "not a size"),
        (("exchange.engine=spmd", "backend=gpu"), "exchange.engine = tasks"),
        (("exchange.engine=spmd", "cluster.kind=cuda"), "exchange.engine = tasks"),
    ],
)
def test_contradicting_settings_are_refused(overrides, message):
    with pytest.raises(SettingsError, match=message):
        load_settings(overrides=overrides)


@pytest.mark.gpu
def test_dask_cuda_starts_the_workers():
    pytest.importorskip("dask_cuda")
    if backends.gpu_facts().reason:
        pytest.skip(backends.gpu_facts().reason)
    with (
        cluster.open_cluster(cuda().cluster) as connection,
        cluster.connect(connection) as client,
    ):
        assert cluster.settle_backend(client, "gpu") == "gpu"
        assert cluster.device_memory(client, cuda().cluster) > 0
