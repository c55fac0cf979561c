"""Disclosure control: what an attacker can compute from published results."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.report.fake_run import prevalence_table
from xnq_dist.core.config import load_settings
from xnq_dist.core.schemas import conform
from xnq_dist.quantify.checks.disclosure import (
    notes,
    power_sums,
    reasons,
    sketches,
    suppressed,
)
from xnq_dist.quantify.checks.quality import without_values
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
@example([{1, 2}, {0, 1, 2}], 2)  # the hash of node 0 is 0
def test_published_overlapping_sets_hide_small_groups(sets, min_size):
    hidden, sizes = hide(sets, min_size=min_size)
    assert hidden[sizes < min_size].all()
    for combination in attacks(sets, [-1] * len(sets), hidden):
        shown = np.count_nonzero(combination)
        assert shown == 0 or shown >= min_size


@settings(max_examples=60, deadline=None)
@given(hierarchies(), st.integers(2, 8))
def test_published_levels_hide_small_groups(drawn, min_size):
    sets, parents = drawn
    hidden, sizes = hide(sets, parents, min_size)
    assert hidden[sizes < min_size].all()
    for combination in attacks(sets, parents, hidden):
        shown = np.count_nonzero(combination)
        assert shown == 0 or shown >= min_size


@settings(max_examples=60, deadline=None)
@given(hierarchies(), st.integers(2, 8))
def test_only_small_communities_are_suppressed_where_nothing_can_be_derived(
    drawn, min_size
):
    sets, parents = drawn
    small = np.array([len(each) < min_size for each in sets])
    left = [np.count_nonzero(c) for c in attacks(sets, parents, small)]
    hidden, _ = hide(sets, parents, min_size)
    if not any(0 < count < min_size for count in left):
        assert hidden.tolist() == small.tolist()


def test_close_sets_are_those_of_all_pairs():
    """Sets with common members, many of them near another one; by brute force."""
    rng = np.random.default_rng(7)
    sets = [set(rng.choice(400, rng.integers(5, 90), False)) for _ in range(80)]
    for _ in range(80):
        moved = rng.choice(400, rng.integers(1, 16), False).tolist()
        sets.append(sets[rng.integers(80)] ^ set(moved))
    sets += [set(range(395)), set(range(400)), sets[3]]
    order = sorted(range(len(sets)), key=lambda k: (len(sets[k]), k))
    gone = {k for k in order if len(sets[k]) < 10 or 0 < 400 - len(sets[k]) < 10}
    pairs = 0
    for one, a in enumerate(order):
        for b in order[one + 1 :]:
            if a not in gone and b not in gone and 0 < len(sets[a] ^ sets[b]) < 10:
                gone.add(a)
                pairs += 1
    gone |= {k for k in order if any(sets[k] == sets[other] for other in gone)}
    assert pairs > 20
    hidden, _ = hide(sets, nodes=400)
    assert set(np.flatnonzero(hidden).tolist()) == gone


def test_the_smallest_other_part_protects_a_small_one():
    parts = [set(range(6)), set(range(6, 30)), set(range(30, 90))]
    hidden, _ = hide([set(range(90)), *parts], [-1, 0, 0, 0], nodes=300)
    assert hidden.tolist() == [False, True, True, False]


def test_a_large_community_stays_suppressed_where_its_parent_is_published():
    parts = [set(range(k, k + 20)) for k in (0, 20, 40)]
    sets, parents = [set(range(60)), *parts], [-1, 0, 0, 0]
    small = np.array([False, True, False, False])
    hidden, _ = hide(sets, parents, nodes=200, small=small)
    assert hidden.tolist() == [False, True, True, False]
    assert not hide(sets, parents, nodes=200)[0].any()


def batch_of(sets, labels, known=2, **weights):
    """Arrays of a batch as `reasons` takes them; `labels` by node, -1: none."""
    of = sketches(as_communities(sets), 10)
    own = [labels[sorted(each)] for each in sets]
    return {
        "n_nodes": np.array([len(each) for each in sets]),
        "n_estimated": np.array([np.count_nonzero(each < 0) for each in own]),
        "known": np.array([[(each == c).sum() for c in range(known)] for each in own]),
        "prevalence": np.full((len(sets), 2), 0.5),
        "smallest_hashes": of.smallest,
        "power_sums": of.sums,
        **weights,
    }


def test_reasons_are_size_unanimous_labels_and_one_dominant_member():
    labels = np.full(200, -1)
    labels[:15], labels[15:30] = 1, np.arange(15) % 2
    sets = [range(15), range(15, 30), range(20, 60), range(60, 65), range(70, 90)]
    batch = batch_of(sets, labels, n_effective=np.array([15, 15, 40, 5, 1.5]))
    every = power_sums(np.ones(200, bool), 10)
    found = reasons([batch], None, every, load_settings())
    assert notes(10)[found].tolist() == [
        *(notes(10)[1], "", ""),
        *("suppressed: fewer than 10 members", notes(10)[1]),
    ]
    everything = load_settings(overrides=["disclosure.min_size=1"])
    assert not reasons([batch], None, every, everything).any()


def test_only_unlabelled_members_count_where_only_they_are_estimated():
    labels = np.full(200, -1)
    labels[:35] = 0
    sets = [range(40), range(30, 60)]
    unlabelled = [set(each) & set(range(35, 200)) for each in sets]
    of = sketches(as_communities(unlabelled), 10)
    batch = batch_of(sets, labels)
    batch |= {"smallest_hashes": of.smallest, "power_sums": of.sums}
    exclude = load_settings(overrides=["labelled=exclude"])
    found = reasons([batch], None, power_sums(labels < 0, 10), exclude)
    assert found.tolist() == [2, 0]


def test_values_of_suppressed_communities_are_null_on_request():
    table = prevalence_table(["a", "b"], intervals=True)
    quality = pa.array(["suppressed", "suppressed", "caution", "caution"])
    at = table.schema.get_field_index("quality")
    table = table.set_column(at, "quality", quality)
    rows = conform(without_values(table), "prevalence", "here").to_pylist()
    kept = {"community", "class", "n_nodes", "quality", "method"}
    assert {n for n, v in rows[0].items() if v is not None} - {"note"} == {
        *kept,
        *("iterations", "converged"),
    }
    assert rows[2:] == table.to_pylist()[2:]
