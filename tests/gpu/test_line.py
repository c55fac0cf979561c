"""The whole line on a device, real or played: the CPU's prevalence."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings
from tests.gpu.conftest import DEVICES
from tests.test_pipeline import posteriors, whole_line
from xnq_dist.errors import DoesNotFitError

on_devices = pytest.mark.parametrize("device_line", DEVICES, indirect=True)


@on_devices
def test_prevalence_differs_from_the_cpus(device_line, tmp_path, small_graph):
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
def test_a_gpu_too_small_is_found_out_late(device_line, tmp_path, small_graph):
    settings = small_settings("backend=gpu", "cluster.device_memory=1MiB")
    with pytest.raises(DoesNotFitError, match=r"its GPU's memory but may use 1\.0 MiB"):
        whole_line(tmp_path / "run", small_graph.sources, settings, device_line)
