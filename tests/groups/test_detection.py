"""Communities of graphs that stay on disk, against those in memory."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings
from tests.graph.graphs import edge_table, node_table, run
from tests.groups.test_leiden import modularity
from xnq_dist.core.stages import streams
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.sources import Sources
from xnq_dist.groups.detection import detect, detect_streamed
from xnq_dist.groups.leiden import leiden, number_by_size

LITTLE = 1 << 18
"""Bytes that hold the edges of no graph here."""


def planted(folder, blocks=50, size=60, between=2.0, weights=False):
    """Blocks of nodes in random order, with loops and edges of one direction.

    Weights are large inside of blocks. Returns the tables and the block of each node.
    """
    rng, nodes = np.random.default_rng(3), blocks * size
    name = rng.permutation(nodes)
    inside = rng.integers(0, size, (2, nodes * 5))
    inside += size * rng.integers(0, blocks, nodes * 5)
    ends = rng.integers(0, nodes, (2, int(nodes * between)))
    ends = np.unique(name[np.concatenate([inside, ends], axis=1)], axis=1)
    block = np.argsort(name) // size
    same = block[ends[0]] == block[ends[1]]
    more = {"weight": np.where(same, 4.0, 0.25)} if weights else {}
    folder.mkdir(exist_ok=True)
    sources = str(folder / "nodes.parquet"), str(folder / "edges.parquet")
    pq.write_table(node_table(nodes), sources[0])
    pq.write_table(pa.table({"src": ends[0], "dst": ends[1], **more}), sources[1])
    return Sources(*sources), block


KINDS = {
    "directed": [],
    "undirected": ["input.directed=false"],
    "weighted": ["columns.weight=weight"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_communities_are_as_good_as_leidens_in_any_partitions(tmp_path, kind):
    more = {"between": 20.0, "weights": True} if kind == "weighted" else {}
    sources, _ = planted(tmp_path, blocks=20, **more)
    found = []
    for partitions in (1, 5):
        directory = RunDirectory(tmp_path / f"run{partitions}")
        graph = prepare(directory, sources, small_settings(*KINDS[kind]), partitions)
        folder = tmp_path / f"scratch{partitions}"
        folder.mkdir()
        found.append(detect_streamed(graph, folder, LITTLE, 1.0, 0))
        assert not list(folder.iterdir())
    np.testing.assert_array_equal(*found)
    adjacency = layout.read_adjacency(graph)
    best = modularity(adjacency, leiden(adjacency))
    assert modularity(adjacency, found[0]) >= 0.98 * best
    # Loops, weights and directions count as they do with all edges in memory.
    fits = detect_streamed(graph, tmp_path, 1 << 24, 1.0, 0)
    assert modularity(adjacency, fits) == pytest.approx(best, abs=0.005)


def test_contraction_is_repeated_until_leiden_fits(tmp_path, caplog):
    caplog.set_level(logging.INFO, "xnq_dist.groups.detection")
    sources, _ = planted(tmp_path)
    directory = RunDirectory(tmp_path / "run")
    graph = prepare(directory, sources, small_settings(), 2)
    sizes = []
    for memory in (1 << 23, 1 << 20, LITTLE):
        caplog.clear()
        detect_streamed(graph, tmp_path, memory)
        lines = [each.getMessage() for each in caplog.records]
        sizes.append([int(x.split()[2]) for x in lines if x.startswith("Leiden on")])
    assert sizes[0] == [3000]
    assert 0 < sizes[1][0] < 3000
    assert not sizes[2] or sizes[2][0] < sizes[1][0]


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["cora", "minesweeper", "twitch-ptbr", "facebook100-johnshopkins55"]
)
def test_streamed_modularity_on_data_folder_is_close_to_leidens(
    tmp_path, data_folder, name
):
    """Also where communities grow along the rows of a grid (Minesweeper)."""
    tables = (
        str(data_folder / name / "nodes.parquet"),
        str(data_folder / name / "edges.parquet"),
    )
    directory = RunDirectory(tmp_path / "run")
    settings = small_settings("columns.features=null")
    graph = prepare(directory, Sources(*tables), settings, 2)
    adjacency = layout.read_adjacency(graph)
    found = detect_streamed(graph, tmp_path, 1 << 20, 1.0, 0)
    best = modularity(adjacency, leiden(adjacency))
    assert modularity(adjacency, found) >= 0.95 * best


def test_nodes_without_edges_to_others_are_alone(tmp_path):
    rows = [(0, 0), (1, 2), (2, 3), (1, 3)]
    _, graph = run(tmp_path, node_table(6), edge_table(rows))
    for memory in (1, 1 << 24):
        found = detect_streamed(graph, tmp_path, memory)
        assert found.tolist() == [1, 0, 0, 0, 2, 3]
    zeros = edge_table([(0, 1), (2, 3)], weight=[0.0, 0.0])
    _, graph = run(tmp_path / "zeros", node_table(4), zeros, "columns.weight=weight")
    assert detect_streamed(graph, tmp_path / "zeros", 1).tolist() == [0, 1, 2, 3]


def test_engine_is_chosen_by_the_memory_of_the_input(tmp_path):
    edges = 10_000_000  # 1.5 GiB
    assert streams(small_settings(), edges)
    assert not streams(small_settings(), 1_000_000)
    assert not streams(small_settings("input.memory=2GiB"), edges)
    _, graph = run(tmp_path, node_table(6), edge_table())
    exact = detect(graph, small_settings(), tmp_path)
    other = detect(graph, small_settings("input.memory=1 KiB"), tmp_path)
    np.testing.assert_array_equal(number_by_size(exact), number_by_size(other))


def test_interrupted_detection_starts_again_cleanly(tmp_path, monkeypatch):
    module = "xnq_dist.groups.detection._leiden"
    _, graph = run(tmp_path, node_table(6), edge_table())
    folder = tmp_path / "scratch"
    folder.mkdir()
    expected = detect_streamed(graph, folder, 1 << 24)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, interrupted)
        with pytest.raises(KeyboardInterrupt):
            detect_streamed(graph, folder, 1 << 24)
    assert not list(folder.iterdir())
    np.testing.assert_array_equal(detect_streamed(graph, folder, 1 << 24), expected)
