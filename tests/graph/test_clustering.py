"""Label propagation against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.graph.graphs import csr_of
from xnq_dist.graph import csr
from xnq_dist.graph.clustering import FIRST, propagate
from xnq_dist.groups.detection import Level


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


def moved_slowly(matrix, strength, penalty, limit, label, due, turn):
    """One pass in plain Python: nodes choose and move one after the other."""
    label, moved = label.tolist(), 0

    def weight(community):
        return sum(s for s, c in zip(strength, label, strict=True) if c == community)

    for v, own in enumerate(strength):
        if due[v] > turn:
            continue
        due[v] = 255
        near = range(matrix.indptr[v], matrix.indptr[v + 1])
        votes: dict[int, float] = {label[v]: 0.0}
        for u in matrix.indices[near]:
            votes[label[u]] = votes.get(label[u], 0.0) + matrix[v, u]
        without = {c: weight(c) - own * (c == label[v]) for c in votes}
        gain = {c: votes[c] - penalty * own * without[c] for c in votes}
        room = [
            c
            for c in votes
            if c == label[v] or (votes[c] > 0 and without[c] + own <= limit)
        ]
        # The old community comes first, the others as they were met.
        best = max(room, key=gain.__getitem__)
        if own <= limit and best != label[v]:
            label[v] = best
            moved += 1
            for u in matrix.indices[near]:
                if label[u] != best:
                    due[u] = min(due[u], FIRST)
    return label, moved


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("limit", [np.inf, 20.0], ids=["any size", "limited"])
def test_passes_move_nodes_as_plain_python_does(monkeypatch, weighted, limit):
    """Random parts first, then nodes with neighbours that moved; in several chunks."""
    monkeypatch.setattr(csr, "CHUNK_EDGES", 50)
    penalty = 1 / 1024
    for seed in range(4):
        level, matrix = random_level(seed, weighted)
        n = len(level.strength)
        due = np.random.default_rng(seed).integers(FIRST, size=n, dtype=np.uint8)
        before, total = np.arange(n, dtype=np.int32), 0

        def propagated(passes, settled, level=level, n=n, seed=seed):
            label = np.arange(n, dtype=np.int32)
            rules = penalty, limit, settled, seed
            propagate(level.csr, label, level.strength, range(passes), *rules)
            return label.tolist()

        for turn in range(FIRST + 3):
            rules = level.strength, penalty, limit, before, due, turn
            expected, moved = moved_slowly(matrix, *rules)
            assert propagated(turn + 1, settled=-1) == expected
            if turn == FIRST:
                assert propagated(FIRST + 3, settled=moved) == expected
            before, total = np.array(expected, np.int32), total + moved
        assert total > n / 3  # each moves less often than in parallel
