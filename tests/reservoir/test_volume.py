"""Planned rows: equal to the rows that workers exchange, or an upper bound."""

from __future__ import annotations

import pytest

from tests.conftest import small_settings, with_graph, write_graph
from xnq_dist.core.need import PartitionCounts
from xnq_dist.graph.layout import load_partition
from xnq_dist.plan import Workers, add_up
from xnq_dist.reservoir.context import place
from xnq_dist.reservoir.routes import find_routes
from xnq_dist.reservoir.volume import max_volume, size_of, volume


def rows_sent(sends) -> int:
    """Rows that a worker sends in one superstep, by `Routes.sends`."""
    return sum(len(rows) for to in sends.values() for rows in to.values())


def all_sent(found, offsets, placement) -> int:
    """Worker by worker, what the routes send."""
    rows = 0
    for worker in set(placement):
        mine = {part.number: part for part in found if placement[part.number] == worker}
        rows += rows_sent(find_routes(mine, offsets, placement).sends)
    return rows


@pytest.mark.parametrize(
    ("count", "workers", "degree"),
    [(1, 1, 4.0), (4, 4, 0.5), (4, 4, 4.0), (6, 3, 4.0), (9, 2, 4.0), (9, 2, 0.5)],
)
def test_planned_rows_are_those_that_move_or_a_bound(tmp_path, count, workers, degree):
    settings = small_settings(f"partitions={count}", "partitioner=contiguous")
    graph = write_graph(tmp_path / "input", 900, int(900 * degree), seed=1)
    run = with_graph(tmp_path / "run", graph.sources, settings)
    manifest = run.complete("graph")
    facts = manifest.facts
    parts = [load_partition(manifest, number) for number in range(count)]
    size = size_of(manifest)
    counts = size.partition_counts
    placement = place(counts.edges, [str(worker) for worker in range(workers)])
    sent = all_sent(parts, facts["offsets"], placement)
    planned, exact = volume(counts, workers), count <= workers
    assert planned.moved == sent if exact else sent <= planned.moved
    assert planned.picked == max(part.n_halo for part in parts)
    assert planned.largest == max(counts.owned)
    assert max(counts.owned) <= planned.owned <= 900
    assert planned.edges <= facts["n_edges"]
    # Before the partitioning, expected of a random one: ranges of random ids are one.
    bound = max_volume(900, facts["n_edges"], count, workers)
    assert 0.95 * sent <= bound.moved <= max(1.1 * sent, 2 * sent * (degree < 4))
    # The plan of the run.
    found = add_up(size, settings, count, Workers(workers, 1, 2**33))
    assert found.bytes_per_superstep == planned.moved * 24 * 4
    assert found.exchanged_bytes == 5 * found.bytes_per_superstep
    assert not found.halo_is_bound
    shown, halo = dict(found.lines()), int(counts.halo_sizes.sum())
    assert shown["exchanged a superstep"].startswith("at most ") != exact
    assert shown["halo rows"].startswith(f"{halo:,} ")
    assert found.halo_rows == halo


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
