"""The complete pipeline on a device or the stand-in gives the CPU's prevalence."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings, write_graph
from tests.gpu.conftest import DEVICES
from tests.reservoir.test_rounds import prepared, propagated
from tests.test_pipeline import posteriors, whole_line
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.reservoir import worker_sums

on_devices = pytest.mark.parametrize("device_line", DEVICES, indirect=True)


@on_devices
def test_prevalence_agrees_with_the_cpus(device_line, tmp_path, small_graph):
    given = ("quantifier=sld", "reservoir.recurrent_scale=0.9")
    tables = {}
    for backend, count in (("gpu", 2), ("cpu", 1)):
        settings = small_settings(*given, f"backend={backend}", f"partitions={count}")
        out = tmp_path / f"{backend}-{count}"
        run = whole_line(out, small_graph.sources, settings, device_line)
        tables[backend] = pq.read_table(run.folder.path("prevalence.parquet"))
        for stage in ("embeddings", "readout", "quantify"):
            inputs = run.stage(stage).manifest().inputs
            assert ("backend" in inputs) == (backend == "gpu"), stage
        rows = posteriors(run)["posterior"].combine_chunks().flatten().to_numpy()
        tables[backend, "rows"] = rows
    np.testing.assert_allclose(tables["gpu", "rows"], tables["cpu", "rows"], atol=1e-3)
    there, here = (tables[name]["prevalence"].to_numpy() for name in ("gpu", "cpu"))
    np.testing.assert_allclose(there, here, atol=5e-3)


@on_devices
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_neighbours_have_the_cpus_bits(
    device_line, weighted, tmp_path, monkeypatch
):
    graph = write_graph(tmp_path / "input", 200, 900, weighted=True)
    run, manifest = prepared(tmp_path / "run", graph, 3)
    given = run, manifest, device_line, 3, [1, 3]
    here = propagated(*given, weighted=weighted)
    asked = []
    real = worker_sums.gather

    def told(backend, *args):
        asked.append(backend.name)
        real(backend, *args)

    monkeypatch.setattr(worker_sums, "gather", told)
    monkeypatch.setattr(worker_sums, "COLUMNS", 1)  # fewer than there are
    there = propagated(*given, weighted=weighted, backend="gpu")
    for turn in (1, 3):
        np.testing.assert_array_equal(there[turn], here[turn])
    # Visible only if workers are threads of this process.
    played = device_line.scheduler.address.startswith("inproc")
    assert set(asked) == ({"gpu"} if played else set())


@pytest.mark.standin
@on_devices
def test_the_default_settings_answer_alike_on_a_gpu(device_line, tmp_path):
    """xnq+, its label features and `auto`, from the same graph."""
    graph = write_graph(tmp_path / "input", 240, 1000, labelled=0.7)
    tables = {}
    for backend in ("gpu", "cpu"):
        settings = small_settings(
            *("method=xnq+", "quantifier=auto", "communities=leiden"),
            *("plus.recurrent_scales=[0.9]", "reservoir.recurrent_scale=select"),
            *("plus.boosting=never", "reservoir.dim=8", "reservoir.supersteps=3"),
            *("readout.folds=3", f"backend={backend}", "partitions=2"),
        )
        out = tmp_path / backend
        run = whole_line(out, graph.sources, settings, device_line)
        tables[backend] = pq.read_table(run.folder.path("prevalence.parquet"))
        inputs = run.stage("readout").manifest().inputs
        assert ("backend" in inputs) == (backend == "gpu")
    for name in ("prevalence", "lower", "upper"):
        there, here = (tables[b][name].to_numpy() for b in ("gpu", "cpu"))
        np.testing.assert_allclose(there, here, atol=0.02, err_msg=name)


@on_devices
def test_a_small_gpu_is_refused_at_the_start(device_line, tmp_path, small_graph):
    settings = small_settings("backend=gpu", "cluster.device_memory=1MiB")
    with pytest.raises(DoesNotFitError, match=r"its GPU's memory but may use 1\.0 MiB"):
        whole_line(tmp_path / "run", small_graph.sources, settings, device_line)
