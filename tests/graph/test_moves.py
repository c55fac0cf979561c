"""Label propagation against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.graph.graphs import csr_of
from xnq_dist.graph import batches as batches_module
from xnq_dist.graph.moves import FIRST, Communities
from xnq_dist.groups.streamed import Level


def random_level(seed: int, weighted: bool, n: int = 60) -> tuple[Level, sp.csr_array]:
    """A level and its matrix; weights and strengths are quarters, so sums are exact."""
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < 0.12, 1).astype(float)
    if weighted:
        dense *= rng.integers(0, 9, (n, n)) / 4
    matrix = sp.csr_array(dense + dense.T)
    loops = rng.integers(0, 3, n)
    strength = matrix.sum(axis=1) + loops
    return Level(csr_of(matrix, weighted), strength), matrix


def moved_slowly(matrix, strength, penalty, limit, label, due, turn, sizes):
    """One pass in plain Python: batches of nodes choose, then join one by one."""
    label, moved, first = label.tolist(), 0, 0

    def weight(community):
        return sum(s for s, c in zip(strength, label, strict=True) if c == community)

    for size in sizes:
        batch = range(first, first + size)
        choice = {}
        for v in batch:
            if due[v] > turn:
                continue
            due[v] = 255
            votes: dict[int, float] = {label[v]: 0.0}
            for u in matrix.indices[matrix.indptr[v] : matrix.indptr[v + 1]]:
                votes[label[u]] = votes.get(label[u], 0.0) + matrix[v, u]
            own = strength[v]
            without = {c: weight(c) - own * (c == label[v]) for c in votes}
            gain = {c: votes[c] - penalty * own * without[c] for c in votes}
            room = [
                c
                for c in votes
                if c == label[v] or (votes[c] > 0 and without[c] + own <= limit)
            ]
            if own <= limit:
                # The old community comes first, the others as they were met.
                choice[v] = max(room, key=gain.__getitem__)
        joined = set()
        for v, best in choice.items():
            if best != label[v] and weight(best) + strength[v] <= limit:
                label[v] = best
                joined.add(v)
        for v in joined:
            for u in matrix.indices[matrix.indptr[v] : matrix.indptr[v + 1]]:
                if label[u] != label[v]:
                    due[u] = min(due[u], FIRST)
        moved += len(joined)
        first += size
    return label, moved


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("limit", [np.inf, 20.0], ids=["any size", "limited"])
def test_passes_move_nodes_as_plain_python_does(monkeypatch, weighted, limit, threads):
    """Random parts first, then nodes with neighbours that moved."""
    monkeypatch.setattr(batches_module, "BATCHES", 7)
    monkeypatch.setattr(batches_module, "SINGLE_THREAD", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(threads)))
    for seed in range(4):
        level, matrix = random_level(seed, weighted)
        sizes = [len(each.indptr) - 1 for each in batches_module.batches(level.csr)]
        assert len(sizes) >= 7
        n = len(level.strength)
        penalty = 1 / 1024
        label, weight = np.arange(n, dtype=np.int32), level.strength.copy()
        due = np.random.default_rng(seed).integers(FIRST, size=n, dtype=np.uint8)
        total = 0
        for turn in range(FIRST + 3):
            expected_due = due.copy()
            state = level.strength, penalty, limit, label, expected_due, turn
            expected, steps = moved_slowly(matrix, *state, sizes)
            nodes = Communities(label, level.strength, weight, due, penalty, limit)
            joined = nodes.move(level.csr, turn)
            assert joined == steps
            assert label.tolist() == expected
            assert due.tolist() == expected_due.tolist()
            total += steps
        assert total > n / 2
        sums = np.bincount(label, level.strength, n)
        np.testing.assert_array_equal(weight, sums)
