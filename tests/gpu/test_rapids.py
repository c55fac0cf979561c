"""cuGraph's Leiden compared with the CPU's; on a CPU igraph stands in for cuGraph."""

from __future__ import annotations

import importlib.util
import random
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import small_settings
from tests.groups.test_leiden import cliques
from xnq_dist.core import backend as backends
from xnq_dist.groups.detection import detect, engine_of
from xnq_dist.groups.leiden import leiden_on_gpu

LEIDEN, DETECTION = "xnq_dist.groups.leiden", "xnq_dist.groups.detection"


class GraphsOnTheCpu:
    """igraph's Leiden on pandas frames with cuGraph's interface.

    It shows whether the package is called correctly, not what it returns.
    """

    class Graph:
        def __init__(self, directed):
            assert not directed

        def from_cudf_edgelist(self, table, source, destination, weight):
            self.table = table[[source, destination, weight]]

    @staticmethod
    def leiden(graph, resolution, random_state):
        import igraph
        import pandas

        table = graph.table.set_axis(["source", "target", "weight"], axis=1)
        own = igraph.Graph.DataFrame(table, directed=False, use_vids=False)
        random.seed(random_state)
        found = own.community_leiden(
            "modularity", weights="weight", resolution=resolution, n_iterations=10
        )
        names = [int(name) for name in own.vs["name"]]
        answer = {"vertex": names, "partition": found.membership}
        return pandas.DataFrame(answer), found.modularity


@pytest.fixture(
    params=[
        pytest.param("igraph", id="igraph-for-cugraph"),
        pytest.param("cugraph", marks=pytest.mark.gpu),
    ]
)
def graphs(request, monkeypatch):
    """cuGraph; on a CPU igraph and pandas stand in for cuGraph and cuDF."""
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
    assert engine_of(beside, 1) == "igraph"
    assert "detected on the CPU by igraph: cugraph" in caplog.text
