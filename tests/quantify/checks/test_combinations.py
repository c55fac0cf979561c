"""Attackers who add and subtract published results in any way."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quantify.checks.test_disclosure import as_communities, vector
from xnq_dist.quantify.checks import combinations as checked
from xnq_dist.quantify.checks.combinations import more_suppressed

NODES = 14


def eliminated(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    """The reduced echelon form, without rows of zeros."""
    rows, done = [list(row) for row in rows], []
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in rows if row[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        pivot = [value / pivot[column] for value in pivot]
        for group in (rows, done):
            group[:] = [
                [a - row[column] * b for a, b in zip(row, pivot, strict=True)]
                for row in group
            ]
        done.append(pivot)
    return done


def fewest(known: np.ndarray) -> int | None:
    """Fewest nodes that any combination of the rows shows; None: there is none.

    A combination with the fewest nodes vanishes on a maximal set of other nodes, and
    as many independent ones as the rank minus one determine it.
    """
    atoms, counts = np.unique(known, axis=1, return_counts=True)
    basis = eliminated([[Fraction(int(v)) for v in row] for row in atoms])
    found = []
    for zero in combinations(range(atoms.shape[1]), len(basis) - 1):
        system = [[row[at] for row in basis] for at in zero]
        solved = eliminated(system) if system else []
        if len(solved) < len(zero):
            continue
        ends = [next(at for at, v in enumerate(row) if v) for row in solved]
        (free,) = set(range(len(basis))) - set(ends)
        weights = [Fraction(0)] * len(basis)
        weights[free] = Fraction(1)
        for row, end in zip(solved, ends, strict=True):
            weights[end] = -row[free]
        values = [
            sum(w * row[at] for w, row in zip(weights, basis, strict=True))
            for at in range(atoms.shape[1])
        ]
        found.append(sum(int(n) for n, v in zip(counts, values, strict=True) if v))
    return min((number for number in found if number), default=None)


def known_to_all(sets, hidden, nodes=NODES) -> np.ndarray:
    shown = [each for each, gone in zip(sets, hidden, strict=True) if not gone]
    return np.array([*(vector(each, nodes) for each in shown), np.ones(nodes, int)])


@st.composite
def related_sets(draw, nodes=NODES, most=4):
    """Sets of which many are made from others."""
    sets = []
    for _ in range(draw(st.integers(1, most))):
        moved = draw(st.sets(st.integers(0, nodes - 1), max_size=3))
        if len(sets) > 1 and draw(st.booleans()):
            one, other = (set(draw(st.sampled_from(sets))) for _ in range(2))
            both = [one | other, one - other, one ^ other, one & other]
            sets.append(draw(st.sampled_from(both)) ^ moved)
        else:
            sets.append(draw(st.sets(st.integers(0, nodes - 1), max_size=nodes)))
    return sets


def protect(sets, min_size, secret=None, nodes=NODES):
    """Communities that are suppressed at first, and in the end."""
    hidden = np.array([len(each) < min_size for each in sets])
    secret = np.zeros_like(hidden) if secret is None else secret & ~hidden
    hidden |= secret
    given = as_communities(sets), nodes, hidden, secret, min_size
    more, complete = more_suppressed(*given)
    assert complete
    assert not (more & hidden).any()
    return hidden, hidden | more


@settings(max_examples=100, deadline=None)
@given(related_sets(), st.integers(2, 6))
def test_every_combination_of_published_sets_hides_small_groups(sets, min_size):
    before, after = protect(sets, min_size)
    shown = fewest(known_to_all(sets, after))
    assert shown is None or shown >= min_size
    at_first = fewest(known_to_all(sets, before))
    if at_first is None or at_first >= min_size:
        assert after.tolist() == before.tolist()


def sums(known: np.ndarray, reach: int) -> np.ndarray:
    """All combinations with integer factors up to a size."""
    factors = np.array(list(product(range(-reach, reach + 1), repeat=len(known))))
    return factors @ known


@settings(max_examples=100, deadline=None)
@given(related_sets(24, 6), st.integers(2, 8), st.data())
def test_every_sum_hides_small_groups_and_secret_communities(sets, min_size, data):
    secret = np.zeros(len(sets), bool)
    at = data.draw(st.integers(0, len(sets) - 1))
    # The estimate for all nodes is published, and shows what is nearly all of them.
    secret[at] = len(sets[at]) <= 24 - min_size
    _, after = protect(sets, min_size, secret, 24)
    found = sums(known_to_all(sets, after, 24), 2)
    shown = np.count_nonzero(found, axis=1)
    assert not ((shown > 0) & (shown < min_size)).any()
    if secret[at] and len(sets[at]) >= min_size:
        left = np.count_nonzero(found - vector(sets[at], 24), axis=1)
        assert left.min() >= min_size


def test_two_divisions_of_the_same_people_protect_those_without_a_place():
    """Regions leave out 4 people, and ages are known of everybody."""
    rng = np.random.default_rng(1)
    people = rng.permutation(3000)
    regions = [set(part) for part in np.array_split(people[4:].tolist(), 30)]
    ages = [set(part) for part in np.array_split(rng.permutation(3000).tolist(), 6)]
    before, after = protect([*regions, *ages], 10, nodes=3000)
    assert not before.any()
    assert np.flatnonzero(after).tolist() == [int(np.argmin([*map(len, regions)]))]


def test_combinations_beyond_the_search_are_reported(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(2)
    sets = [set(rng.choice(400, 40, False).tolist()) for _ in range(60)]
    nothing = np.zeros(60, bool)
    monkeypatch.setattr(checked, "STEPS", 0)
    given = as_communities(sets), 400, nothing, nothing, 10
    more, complete = more_suppressed(*given)
    assert not complete
    assert not more.any()
    monkeypatch.setattr(checked, "PAIRS", 100)
    assert not more_suppressed(*given)[1]
