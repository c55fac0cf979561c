"""cuDF's ingest and cuGraph's Leiden against the CPU's; pandas plays cuDF here.

So does igraph, in cuGraph's words, where it matters which of the two is asked.
"""

from __future__ import annotations

import importlib
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings, write_graph
from tests.quantify.test_leiden import cliques
from xnq_dist import backend as backends
from xnq_dist import pipeline
from xnq_dist.errors import InputError, SettingsError
from xnq_dist.graph.gpu_ingest import read_csr
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.quantify import detection, gpu_leiden
from xnq_dist.quantify.detection import engine_of
from xnq_dist.quantify.gpu_leiden import leiden_on_gpu, modularity
from xnq_dist.quantify.leiden import leiden
from xnq_dist.store import RunDirectory


@pytest.fixture(
    params=[
        pytest.param("pandas", id="pandas-for-cudf"),
        pytest.param("cudf", marks=pytest.mark.gpu),
    ]
)
def frames(request):
    """The data frames; pandas says the same words on a CPU."""
    if request.param == "pandas":
        return pytest.importorskip("pandas")
    _needs("cudf")
    return backends.data_frames()


def _needs(name):
    if importlib.util.find_spec(name) is None or backends.gpu_facts().reason:
        pytest.skip(f"{name} or a GPU is missing")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", ["true", "false"])
@pytest.mark.parametrize("duplicates", ["drop", "sum"])
def test_adjacency_differs_from_the_cpus(
    frames, weighted, directed, duplicates, tmp_path
):
    graph = write_graph(tmp_path / "input", 90, 700, weighted=weighted)
    edges = pq.read_table(graph.sources.edges)
    doubled = edges.slice(0, 40 if duplicates == "sum" or not weighted else 0)
    parts = [edges, doubled]
    pq.write_table(pa.concat_tables(parts), graph.sources.edges)
    settings = small_settings(
        f"input.directed={directed}",
        f"input.duplicates={duplicates}",
        "input.self_loops=drop",
    )
    if weighted and directed == "false" and duplicates == "drop":
        settings = small_settings("input.directed=false")
    run = RunDirectory(tmp_path / "run")
    run.folder.create()
    pipeline.prepare(run, graph.sources, settings)
    stage = run.stage("graph")
    here = read_adjacency(stage, stage.manifest())
    there = read_csr(graph.sources.nodes, graph.sources.edges, settings, frames)
    np.testing.assert_array_equal(there.indptr, here.indptr)
    np.testing.assert_array_equal(there.indices, here.indices)
    weights = there.weights if there.weighted else np.ones(len(here.data))
    np.testing.assert_allclose(weights, here.data, rtol=1e-6)


def test_wrong_tables_are_taken(frames, tmp_path):
    graph = write_graph(tmp_path / "input", 50, 200, weighted=True)
    nodes, edges = graph.sources.nodes, graph.sources.edges
    rows = pq.read_table(nodes)
    fewer = str(tmp_path / "fewer.parquet")
    pq.write_table(rows.slice(1), fewer)
    with pytest.raises(InputError, match=r"not in .*unknown_nodes"):
        read_csr(fewer, edges, small_settings(), frames)
    dropped = read_csr(fewer, edges, small_settings("input.unknown_nodes=drop"), frames)
    assert len(dropped.indptr) == 50
    twice = str(tmp_path / "twice.parquet")
    pq.write_table(pa.concat_tables([rows, rows]), twice)
    with pytest.raises(InputError, match="every id once"):
        read_csr(twice, edges, small_settings(), frames)
    table = pq.read_table(edges)
    heavier = table.set_column(2, "weight", [[9.0] * len(table)])
    both = str(tmp_path / "both.parquet")
    pq.write_table(pa.concat_tables([table, heavier.cast(table.schema)]), both)
    with pytest.raises(InputError, match="different weights"):
        read_csr(nodes, both, small_settings(), frames)


@pytest.mark.gpu
def test_cugraphs_communities_are_worse_than_igraphs():
    _needs("cugraph")
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


def test_modularity_differs_from_igraphs():
    import igraph

    adjacency = cliques([6, 9, 4], [(0, 7), (3, 16)])
    found = leiden(adjacency)
    graph = igraph.Graph.Adjacency(
        (adjacency + adjacency.T).toarray() > 0, "undirected"
    )
    weights = [
        float((adjacency[a, b] + adjacency[b, a]) / 2) for a, b in graph.get_edgelist()
    ]
    expected = graph.modularity(found.tolist(), weights=weights)
    assert modularity(adjacency, found) == pytest.approx(expected)


class GraphsOnTheCpu:
    """In cuGraph's place, with its words: igraph's Leiden on pandas frames.

    It says whether the package is called as meant, nothing of what it answers.
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


def test_detection_beside_gpus_is_not_cugraphs(monkeypatch, caplog):
    adjacency = cliques([4, 7, 5], [(0, 4), (10, 11)])
    expected = [2] * 4 + [0] * 7 + [1] * 5
    igraph = small_settings()
    assert engine_of(igraph) == "igraph"
    asked = small_settings("leiden.engine=cugraph")
    beside = small_settings("backend=auto", "cluster.kind=cuda")
    if not backends.gpu_facts().devices:
        with pytest.raises(SettingsError, match="cugraph"):
            engine_of(asked)
        assert engine_of(beside) == "igraph"
        assert "detected on the CPU: cugraph" in caplog.text
    pandas = pytest.importorskip("pandas")
    calls = []

    def frames():
        calls.append(1)
        return pandas

    monkeypatch.setattr(detection, "cugraph", lambda: GraphsOnTheCpu)
    monkeypatch.setattr(gpu_leiden, "cugraph", lambda: GraphsOnTheCpu)
    monkeypatch.setattr(gpu_leiden, "data_frames", frames)
    for settings in (asked, beside):
        assert detection.detect(adjacency, 1.0, settings).tolist() == expected
    assert len(calls) == 2
    assert detection.detect(adjacency, 1.0, igraph).tolist() == expected
    assert len(calls) == 2
    # A node without an edge is alone, and numbered last.
    alone = cliques([1, 4, 7], [])
    assert detection.detect(alone, 1.0, asked).tolist() == [2] + [1] * 4 + [0] * 7
