"""cuGraph's Leiden compared with the CPU's, which stands in for it on a CPU."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from tests.conftest import small_settings
from tests.groups.test_leiden import cliques
from xnq_dist.core import backend as backends
from xnq_dist.groups.detection import detect, engine_of
from xnq_dist.groups.leiden import leiden, leiden_on_gpu

LEIDEN, DETECTION = "xnq_dist.groups.leiden", "xnq_dist.groups.detection"


class GraphsOnTheCpu:
    """The CPU's Leiden on pandas frames with cuGraph's interface.

    It shows whether the package is called correctly, not what it returns.
    """

    class Graph:
        def __init__(self, directed):
            assert not directed

        def from_cudf_edgelist(self, table, source, destination, weight):
            self.table = table[[source, destination, weight]]

    @staticmethod
    def leiden(graph, resolution, random_state):
        import pandas

        ends = graph.table.iloc[:, :2].to_numpy()
        vertices, at = np.unique(ends, return_inverse=True)
        rows, columns = at.reshape(ends.shape).T
        weights = graph.table.iloc[:, 2]
        size = len(vertices)
        edges = sp.coo_array((weights, (rows, columns)), shape=(size, size))
        found = leiden(edges.tocsr(), resolution, random_state)
        return pandas.DataFrame({"vertex": vertices, "partition": found}), None


@pytest.fixture(
    params=[
        pytest.param("cpu", id="cpu-for-cugraph"),
        pytest.param("cugraph", marks=pytest.mark.gpu),
    ]
)
def graphs(request, monkeypatch):
    """cuGraph; on a CPU our Leiden and pandas stand in for cuGraph and cuDF."""
    if request.param == "cugraph":
        if importlib.util.find_spec("cugraph") is None or backends.gpu_facts().reason:
            pytest.skip("cugraph or a GPU is missing")
        return
    pandas = pytest.importorskip("pandas")
    for module in (LEIDEN, DETECTION):
        monkeypatch.setattr(f"{module}.cugraph", lambda: GraphsOnTheCpu)
    monkeypatch.setattr(f"{LEIDEN}.data_frames", lambda: pandas)


@pytest.mark.usefixtures("graphs")
def test_communities_on_gpus_are_numbered_by_size(monkeypatch):
    adjacency = cliques([1, 4, 7, 5], [(1, 5), (11, 12)])
    expected = [3] + [2] * 4 + [0] * 7 + [1] * 5
    assert leiden_on_gpu(adjacency, seed=1).tolist() == expected
    monkeypatch.setattr("xnq_dist.graph.layout.read_adjacency", lambda *_: adjacency)
    graph = SimpleNamespace(facts={"n_edges": adjacency.nnz})
    settings = small_settings("backend=auto", "cluster.kind=cuda")
    assert engine_of(settings, 1) == "cugraph"
    assert detect(None, graph, settings, None).tolist() == expected


@pytest.mark.usefixtures("graphs")
def test_dense_groups_are_found_in_a_noisy_graph():
    rng = np.random.default_rng(0)
    noisy = cliques([30] * 12, [tuple(rng.integers(0, 360, 2)) for _ in range(300)])
    found = leiden_on_gpu(noisy).reshape(12, 30)
    assert (found == found[:, :1]).mean() > 0.98
    assert len(set(found[:, 0])) == 12


def test_missing_cugraph_is_reported(monkeypatch, caplog):
    monkeypatch.setattr(backends, "_installed", lambda name: False)
    beside = small_settings("backend=auto", "cluster.kind=cuda")
    assert engine_of(beside, 1) == "cpu"
    assert "detected on the CPU: cugraph" in caplog.text
