"""cuGraph's Leiden compared with the CPU's.

On a CPU igraph plays cuGraph, and pandas cuDF, where it matters which of them is asked.
"""

from __future__ import annotations

import importlib
import random
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import small_settings
from tests.groups.test_leiden import cliques
from xnq_dist.core import backend as backends
from xnq_dist.core.errors import SettingsError
from xnq_dist.groups.detection import detect, engine_of
from xnq_dist.groups.leiden import leiden, leiden_on_gpu

MODULE = "xnq_dist.groups.leiden"


def _needs(name):
    if importlib.util.find_spec(name) is None or backends.gpu_facts().reason:
        pytest.skip(f"{name} or a GPU is missing")


@pytest.fixture(
    params=[
        pytest.param("igraph", id="igraph-for-cugraph"),
        pytest.param("cugraph", marks=pytest.mark.gpu),
    ]
)
def graphs(request, monkeypatch):
    """cuGraph; on a CPU igraph and pandas stand in for cuGraph and cuDF."""
    if request.param == "cugraph":
        _needs("cugraph")
        return
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(f"{MODULE}.cugraph", lambda: GraphsOnTheCpu)
    monkeypatch.setattr(f"{MODULE}.data_frames", lambda: pandas)


@pytest.mark.usefixtures("graphs")
def test_cugraphs_communities_are_as_good_as_igraphs():
    adjacency = cliques([4, 7, 5], [(0, 4), (10, 11)])
    expected = [2] * 4 + [0] * 7 + [1] * 5
    assert leiden_on_gpu(adjacency, seed=1).tolist() == expected
    rng = np.random.default_rng(0)
    noisy = cliques([30] * 12, [tuple(rng.integers(0, 360, 2)) for _ in range(300)])
    there, here = (
        modularity(noisy, leiden_on_gpu(noisy)),
        modularity(noisy, leiden(noisy)),
    )
    assert there > here - 0.02


def modularity(adjacency, communities):
    """igraph's, of the mean of both directions."""
    import igraph

    pairs = adjacency + adjacency.T
    graph = igraph.Graph.Adjacency(pairs.toarray() > 0, "undirected")
    weights = [float(pairs[edge] / 2) for edge in graph.get_edgelist()]
    return graph.modularity(communities.tolist(), weights=weights)


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


def test_detection_with_gpus_is_cugraphs(monkeypatch, caplog):
    adjacency = cliques([4, 7, 5], [(0, 4), (10, 11)])
    expected = [2] * 4 + [0] * 7 + [1] * 5
    igraph = small_settings()
    assert engine_of(igraph, 1) == "igraph"
    asked = small_settings("leiden.engine=cugraph")
    beside = small_settings("backend=auto", "cluster.kind=cuda")
    if not backends.gpu_facts().devices:
        with pytest.raises(SettingsError, match="cugraph"):
            engine_of(asked, 1)
        assert engine_of(beside, 1) == "igraph"
        assert "detected on the CPU by igraph: cugraph" in caplog.text
    pandas = pytest.importorskip("pandas")
    calls = []

    def frames():
        calls.append(1)
        return pandas

    def detected(matrix, settings):
        monkeypatch.setattr("xnq_dist.graph.layout.read_adjacency", lambda *_: matrix)
        graph = SimpleNamespace(facts={"n_edges": matrix.nnz})
        return detect(None, graph, settings, None).tolist()

    for module in (MODULE, "xnq_dist.groups.detection"):
        monkeypatch.setattr(f"{module}.cugraph", lambda: GraphsOnTheCpu)
    monkeypatch.setattr(f"{MODULE}.data_frames", frames)
    for settings in (asked, beside):
        assert detected(adjacency, settings) == expected
    assert len(calls) == 2
    assert detected(adjacency, igraph) == expected
    assert len(calls) == 2
    # A node without an edge is alone, and numbered last.
    alone = cliques([1, 4, 7], [])
    assert detected(alone, asked) == [2] + [1] * 4 + [0] * 7
