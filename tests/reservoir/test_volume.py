"""Planned rows: equal to the rows that the engines move, or an upper bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import random_array

from tests.conftest import small_settings, write_graph
from tests.graph.graphs import cut
from xnq_dist import pipeline
from xnq_dist.core.need import GraphSize, PartitionCounts
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.halo import PartitionBook
from xnq_dist.graph.layout import load_partition
from xnq_dist.plan import Workers, add_up
from xnq_dist.reservoir.context import exchanged_bytes, place
from xnq_dist.reservoir.routes import find_routes
from xnq_dist.reservoir.volume import (
    MANY,
    MIN_TILE,
    WORKER,
    choose_engine,
    disk_need,
    disk_traffic,
    max_volume,
    tile_memory,
    volume,
)

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


def sent_by_spmd(found, offsets, placement) -> int:
    """Worker by worker, what the engine itself sends."""
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
    placement = place(counts.edges, names)
    tasks = volume("tasks", counts, workers)
    sizes, boundary = counts.halo_sizes, counts.boundary
    assert tasks.exact
    assert tasks.moved == exchanged_bytes(sizes, boundary, placement, 1)
    sent = sent_by_spmd(found, offsets, placement)
    spmd = volume("spmd", counts, workers)
    assert spmd.exact == (count <= workers)
    assert spmd.moved == sent if spmd.exact else sent <= spmd.moved <= tasks.moved
    assert tasks.picked == spmd.picked == max(part.n_halo for part in found)
    assert spmd.largest == max(counts.owned)
    assert max(counts.owned) <= spmd.owned <= NODES
    assert spmd.edges <= edges


@pytest.mark.parametrize("engine", ["tasks", "spmd"])
def test_bound_before_the_partitioning_holds(engine):
    for count, workers in ((4, 4), (6, 3), (16, 2)):
        for degree in (0.5, 3.0, 12.0):
            found, counts, offsets, edges = partitions_of(count, degree, count)
            known = volume(engine, counts, workers)
            bound = max_volume(engine, NODES, edges, count, workers)
            assert not bound.exact
            # Expected of a random cut: this one is one of them.
            moved = known.moved
            if engine == "spmd":
                placement = place(counts.edges, [str(w) for w in range(workers)])
                moved = sent_by_spmd(found, offsets, placement)
            else:
                assert bound.held >= 0.9 * known.held
            assert bound.moved >= 0.95 * moved
            if degree > 3:
                assert bound.moved <= 1.1 * moved
    assert max_volume(engine, NODES, 10 * NODES, 1, 4).moved == 0


def test_rows_held_follow_the_engine():
    """Two workers of one partition each, by hand."""
    counts = PartitionCounts([10, 10], [20, 20], [6, 4], [[0, 6], [4, 0]])
    tasks, spmd = volume("tasks", counts, 2), volume("spmd", counts, 2)
    assert tasks.moved == spmd.moved == 10
    assert tasks.held == 6 + 4
    assert volume("tasks", counts, 1).held == 2 * (6 + 4)
    # Its own rows on their way, and two generations of the other's.
    assert spmd.held == 4 + 2 * 6
    idle = volume("tasks", counts, 5)
    assert (idle.moved, idle.owned) == (10, 10)


def test_memory_with_states_on_a_disk_follows_the_graph_and_not_the_limit():
    counts = PartitionCounts([10**6] * 8, [10**7] * 8, [10**6] * 8, [[10**5] * 8] * 8)
    moves = volume("tasks", counts, 2)
    budget = tile_memory(WORKER + 2**30, 2)
    assert budget == 2**28
    assert tile_memory(WORKER, 1) == MIN_TILE
    need = disk_need(moves, 64, 4, 4, 1, budget)
    # One partition's last states, tables on their way, topology of four.
    assert 10**6 * 64 * 4 < need < 10**6 * 64 * 4 + 2**27 + 4 * 10**7 * 12
    # One tile a partition: everything once, and halo rows; more: in-neighbours again.
    once = disk_traffic(100, 10**6, 50, 2, 8, 4, 4, 10**6)
    assert once == 8 * 4 * (100 + 50 + 100 + 100)
    assert disk_traffic(100, 10**6, 50, 2, 8, 4, 4, 1000) > 2 * once
    assert disk_traffic(100, 200, 50, 2, 8, 4, 4, 1000) <= 2 * once


def test_rows_for_several_readers_of_a_worker_are_counted_once(tmp_path):
    settings = small_settings("partitions=7", "partitioner=random")
    graph = write_graph(tmp_path / "input")
    run = RunDirectory(tmp_path / "run")
    run.folder.create()
    manifest = pipeline.prepare(run, graph.sources, settings)
    stage, facts = run.stage("graph"), manifest.facts
    parts = [load_partition(stage, manifest, number) for number in range(7)]
    placement = place(facts["edges"], [str(worker) for worker in range(3)])
    sent = sent_by_spmd(parts, facts["offsets"], placement)
    spmd = small_settings("exchange.engine=spmd", "cluster.workers=3")
    size = pipeline.size_of(manifest, spmd, 3, stage)
    uncounted = replace(size.partition_counts, needed=None)
    bound, exact = (
        add_up(replace(size, partition_counts=counts), spmd, 7, Workers(3, 1, 2**33))
        for counts in (uncounted, size.partition_counts)
    )
    assert bound.bytes_are_bound
    assert not exact.bytes_are_bound
    assert exact.bytes_per_superstep == sent * 24 * 4 < bound.bytes_per_superstep
    assert exact.exchanged_bytes == 5 * exact.bytes_per_superstep
    assert exact.block_memory < bound.block_memory
    lines = dict(bound.lines())
    assert lines["exchanged a superstep (spmd)"].startswith("at most ")


def test_many_partitions_on_cpus_get_the_engine_with_less_overhead():
    assert choose_engine("auto", MANY - 1) == "tasks"
    assert choose_engine("auto", MANY) == "spmd"
    assert choose_engine("auto", MANY, on_device=True) == "tasks"
    assert choose_engine("tasks", MANY) == "tasks"
    assert choose_engine("spmd", 2) == "spmd"


def test_plan_names_the_engine_that_runs(tmp_path):
    size = GraphSize(nodes=10**6, edges=10**7, features=8)
    for count, engine in ((8, "tasks"), (16, "spmd")):
        workers = Workers(2, 1, 2**36)
        assert add_up(size, small_settings(), count, workers).engine == engine
    # Too large for memory: in files, which tasks read.
    plan = add_up(size, small_settings("reservoir.dim=4096"), 64, Workers(2, 1, 2**31))
    assert (plan.states, plan.engine) == ("disk", "tasks")
