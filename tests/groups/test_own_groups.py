"""Groups of the nodes of large graphs, against planted blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import small_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.groups import detection
from xnq_dist.groups.own_groups import degree_groups, node_groups


def write_planted(folder, blocks: int, size: int) -> Sources:
    """Blocks of nodes with many edges inside and few between."""
    rng = np.random.default_rng(0)
    n = blocks * size
    block = np.arange(n) // size
    order = rng.permutation(n)
    inside = rng.integers(0, size, (2, n * 6)) + size * rng.integers(0, blocks, n * 6)
    between = rng.integers(0, n, (2, n // 4))
    ends = order[np.concatenate([inside, between], axis=1)]
    labels = np.where(rng.random(n) < 0.3, rng.integers(0, 2, n), -1)
    features = pa.array(rng.normal(size=2 * n).astype(np.float32))
    nodes = pa.table(
        {
            "node_id": np.arange(n),
            "features": pa.FixedSizeListArray.from_arrays(features, 2),
            "label": pa.array(labels, mask=labels < 0),
            "block": block[np.argsort(order)],
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(nodes, folder / "nodes.parquet")
    pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), folder / "edges.parquet")
    return Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))


def test_groups_of_large_graphs_recover_planted_blocks(tmp_path, monkeypatch):
    sources = write_planted(tmp_path, 12, 40)
    block = pq.read_table(sources.nodes)["block"].to_numpy()
    monkeypatch.setattr(detection, "REFERENCE_EDGES", 0)
    settings = small_settings()
    found = []
    for partitions in (1, 3):
        run = RunDirectory(tmp_path / f"run{partitions}")
        graph = prepare(run, sources, settings, partitions)
        own = node_groups(run.stage("graph"), graph, settings)
        (by_links,) = own.links
        found.append(by_links)
        degree = np.diff(layout.read_adjacency(run.stage("graph"), graph).indptr)
        np.testing.assert_array_equal(own.degree, degree_groups(degree))
        np.testing.assert_array_equal(own.stacked, [by_links, own.degree])
    np.testing.assert_array_equal(found[0], found[1])
    sizes = np.bincount(found[0])
    assert (np.diff(sizes) <= 0).all()
    # Most pairs of nodes of a group are of one block, and most of a block of one group.
    together = found[0][:, None] == found[0]
    same = block[:, None] == block
    assert (together & same).sum() > 0.8 * together.sum()
    assert (together & same).sum() > 0.8 * same.sum()


def test_a_graph_without_edges_is_one_group(tmp_path):
    sources = write_planted(tmp_path, 4, 30)
    unknown = pa.table({"src": np.arange(3), "dst": np.arange(3) + 10**6})
    pq.write_table(unknown, sources.edges)
    run = RunDirectory(tmp_path / "run")
    graph = prepare(run, sources, small_settings("input.unknown_nodes=drop"), 2)
    found = node_groups(run.stage("graph"), graph, small_settings())
    np.testing.assert_array_equal(found.stacked, 0)
