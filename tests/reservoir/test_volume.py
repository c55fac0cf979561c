"""Planned rows: equal to the rows that workers exchange, or an upper bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import random_array

from tests.conftest import small_settings, write_graph
from tests.graph.graphs import cut
from xnq_dist import pipeline
from xnq_dist.core.need import PartitionCounts
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.halo import PartitionBook
from xnq_dist.graph.layout import load_partition
from xnq_dist.plan import Workers, add_up
from xnq_dist.reservoir.context import place
from xnq_dist.reservoir.routes import find_routes
from xnq_dist.reservoir.volume import max_volume, volume

NODES = 900


def partitions_of(count: int, degree: float, seed: int = 0):
    """Randomly cut random graph, symmetric; partitions, their counts, edges."""
    rng = np.random.default_rng(seed)
    half = random_array((NODES, NODES), density=degree / NODES / 2, rng=rng)
    whole = ((half + half.T) != 0).tocsr()
    book = PartitionBook.of(rng.integers(0, count, NODES).astype(np.int32), count)
    indptr, indices = whole.indptr.astype(np.int64), whole.indices.astype(np.int32)
    found = cut(indptr, indices, None, book)
    counts = PartitionCounts(
        [part.n_owned for part in found],
        [part.n_edges for part in found],
        [len(part.boundary_rows) for part in found],
        [np.diff(part.send_offsets).tolist() for part in found],
    )
    return found, counts, book.offsets.tolist(), whole.nnz


def rows_sent(found, offsets, placement) -> int:
    """Worker by worker, what the routes send."""
    rows = 0
    for worker in set(placement):
        mine = {part.number: part for part in found if placement[part.number] == worker}
        rows += find_routes(mine, offsets, placement).rows_sent
    return rows


@pytest.mark.parametrize(("count", "workers"), [(1, 1), (4, 4), (7, 3), (9, 2)])
@pytest.mark.parametrize("degree", [0.5, 4.0])
def test_rows_counted_are_those_that_move(count, workers, degree):
    found, counts, offsets, edges = partitions_of(count, degree)
    names = [f"tcp://127.0.0.1:{port}" for port in range(5000, 5000 + workers)]
    sent = rows_sent(found, offsets, place(counts.edges, names))
    planned = volume(counts, workers)
    assert planned.exact == (count <= workers)
    assert planned.moved == sent if planned.exact else sent <= planned.moved
    assert planned.picked == max(part.n_halo for part in found)
    assert planned.largest == max(counts.owned)
    assert max(counts.owned) <= planned.owned <= NODES
    assert planned.edges <= edges


def test_bound_before_the_partitioning_holds():
    for count, workers in ((4, 4), (6, 3), (16, 2)):
        for degree in (0.5, 3.0, 12.0):
            found, counts, offsets, edges = partitions_of(count, degree, count)
            bound = max_volume(NODES, edges, count, workers)
            assert not bound.exact
            # Expected of a random cut: this one is one of them.
            placement = place(counts.edges, [str(w) for w in range(workers)])
            moved = rows_sent(found, offsets, placement)
            assert bound.moved >= 0.95 * moved
            if degree > 3:
                assert bound.moved <= 1.1 * moved
    assert max_volume(NODES, 10 * NODES, 1, 4).moved == 0


def test_rows_held_are_those_under_way():
    """Two workers of one partition each, by hand."""
    counts = PartitionCounts([10, 10], [20, 20], [6, 4], [[0, 6], [4, 0]])
    planned = volume(counts, 2)
    assert planned.moved == 10
    # Its own rows on their way, and two generations of the other's.
    assert planned.held == 4 + 2 * 6
    assert volume(counts, 1).held == 0
    idle = volume(counts, 5)
    assert (idle.moved, idle.owned) == (10, 10)


def test_rows_for_several_readers_of_a_worker_are_counted_once(tmp_path):
    settings = small_settings("partitions=7", "partitioner=random")
    graph = write_graph(tmp_path / "input")
    run = RunDirectory(tmp_path / "run")
    run.folder.create()
    manifest = pipeline.prepare(run, graph.sources, settings)
    stage, facts = run.stage("graph"), manifest.facts
    parts = [load_partition(stage, manifest, number) for number in range(7)]
    placement = place(facts["edges"], [str(worker) for worker in range(3)])
    sent = rows_sent(parts, facts["offsets"], placement)
    three = small_settings("cluster.workers=3")
    size = pipeline.size_of(manifest, 3, stage)
    uncounted = replace(size.partition_counts, needed=None)
    bound, exact = (
        add_up(replace(size, partition_counts=counts), three, 7, Workers(3, 1, 2**33))
        for counts in (uncounted, size.partition_counts)
    )
    assert bound.bytes_are_bound
    assert not exact.bytes_are_bound
    assert exact.bytes_per_superstep == sent * 24 * 4 < bound.bytes_per_superstep
    assert exact.exchanged_bytes == 5 * exact.bytes_per_superstep
    assert exact.block_memory < bound.block_memory
    lines = dict(bound.lines())
    assert lines["exchanged a superstep"].startswith("at most ")
