"""The complete pipeline on a device or the stand-in gives the CPU's answers."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings, write_graph
from tests.test_pipeline import posteriors, whole_line


def on_both(folder, sources, client, *given):
    """Runs with backend=gpu on two partitions, and with backend=cpu on one."""
    runs = []
    for backend, count in (("gpu", 2), ("cpu", 1)):
        settings = small_settings(*given, f"backend={backend}", f"partitions={count}")
        run = whole_line(folder / backend, sources, settings, client)
        inputs = run.stage("embeddings").manifest().inputs
        assert ("backend" in inputs) == (backend == "gpu")
        runs.append(run)
    return runs


def assert_same(runs, columns, tolerance):
    there, here = (pq.read_table(run.path("prevalence.parquet")) for run in runs)
    for name in columns:
        pair = there[name].to_numpy(), here[name].to_numpy()
        np.testing.assert_allclose(*pair, atol=tolerance, err_msg=name)


def test_prevalence_agrees_with_the_cpus(device_client, tmp_path, small_graph):
    given = ("quantifier=sld", "reservoir.recurrent_scale=0.9")
    runs = on_both(tmp_path, small_graph.sources, device_client, *given)
    assert_same(runs, ["prevalence"], 5e-3)
    there, here = (
        posteriors(run)["posterior"].combine_chunks().flatten().to_numpy()
        for run in runs
    )
    np.testing.assert_allclose(there, here, atol=1e-3)


@pytest.mark.standin
@pytest.mark.usefixtures("no_trees")
def test_the_default_settings_answer_alike_on_a_gpu(device_client, tmp_path):
    """xnq+, its label features and `auto`, from the same graph."""
    graph = write_graph(tmp_path / "input", 240, 1000, labelled=0.7)
    given = (
        *("method=xnq+", "quantifier=auto", "communities=leiden"),
        *("reservoir.recurrent_scale=[0.9]", "reservoir.dim=8"),
        *("reservoir.supersteps=3", "readout.folds=3"),
    )
    runs = on_both(tmp_path, graph.sources, device_client, *given)
    assert_same(runs, ["prevalence", "lower", "upper"], 0.02)
