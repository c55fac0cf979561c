from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of, random_matrix
from xnq_dist.graph import batches as batches_module
from xnq_dist.graph import propagation as module
from xnq_dist.graph.batches import batches, max_batch_rows
from xnq_dist.graph.propagation import Labels, Limits


def excess_of(label, own, limits):
    """By how much all labels exceed the limits, from the definition."""
    nodes, edges = np.bincount(label, own[:, 0]), np.bincount(label, own[:, 1])
    each = limits.edges // limits.nodes + 1
    over = np.maximum(nodes - limits.nodes, 0) * each
    return int((over + np.maximum(edges - limits.edges, 0)).sum())


def slow_pass(
    csr,
    label,
    own,
    count,
    limits,
    loss,
    parts,
):
    """All nodes of a batch choose, then move one by one by the same rules."""
    label = list(label)
    votes_of = csr.weights if csr.weighted else np.ones(len(csr.indices))

    def change(v, to):
        moved = [*label[:v], to, *label[v + 1 :]]
        return excess_of(moved, own, limits) - excess_of(label, own, limits)

    def eases(v):
        """Whether the node's label exceeds its limits less without the node."""
        return change(v, count) < excess_of([0], own[[v]], limits)

    for rows in batches(csr, parts):
        choice: dict[int, tuple[int | None, float]] = {}
        for v in range(rows.first, rows.first + len(rows.indptr) - 1):
            votes: dict[int, float] = {label[v]: 0.0}
            for edge in range(csr.indptr[v], csr.indptr[v + 1]):
                u = int(csr.indices[edge])
                if u != v:
                    votes[label[u]] = votes.get(label[u], 0.0) + float(votes_of[edge])
            kept, free = votes.pop(label[v]), eases(v)
            gains = {q: sum_ - kept for q, sum_ in votes.items()}
            allowed = {
                q: gain
                for q, gain in gains.items()
                if (change(v, q) == 0 and gain > 0)
                or (change(v, q) < 0 and gain >= (-loss * kept if free else 0))
            }
            if allowed:
                best = max(allowed, key=lambda q: allowed[q])
                choice[v] = best, allowed[best]
            elif free and loss > 0 and loss * kept >= kept:
                choice[v] = None, -kept
        for v, (best_or_any, gain) in choice.items():
            changes = [change(v, q) if q != label[v] else 10**9 for q in range(count)]
            best = int(np.argmin(changes)) if best_or_any is None else best_or_any
            if best_or_any is None and not eases(v):
                continue
            if changes[best] < 0 or (changes[best] == 0 and gain > 0):
                label[v] = best
    return label


def one_pass(
    csr,
    labels,
    limits,
    loss,
    weighted,
    parts,
    threads,
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "batches", partial(batches, minimum=parts))
        patch.setattr(module, "max_batch_rows", partial(max_batch_rows, minimum=parts))
        patch.setattr(batches_module, "SINGLE_THREAD", 0)
        patch.setattr("os.sched_getaffinity", lambda _: set(range(threads)))
        return labels.move(csr, limits, loss, weighted)


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(2, 14),
    density=st.sampled_from([0.1, 0.3, 0.7]),
    seed=st.integers(0, 999),
    count=st.integers(2, 5),
    slack=st.sampled_from([0.5, 1.0, 1.3]),
    loss=st.sampled_from([0.0, 0.5, 1.0]),
    weighted=st.booleans(),
    parts=st.sampled_from([1, 3, 64]),
    threads=st.integers(1, 3),
)
def test_a_pass_is_what_the_definition_says(
    n,
    density,
    seed,
    count,
    slack,
    loss,
    weighted,
    parts,
    threads,
):
    rng = np.random.default_rng(seed)
    matrix = random_matrix(n, density, seed)
    matrix.data[:] = rng.integers(1, 4, matrix.nnz)
    csr = csr_of(matrix, weighted)
    own = np.stack([rng.integers(1, 3, n), np.diff(csr.indptr)], axis=1)
    limits = Limits(
        *np.maximum(slack * own.sum(axis=0) / count, 1).astype(int).tolist()
    )
    start = rng.integers(0, count, n).astype(np.int32)
    labels = Labels.of(start.copy(), own, count)
    moved = one_pass(csr, labels, limits, loss, weighted, parts, threads)
    expected = slow_pass(csr, start.tolist(), own, count, limits, loss, parts)
    assert labels.label.tolist() == expected
    assert moved >= np.count_nonzero(labels.label != start)
    assert (labels.sizes == Labels.of(labels.label, own, count).sizes).all()
    before, after = (
        excess_of(each, own, limits) for each in (start.tolist(), expected)
    )
    assert after <= before


def test_nodes_without_neighbours_leave_a_label_above_its_limits():
    csr = csr_of(sp.csr_array((8, 8)))
    own = np.stack([np.ones(8, np.int64), np.zeros(8, np.int64)], axis=1)
    labels = Labels.of(np.zeros(8, np.int32), own, 2)
    limits = Limits(4, 1)
    assert labels.over(limits)
    assert labels.move(csr, limits) == 0
    assert labels.move(csr, limits, 0.5) == 4
    assert labels.sizes.tolist() == [[4, 0], [4, 0]]
    assert not labels.over(limits)
