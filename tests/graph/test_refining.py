from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.graph import refining as module
from xnq_dist.graph.csr import ArrayCsr
from xnq_dist.graph.refining import HALVING, ROWS, find_limits, refine


def halo_rows(csr: ArrayCsr, part: np.ndarray) -> int:
    return cost_of(csr, part, ROWS) // module.UNIT


def cost_of(csr: ArrayCsr, part: np.ndarray, cost: int) -> int:
    """The definition: what every node costs in every partition but its own."""
    readers: dict[tuple[int, int], int] = {}
    for v in range(len(part)):
        for u in csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist():
            if u != v and part[u] != part[v]:
                readers[u, int(part[v])] = readers.get((u, int(part[v])), 0) + 1
    if cost == ROWS:
        return module.UNIT * len(readers)
    return sum(
        sum(module.UNIT >> min(i, 31) for i in range(count))
        for count in readers.values()
    )


def excess(csr: ArrayCsr, part: np.ndarray, partitions: int) -> int:
    limits = find_limits(csr, partitions)
    base = int(csr.indptr[-1]) // len(part) + 1
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, np.diff(csr.indptr), partitions).astype(int)
    return int(
        (np.maximum(nodes - limits.nodes, 0) * base).sum()
        + np.maximum(edges - limits.edges, 0).sum()
    )


def slow_pass(
    csr: ArrayCsr, part: np.ndarray, partitions: int, cost: int, among: list[int]
) -> np.ndarray:
    """Every node tries every partition, all costs from the definition."""
    part = part.copy()
    for v in range(len(part)):
        old = int(part[v])
        if old not in among or np.count_nonzero(part == old) == 1:
            continue
        now, beyond = cost_of(csr, part, cost), excess(csr, part, partitions)
        moves = []
        for p in among:
            part[v] = p
            gain = now - cost_of(csr, part, cost)
            change = excess(csr, part, partitions) - beyond
            if p != old and (change < 0 or (change == 0 and gain > 0)):
                moves.append((gain, -p))
        part[v] = -max(moves)[1] if moves else old
    return part


def one_pass(
    csr: ArrayCsr, part: np.ndarray, partitions: int, cost: int, group: list[int]
) -> np.ndarray:
    part = part.copy()
    limits = find_limits(csr, partitions)
    base = int(csr.indptr[-1]) // len(part) + 1
    slot = np.full(partitions, -1, np.int64)
    slot[group] = np.arange(len(group))
    table = module.empty_table(len(part), len(group))
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, np.diff(csr.indptr), partitions).astype(np.int64)
    beyond = (limits.nodes, limits.edges, base, cost)
    for rows in csr.chunks(7):
        module.count_rows(rows.first, rows.indptr, rows.indices, part, slot, table)
    for rows in csr.chunks(7):
        module.move_nodes(
            rows.first,
            rows.indptr,
            rows.indices,
            part,
            np.array(group),
            slot,
            table,
            nodes,
            edges,
            beyond,
        )
    assert (nodes == np.bincount(part, minlength=partitions)).all()
    again = np.zeros_like(table)
    whole = (0, csr.indptr, csr.indices)
    module.count_rows(*whole, part, slot, again)
    assert (table == again).all()
    return part


@pytest.mark.parametrize("cost", [HALVING, ROWS])
@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 14),
    density=st.sampled_from([0.1, 0.3, 0.7]),
    seed=st.integers(0, 999),
    partitions=st.integers(2, 5),
    some=st.booleans(),
)
def test_a_pass_is_what_the_definition_says(
    cost: int, n: int, density: float, seed: int, partitions: int, some: bool
) -> None:
    csr = csr_of(random_matrix(n, density, seed))
    part = np.random.default_rng(seed).integers(0, partitions, n).astype(np.int32)
    group = list(range(some, partitions))
    expected = slow_pass(csr, part, partitions, cost, group)
    assert one_pass(csr, part, partitions, cost, group).tolist() == expected.tolist()


def social(n: int, seed: int) -> ArrayCsr:
    """Blocks of nodes and degrees of a heavy tail."""
    rng = np.random.default_rng(seed)
    pull = rng.pareto(1.5, n) + 1
    block = rng.integers(0, 12, n)
    odds = np.outer(pull, pull) * np.where(block[:, None] == block, 8.0, 0.4)
    there = rng.random((n, n)) < odds / odds.mean() * 8 / n
    return csr_of(sp.csr_array((there | there.T).astype(float)))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(6, 200),
    partitions=st.integers(2, 6),
    seed=st.integers(0, 999),
    start=st.sampled_from(["one", "chance", "nodes", "hubs"]),
    memory=st.sampled_from([1, 1 << 20]),
)
def test_limits_hold_from_any_start(
    n: int, partitions: int, seed: int, start: str, memory: int
) -> None:
    csr = social(n, seed)
    degrees = np.diff(csr.indptr)
    rng = np.random.default_rng(seed)
    part = {
        "one": np.zeros(n, np.int32),
        "chance": rng.integers(0, partitions, n).astype(np.int32),
        "nodes": (rng.random(n) < 0.1).astype(np.int32),
        "hubs": (degrees > np.median(degrees)).astype(np.int32),
    }[start]
    part[rng.choice(n, partitions, replace=False)] = np.arange(partitions)
    refine(csr, part, partitions, memory)
    limits = find_limits(csr, partitions)
    assert limits.nodes <= max(1.3 * n / partitions, n / partitions + 1)
    nodes = np.bincount(part, minlength=partitions)
    assert nodes.min() >= 1
    assert nodes.max() <= limits.nodes
    edges = np.bincount(part, degrees, partitions)
    # Dealing promises no more where one node is more than a tenth of a partition.
    mean = degrees.sum() / partitions
    assert edges.max() <= max(limits.edges, mean + degrees.max())


def test_refinement_saves_halo_rows_and_turns_of_groups_save_nearly_as_many() -> None:
    csr = social(400, 3)
    part = (np.arange(400) % 8).astype(np.int32)
    before = halo_rows(csr, part)
    halo = {}
    for size in (8, 4):
        after = part.copy()
        refine(csr, after, 8, size * 400)
        halo[size] = halo_rows(csr, after)
    assert halo[8] < 0.8 * before
    assert halo[4] < 0.8 * before


def test_every_two_partitions_near_each_other_share_a_group() -> None:
    groups = module._groups(10, 4)
    assert max(map(len, groups)) <= 4
    for half in (groups[: len(groups) // 2], groups[len(groups) // 2 :]):
        assert sorted(np.concatenate(half).tolist()) == list(range(10))
    assert [g.tolist() for g in module._groups(3, 3)] == [[0, 1, 2]]


def test_full_counters_stay_full() -> None:
    csr = csr_of(sp.csr_array(np.ones((300, 1)) @ np.eye(1, 300)))
    table = np.zeros((300, 1), np.uint8)
    part = np.zeros(300, np.int32)
    whole = (0, csr.indptr, csr.indices)
    module.count_rows(*whole, part, np.zeros(1, np.int64), table)
    assert table[0, 0] == module.FULL
    assert not table[1:].any()


def test_a_hub_beyond_the_limit_is_named(caplog: pytest.LogCaptureFixture) -> None:
    matrix = sp.lil_array((100, 100))
    matrix[0, 1:] = 1
    csr = csr_of(sp.csr_array(matrix))
    assert find_limits(csr, 4).edges == 99
    assert "one node has 99 in-neighbours" in caplog.text
    part = (np.arange(100) % 4).astype(np.int32)
    refine(csr, part, 4, 1 << 20)
    assert np.bincount(part).max() <= 33


def test_a_broken_limit_is_mended_by_few_nodes() -> None:
    csr = social(640, 1)
    part = (np.arange(640) % 8).astype(np.int32)
    part[[3, 5]] = 0
    degrees = np.diff(csr.indptr)
    room = int(np.bincount(part, degrees).max() + degrees.max())
    limits = module.Limits(80, room)
    dealt = part.copy()
    assert module._deal(csr, dealt, 8, limits)
    assert np.bincount(dealt).max() <= 80
    assert np.bincount(dealt, degrees).max() <= limits.edges
    assert 0 < np.count_nonzero(dealt != part) <= 40


def test_dealing_says_when_a_limit_cannot_hold() -> None:
    degrees = np.array([5, 4, 3, 3, 2, 1])
    to = np.empty(6, np.int64)

    def deal(most_nodes: int, most_edges: int, there: int = 0) -> bool:
        nodes, edges = np.array([there, 0]), np.zeros(2, np.int64)
        return bool(module.deal_out(degrees, nodes, edges, most_nodes, most_edges, to))

    assert deal(3, 9)
    assert np.bincount(to, degrees).tolist() == [9, 9]
    assert np.bincount(to).tolist() == [3, 3]
    assert not deal(3, 8)
    assert not deal(2, 99)
    assert not deal(3, 9, there=1)
    assert not deal(6, 99, there=7)
