"""The spectrum and the descriptors: files of some columns, blocks of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import small_settings, write_graph
from xnq_dist import pipeline
from xnq_dist.core.config import load_settings
from xnq_dist.core.need import GraphSize, RunSize, Workers
from xnq_dist.core.store import Stage
from xnq_dist.reservoir.descriptors import describe_nodes, mean_step
from xnq_dist.reservoir.needs import needs
from xnq_dist.reservoir.spectrum import EXTRA, SPARE, SPECTRUM, walk_step
from xnq_dist.reservoir.volume import (
    WORKER,
    Volume,
    max_volume,
    sums_columns,
    sums_memory,
)

VECTORS = SPECTRUM + SPARE + EXTRA


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    made = write_graph(tmp_path_factory.mktemp("input"), nodes=400, edges=1600)
    settings = small_settings("input.directed=false", "partitions=3")
    with pipeline.open_run(str(tmp_path_factory.mktemp("run")), made.sources) as run:
        pipeline.prepare(run, made.sources, settings)
    return run.stage("graph")


def described(graph: Stage, folder, client, columns: int, rows: int = 7):
    attempt = Stage(graph.folder.child(folder), "embeddings").begin()
    manifest = graph.manifest()
    found = describe_nodes(client, graph, manifest, 5, attempt, columns)
    parts = [np.concatenate(list(found.blocks(p, rows))) for p in range(3)]
    return found, parts, attempt.folder


def test_columns_at_a_time_leave_every_bit(graph, thread_client):
    """Few columns at a time, and blocks of any number of rows."""
    found, every, folder = described(graph, "all", thread_client, VECTORS)
    assert len(found.files) == 3 * 3 + 3 + 1
    assert sorted(folder.names()) == sorted(record.name for record in found.files)
    few, parts, _ = described(graph, "few", thread_client, 45)
    assert len(few.files) == 3 * 3 + 3 * 3 + 1
    for one, other in zip(every, parts, strict=True):
        np.testing.assert_array_equal(one, other)
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


def moved(nodes: int, degree: float = 5.0) -> Volume:
    """Counts of two partitions on two workers."""
    return max_volume(nodes, int(nodes * degree), 2, 2)


@given(
    st.integers(2, 10**8), st.floats(0, 50), st.integers(1, 8), st.integers(0, 10**11)
)
def test_columns_fit_into_the_memory_or_are_one(nodes, degree, at_once, memory):
    moves = moved(nodes, degree)
    columns = sums_columns(moves, at_once, memory)
    assert columns == 1 or WORKER + sums_memory(columns, moves, at_once) <= memory


def test_the_plan_counts_the_spectrum_where_states_are_small():
    """At d' = 16 the values of its rounds are larger than the states."""
    size = GraphSize(nodes=10**6, edges=10**7, features=16)
    workers, needed = Workers(2, 1, 2**34), {}
    for method in "xnq+", "xnq":
        small = load_settings(overrides=["reservoir.dim=16", f"method={method}"])
        needed[method] = needs(RunSize.of(size, 2, workers), small).worker
    moves = moved(10**6, 10)
    assert needed["xnq+"] == WORKER + sums_memory(VECTORS, moves, 1)
    assert needed["xnq+"] > 2 * needed["xnq"]
