"""The spectrum and the descriptors: files that are read by blocks of rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import small_settings, with_graph, write_graph
from xnq_dist.core.config import load_settings
from xnq_dist.core.need import RunSize, Workers
from xnq_dist.reservoir.descriptors import describe_nodes, mean_step, widths
from xnq_dist.reservoir.needs import needs
from xnq_dist.reservoir.spectrum import EXTRA, SPARE, SPECTRUM, walk_step
from xnq_dist.reservoir.volume import (
    WORKER,
    max_volume,
    memory_need,
)

VECTORS = SPECTRUM + SPARE + EXTRA


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    made = write_graph(tmp_path_factory.mktemp("input"), nodes=400, edges=1600)
    settings = small_settings("input.directed=false", "partitions=3")
    run = with_graph(tmp_path_factory.mktemp("run"), made.sources, settings)
    return run.stage("graph")


def test_blocks_of_any_number_of_rows_have_the_same_bits(graph, thread_client):
    where = graph.child("described")
    found = describe_nodes(thread_client, graph.manifest(), 5, where)
    every = [np.concatenate(list(found.blocks(p, 7))) for p in range(3)]
    # Of the vectors' rounds, only the last ones stay.
    vectors = [name for name in where.names() if name.startswith("power")]
    assert vectors == []
    for rows in (1, 10_000):
        again = np.concatenate(list(found.blocks(1, rows)))
        np.testing.assert_array_equal(again, every[1])


def test_steps_return_means_and_keep_nodes_without_edges():
    draw = np.random.default_rng(3)
    values = draw.normal(size=(6, 5)).astype(np.float32)
    sums = draw.normal(size=(6, 5)).astype(np.float32)
    weight = np.array([0, 2, 0, 1, 3, 5], np.float32)
    linked = weight > 0
    sums[:, -1] = weight
    after = mean_step(0, 1, values, sums.copy())
    np.testing.assert_array_equal(after[~linked], values[~linked])
    np.testing.assert_array_equal(after[linked], sums[linked] / weight[linked, None])
    sums[:, -2] = weight
    walked = walk_step(0, 1, values, sums.copy())
    means = (sums.T[:-2] / np.where(linked, weight, 1)).T
    np.testing.assert_array_equal(walked[:, :-2], np.where(linked[:, None], means, 0))
    np.testing.assert_array_equal(walked[:, -2], 1)
    np.testing.assert_array_equal(walked[:, -1], weight)


def test_a_graph_without_features_has_twice_as_many_vectors():
    found = [widths(10_000, features, True)[1] for features in (1, 2)]
    assert found == [2 * SPECTRUM, SPECTRUM]


def test_the_plan_counts_the_spectrum_where_states_are_small():
    """At d' = 8 the values of its rounds are larger than the states."""
    graph = {"nodes": 10**6, "edges": 10**7, "features": 16}
    size = RunSize(**graph, partitions=2, workers=Workers(2, 1, 2**34))
    needed = {}
    for method in "xnq+", "xnq":
        small = load_settings(overrides=["reservoir.dim=8", f"method={method}"])
        needed[method] = needs(size, small).worker
    moves = max_volume(10**6, 10**7, 2, 2)
    assert needed["xnq+"] == WORKER + memory_need(moves, VECTORS, 4, 1)
    assert needed["xnq+"] > 2 * needed["xnq"]
