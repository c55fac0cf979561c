"""Disclosure control: what an attacker can compute from published results."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from xnq_dist.quantify.checks.disclosure import sketches, suppressed
from xnq_dist.quantify.interface import Communities

NODES = 40


def as_communities(sets) -> Communities:
    sizes = [len(each) for each in sets]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    members = [np.array(sorted(each), np.int64) for each in sets]
    return Communities(offsets, np.concatenate([*members, np.empty(0, np.int64)]))


def hide(sets, parents=None, min_size=10, nodes=NODES, small=None):
    """Suppressed communities, and their sizes."""
    sizes = np.array([len(each) for each in sets], np.int64)
    parent = np.full(len(sets), -1) if parents is None else np.array(parents)
    small = sizes < min_size if small is None else small | (sizes < min_size)
    of = sketches(as_communities(sets), min_size)
    total = sketches(as_communities([range(nodes)]), min_size).sums[0]
    return suppressed(sizes, small, parent, of, total), sizes


def vector(members, nodes=NODES):
    values = np.zeros(nodes, np.int64)
    values[list(members)] = 1
    return values


def attacks(sets, parents, hidden, nodes=NODES):
    """Combinations of published results, as the weight of every node."""
    shown = [k for k in range(len(sets)) if not hidden[k]]
    known = [vector(sets[k], nodes) for k in shown] + [np.ones(nodes, np.int64)]
    for one, other in combinations(known, 2):
        yield one - other

    def inside(k):
        """Sum over the published communities directly below; None if there are none."""
        parts = []
        for child in np.flatnonzero(np.array(parents) == k).tolist():
            part = inside(child) if hidden[child] else vector(sets[child], nodes)
            parts += [] if part is None else [part]
        return sum(parts) if parts else None

    for k in [-1, *shown]:
        whole = np.ones(nodes, np.int64) if k < 0 else vector(sets[k], nodes)
        below = inside(k)
        if below is not None:
            yield whole - below


@st.composite
def overlapping_sets(draw):
    """Sets of which many differ from others by a few nodes."""
    sets = []
    for _ in range(draw(st.integers(1, 12))):
        if sets and draw(st.booleans()):
            near = set(draw(st.sampled_from(sets)))
            near ^= draw(st.sets(st.integers(0, NODES - 1), max_size=6))
            sets.append(near)
        else:
            sets.append(draw(st.sets(st.integers(0, NODES - 1), max_size=NODES)))
    return sets


@st.composite
def hierarchies(draw):
    """Sets with parents; a parent has all members of its communities."""
    top = draw(st.integers(1, 3))
    parents = [-1] * top
    for _ in range(draw(st.integers(1, 9))):
        parents.append(draw(st.integers(-1, len(parents) - 1)))
    sets = [set() for _ in parents]
    leaf = draw(st.lists(st.integers(0, len(parents)), min_size=NODES, max_size=NODES))
    twice = draw(st.lists(st.integers(0, len(parents) - 1), max_size=4))
    for node, k in [*enumerate(leaf), *enumerate(twice)]:
        while 0 <= k < len(parents):
            sets[k].add(node)
            k = parents[k]
    return sets, parents


@settings(max_examples=60, deadline=None)
@given(overlapping_sets(), st.integers(2, 12))
def test_published_overlapping_sets_show_no_small_group(sets, min_size):
    hidden, sizes = hide(sets, min_size=min_size)
    assert hidden[sizes < min_size].all()
    for combination in attacks(sets, [-1] * len(sets), hidden):
        shown = np.count_nonzero(combination)
        assert shown == 0 or shown >= min_size


@settings(max_examples=60, deadline=None)
@given(hierarchies(), st.integers(2, 8))
def test_published_levels_show_no_small_group(drawn, min_size):
    sets, parents = drawn
    hidden, sizes = hide(sets, parents, min_size)
    assert hidden[sizes < min_size].all()
    for combination in attacks(sets, parents, hidden):
        shown = np.count_nonzero(combination)
        assert shown == 0 or shown >= min_size
