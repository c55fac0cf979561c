from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.graph.sort import PairSorter

TINY = 1


def joined(chunks, n_major):
    """All pairs again; the chunks must follow one another without gaps."""
    assert [c.first for c in chunks[1:]] == [c.last for c in chunks[:-1]]
    assert (chunks[0].first, chunks[-1].last) == (0, n_major)
    major = np.concatenate(
        [np.repeat(np.arange(c.first, c.last), np.diff(c.indptr)) for c in chunks]
    )
    minor = np.concatenate([c.minor for c in chunks])
    weights = [c.weight for c in chunks if c.weight is not None]
    return major, minor, np.concatenate(weights) if weights else np.ones(len(major))


@pytest.mark.parametrize("kind", ["plain", "weighted", "counted"])
@pytest.mark.parametrize("memory", [TINY, 30_000, 1 << 24], ids=["tiny", "some", "all"])
def test_any_memory_gives_what_lexsort_gives(tmp_path, memory, kind):
    weighted, counted = kind == "weighted", kind == "counted"
    rng = np.random.default_rng(0)
    n_major, n_minor, size = 50, 2000, 20_000
    major, minor = rng.integers(0, n_major, size), rng.integers(0, n_minor, size)
    # One major key has most pairs: keys need not be spread evenly.
    major[rng.random(size) < 0.6] = 7
    weight = rng.integers(1, 9, size) / 4
    sizes = n_major, n_minor, memory
    with PairSorter(*sizes, tmp_path, weighted, counted=counted) as sorter:
        for part in np.array_split(np.arange(size), 9):
            sorter.add(major[part], minor[part], weight[part] if weighted else None)
        chunks = list(sorter.chunks("sum"))
        found = joined(chunks, n_major)
    assert not list(tmp_path.iterdir())
    order = np.lexsort((minor, major))
    keys = (major * n_minor + minor)[order]
    starts = np.flatnonzero(np.r_[True, np.diff(keys) > 0])
    assert (found[0] == major[order][starts]).all()
    assert (found[1] == minor[order][starts]).all()
    if weighted:
        assert (found[2] == np.add.reduceat(weight[order], starts)).all()
    if counted:
        assert (found[2] == np.diff(starts, append=size)).all()
    assert sorter.duplicates == size - len(starts)
    if memory < 1 << 24:
        assert len(chunks) > 1


PAIR = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


def test_sums_are_independent_of_the_order_of_arrival(tmp_path):
    weights = np.random.default_rng(1).random(500) ** 20
    zeros = np.zeros(500, np.int64)
    answers = set()
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(weights)
        with PairSorter(1, 1, TINY, tmp_path, weighted=True) as sorter:
            sorter.add(zeros, zeros, shuffled)
            _, _, found = joined(list(sorter.chunks("sum")), 1)
        answers.add(float(found[0]))
    assert len(answers) == 1
    assert answers.pop() == pytest.approx(weights.sum())


def test_no_pairs_give_one_empty_chunk(tmp_path):
    with PairSorter(5, 3, 1 << 20, tmp_path) as sorter:
        (chunk,) = sorter.chunks()
    assert chunk.indptr.tolist() == [0] * 6


def test_numbers_that_would_overflow_are_refused(tmp_path):
    with pytest.raises(DoesNotFitError, match="62 bits"):
        PairSorter(2**31, 2**31, 1 << 20, tmp_path)
