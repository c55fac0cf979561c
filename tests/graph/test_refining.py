from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.graph import moves
from xnq_dist.graph import refining as module
from xnq_dist.graph import thread_pool as pool_module
from xnq_dist.graph.csr import ArrayCsr
from xnq_dist.graph.moves import HALVING, ROWS
from xnq_dist.graph.refining import find_limits, refine
from xnq_dist.graph.thread_pool import ThreadPool, batches


def halo_rows(csr: ArrayCsr, part: np.ndarray) -> int:
    return cost_of(csr, part, ROWS) // module.UNIT


def cost_of(csr: ArrayCsr, part: np.ndarray, cost: int) -> int:
    """The definition: the cost of every node in every other partition."""
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


def beyond(csr: ArrayCsr, part: np.ndarray, partitions: int) -> np.ndarray:
    """The weight of each partition above its limits."""
    limits = find_limits(csr, partitions)
    base = int(csr.indptr[-1]) // len(part) + 1
    nodes = np.bincount(part, minlength=partitions)
    edges = np.bincount(part, np.diff(csr.indptr), partitions).astype(int)
    return np.maximum(nodes - limits.nodes, 0) * base + np.maximum(
        edges - limits.edges, 0
    )


def excess(csr: ArrayCsr, part: np.ndarray, partitions: int) -> int:
    return int(beyond(csr, part, partitions).sum())


def slow_pass(
    csr: ArrayCsr,
    part: np.ndarray,
    partitions: int,
    cost: int,
    among: list[int],
    parts: int,
) -> np.ndarray:
    """Every node tries every partition, all costs from the definition.

    Savings are computed before any node of the batch moves.
    """
    part = part.copy()
    for rows in batches(csr, parts):
        now, gains = cost_of(csr, part, cost), {}
        nodes = range(rows.first, rows.first + len(rows.indptr) - 1)
        for v in nodes:
            old = int(part[v])
            for p in among:
                part[v] = p
                gains[v, p] = now - cost_of(csr, part, cost)
            part[v] = old
        over = set(np.flatnonzero(beyond(csr, part, partitions)))
        for v in nodes:
            old = int(part[v])
            if old not in among or np.count_nonzero(part == old) == 1:
                continue
            if old not in over and max(gains[v, p] for p in among) <= 0:
                continue
            before = excess(csr, part, partitions)
            moves = []
            for p in among:
                part[v] = p
                change = excess(csr, part, partitions) - before
                if p != old and (change < 0 or (change == 0 and gains[v, p] > 0)):
                    moves.append((gains[v, p], -p))
            part[v] = -max(moves)[1] if moves else old
    return part


def one_pass(
    csr: ArrayCsr,
    part: np.ndarray,
    partitions: int,
    cost: int,
    group: list[int],
    parts: int = 256,
    threads: int = 1,
) -> np.ndarray:
    part = part.copy()
    limits = find_limits(csr, partitions)
    loads = module._Loads.of(csr, part, partitions)
    before = cost_of(csr, part, cost)
    with pytest.MonkeyPatch.context() as patch, ThreadPool(threads) as pool:
        patch.setattr(module, "BATCHES", parts)
        patch.setattr(pool_module, "SINGLE_THREAD", 0)
        turn = module._Turn.of(pool, csr, part, partitions, np.array(group))
        _, saved = turn.move(cost, loads, limits)
    assert loads.nodes.tolist() == np.bincount(part, minlength=partitions).tolist()
    assert loads.edges.tolist() == (
        np.bincount(part, np.diff(csr.indptr), partitions).tolist()
    )
    if len(group) == partitions:
        assert turn.costs(cost) == cost_of(csr, part, cost)
    if parts >= len(part):
        assert saved == before - cost_of(csr, part, cost)
    with ThreadPool(1) as pool:
        again = module._Turn.of(pool, csr, part, partitions, np.array(group))
    assert (turn.table == again.table).all()
    inside = np.isin(part, group)
    assert (turn.home[inside] == again.home[inside]).all()
    return part


@pytest.mark.parametrize("cost", [HALVING, ROWS])
@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 14),
    density=st.sampled_from([0.1, 0.3, 0.7]),
    seed=st.integers(0, 999),
    partitions=st.integers(2, 5),
    some=st.booleans(),
    parts=st.sampled_from([1, 3, 64]),
    threads=st.integers(1, 3),
)
def test_a_pass_is_what_the_definition_says(
    cost: int,
    n: int,
    density: float,
    seed: int,
    partitions: int,
    some: bool,
    parts: int,
    threads: int,
) -> None:
    csr = csr_of(random_matrix(n, density, seed))
    part = np.random.default_rng(seed).integers(0, partitions, n).astype(np.int32)
    group = list(range(some, partitions))
    expected = slow_pass(csr, part, partitions, cost, group, parts)
    found = one_pass(csr, part, partitions, cost, group, parts, threads)
    assert found.tolist() == expected.tolist()


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
    assert limits.nodes <= max(1.05 * n / partitions, n / partitions + 1)
    nodes = np.bincount(part, minlength=partitions)
    assert nodes.min() >= 1
    assert nodes.max() <= limits.nodes
    edges = np.bincount(part, degrees, partitions)
    # The bound is weaker if one node is more than a tenth of a partition.
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
    found = module._groups(10, 4)
    near, far = found[:3], found[3:]
    for groups in (near, far):
        assert max(map(len, groups)) <= 4
        assert sorted(np.concatenate(groups).tolist()) == list(range(10))
    assert [g.tolist() for g in near] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    (only,) = module._groups(3, 3)
    assert only.tolist() == [0, 1, 2]


def test_full_counters_stay_full_and_homes_keep_their_count() -> None:
    """All read node 0 and move, so that its counters rise beyond what they hold."""
    csr = csr_of(sp.csr_array(np.ones((300, 1)) @ np.eye(1, 300)))
    part = np.zeros(300, np.int32)
    with ThreadPool(1) as pool:
        turn = module._Turn.of(pool, csr, part, 2, np.arange(2))
        # 299 readers in the same partition, which cost nothing.
        assert turn.table[0, :2].tolist() == [moves.FULL, 0]
        assert turn.home[0] == moves.FULL
        assert turn.table[1:, 0].tolist() == [moves.FULL] * 299
        assert not turn.home[1:].any()
        part[1:200] = 1
        turn = module._Turn.of(pool, csr, part, 2, np.arange(2))
        assert turn.table[0, :2].tolist() == [moves.FULL, 199]
        assert turn.home[0] == 100
        everyone = np.arange(200, 300)
        to = np.tile(np.array([[0, 1]], np.int32), (100, 1))
        rows, state = (0, csr.indptr, csr.indices), (turn.slot, turn.table, turn.home)
        moves.count_moves(rows, (everyone, to), part, state, 0, 2)
        assert turn.table[0, 1] == moves.FULL
        assert turn.home[0] == 0
        back = np.ascontiguousarray(to[:, ::-1])
        moves.count_moves(rows, (everyone, back), part, state, 0, 2)
        assert turn.table[0, 1] == moves.FULL
        assert turn.home[0] == 100


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
    assert module._reassign(csr, dealt, 8, limits)
    assert np.bincount(dealt).max() <= 80
    assert np.bincount(dealt, degrees).max() <= limits.edges
    assert 0 < np.count_nonzero(dealt != part) <= 40


def test_dealing_says_when_a_limit_cannot_hold() -> None:
    degrees = np.array([5, 4, 3, 3, 2, 1])
    to = np.empty(6, np.int64)

    def deal(max_nodes: int, max_edges: int, there: int = 0) -> bool:
        nodes, edges = np.array([there, 0]), np.zeros(2, np.int64)
        return bool(module.assign(degrees, nodes, edges, max_nodes, max_edges, to))

    assert deal(3, 9)
    assert np.bincount(to, degrees).tolist() == [9, 9]
    assert np.bincount(to).tolist() == [3, 3]
    assert not deal(3, 8)
    assert not deal(2, 99)
    assert not deal(3, 9, there=1)
    assert not deal(6, 99, there=7)
