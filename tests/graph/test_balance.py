from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import csr_of
from tests.graph.test_partition import halo_rows
from xnq_dist.graph.balance import find_limits, hold_limits
from xnq_dist.graph.partition import metis


def social(n, seed):
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
)
def test_limits_hold_from_any_start(n, partitions, seed, start):
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
    hold_limits(csr, part, partitions)
    limits = find_limits(csr, partitions)
    assert limits.nodes <= max(1.05 * n / partitions, n / partitions + 1)
    nodes = np.bincount(part, minlength=partitions)
    assert nodes.min() >= 1
    assert nodes.max() <= limits.nodes
    edges = np.bincount(part, degrees, partitions)
    # The bound is weaker if one node is more than a tenth of a partition.
    mean = degrees.sum() / partitions
    assert edges.max() <= max(limits.edges, mean + degrees.max())


def test_limits_are_held_at_few_more_halo_rows():
    csr = social(1200, 3)
    part = metis(csr.indptr, csr.indices, np.ones(1200, np.int64), 8)
    before = halo_rows(csr, part)
    assert np.bincount(part, np.diff(csr.indptr)).max() > find_limits(csr, 8).edges
    hold_limits(csr, part, 8)
    assert halo_rows(csr, part) <= 1.1 * before


def test_a_hub_beyond_the_limit_is_named(caplog):
    matrix = sp.lil_array((100, 100))
    matrix[0, 1:] = 1
    csr = csr_of(sp.csr_array(matrix))
    assert find_limits(csr, 4).edges == 99
    assert "one node has 99 in-neighbours" in caplog.text
    part = (np.arange(100) % 4).astype(np.int32)
    hold_limits(csr, part, 4)
    assert np.bincount(part).max() <= 33
