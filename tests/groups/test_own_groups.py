"""Groups of the nodes of large graphs, against planted blocks."""

from __future__ import annotations

import numpy as np

from tests.conftest import small_settings
from tests.graph.graphs import edge_table, node_table, run
from tests.groups.test_detection import planted
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.groups import detection
from xnq_dist.groups.own_groups import degree_groups, node_groups


def test_groups_of_large_graphs_recover_planted_blocks(tmp_path, monkeypatch):
    sources, block = planted(tmp_path, 12, 40, 0.25)
    monkeypatch.setattr(detection, "REFERENCE_EDGES", 0)
    settings = small_settings()
    found = []
    for partitions in (1, 3):
        directory = RunDirectory(tmp_path / f"run{partitions}")
        graph = prepare(directory, sources, settings, partitions)
        own = node_groups(graph, settings)
        (by_links,) = own.links
        found.append(by_links)
        degree = np.diff(layout.read_adjacency(graph).indptr)
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
    unknown = edge_table([(0, 99), (1, 99)])
    _, graph = run(tmp_path, node_table(6), unknown, "input.unknown_nodes=drop")
    found = node_groups(graph, small_settings())
    np.testing.assert_array_equal(found.stacked, 0)
