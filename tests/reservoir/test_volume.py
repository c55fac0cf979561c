"""Planned rows: equal to the rows that workers exchange, or an upper bound."""

from __future__ import annotations

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


def test_bytes_of_a_plan_are_exact_with_a_worker_for_each_partition(tmp_path):
    settings = small_settings("partitions=3", "partitioner=random")
    graph = write_graph(tmp_path / "input")
    run = RunDirectory(tmp_path / "run")
    run.folder.create()
    manifest = pipeline.prepare(run, graph.sources, settings)
    stage, offsets = run.stage("graph"), manifest.facts["offsets"]
    parts = [load_partition(stage, manifest, number) for number in range(3)]
    size = pipeline.size_of(manifest, stage)
    for workers, exact in ((3, True), (2, False)):
        names = [str(worker) for worker in range(workers)]
        sent = rows_sent(parts, offsets, place(manifest.facts["edges"], names))
        found = add_up(size, settings, 3, Workers(workers, 1, 2**33))
        assert found.bytes_are_bound != exact
        assert found.bytes_per_superstep >= sent * 24 * 4
        if exact:
            assert found.bytes_per_superstep == sent * 24 * 4
        assert found.exchanged_bytes == 5 * found.bytes_per_superstep
        shown = dict(found.lines())["exchanged a superstep"]
        assert shown.startswith("at most ") != exact
