"""Disclosure control: communities whose estimates would reveal a few members.

A sum over a small group follows from published sums if the group is a combination of
published communities: the difference of two, or a parent without its communities. A
combination is tested without the members. Each community has the power sums
``sum h(x)^j`` of its members' hashes modulo a prime, for j up to 2 m - 2. Combinations
of communities combine their power sums, and the m x m Hankel matrix of these is
singular if fewer than m nodes remain (and else with a probability of about 2^-31).
Pairs to be tested are those that share one of the rarest of their smallest hashes.
Where the members are known, `combinations` tests all other combinations, too.

References
----------
A. Hundepool et al., "Statistical Disclosure Control", Wiley, 2012 (primary and
complementary suppression).
S. Chaudhuri, V. Ganti, R. Kaushik, "A primitive operator for similarity joins in data
cleaning", ICDE 2006 (prefix filter).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Ints
from xnq_dist.core.random_bits import mix
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.combinations import more_suppressed
from xnq_dist.quantify.hierarchy import Hierarchy
from xnq_dist.quantify.interface import Communities

__all__ = [
    "Sketches",
    "notes",
    "power_sums",
    "reasons",
    "sketches",
    "suppressed",
]

log = logging.getLogger(__name__)

MODULUS = np.uint64(2**31 - 1)
EMPTY = np.uint64(2**32 - 1)
CHUNK = 1 << 22
"""Elements of the matrices that are tested at once."""

REVEALS = "suppressed: alone or with other results it would reveal single members"
"""Note of communities that are large enough, but suppressed."""


def notes(min_size: int) -> NDArray[np.object_]:
    """Notes by reason: not suppressed, large enough, too small."""
    small = f"suppressed: fewer than {min_size} members"
    return np.array(["", REVEALS, small], np.object_)


@dataclass(frozen=True, eq=False)
class Sketches:
    """Sketches of K sets, each with `min_size` nodes or more."""

    smallest: NDArray[np.uint32]
    """The smallest hashes, ascending; `EMPTY` after the last, shape (K, 2 m)."""
    sums: NDArray[np.uint32]
    """Power sums of the hashes, shape (K, 2 m - 1)."""


def sketches(sets: Communities, min_size: int) -> Sketches:
    """Sketch the sets of `min_size` nodes or more, in their order."""
    large = np.flatnonzero(np.diff(sets.offsets) >= min_size)
    smallest = np.full((len(large), 2 * min_size), EMPTY)
    sums = np.zeros((len(large), 2 * min_size - 1), np.uint64)
    _sketch(sets.offsets, sets.members, large, smallest, sums)
    return Sketches(smallest.astype(np.uint32), sums.astype(np.uint32))


def power_sums(counted: Bools, min_size: int) -> NDArray[np.uint32]:
    """Power sums of the marked nodes together, shape (2 m - 1,)."""
    nothing = np.zeros((1, 1), np.uint64)  # no hash is smaller
    sums = np.zeros((1, 2 * min_size - 1), np.uint64)
    for begin in range(0, len(counted), CHUNK):
        nodes = begin + np.flatnonzero(counted[begin : begin + CHUNK])
        ends = np.array([0, len(nodes)])
        _sketch(ends, nodes, np.zeros(1, np.int64), nothing, sums)
    return np.asarray(sums[0], np.uint32)


@njit(cache=True, nogil=True)
def _sketch(
    offsets: Ints,
    members: Ints,
    chosen: Ints,
    smallest: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> None:
    last = smallest.shape[1] - 1
    for k in range(chosen.shape[0]):
        for at in range(offsets[chosen[k]], offsets[chosen[k] + 1]):
            h = mix(np.uint64(members[at])) % MODULUS
            power = np.uint64(1)
            for j in range(sums.shape[1]):
                sums[k, j] += power
                power = power * h % MODULUS
            if h < smallest[k, last]:
                place = last
                while place > 0 and h < smallest[k, place - 1]:
                    smallest[k, place] = smallest[k, place - 1]
                    place -= 1
                smallest[k, place] = h
        for j in range(sums.shape[1]):
            sums[k, j] %= MODULUS


def reasons(
    batches: Iterable[Mapping[str, NDArray[Any]]],
    hierarchy: Hierarchy | None,
    whole: NDArray[np.uint32],
    settings: Settings,
    members: Sequence[Communities] = (),
    counted: Bools | None = None,
) -> NDArray[np.uint8]:
    """Why communities are suppressed: places in `notes`, shape (S,).

    `batches` are arrays of `prevalence_arrays` and of `Sketches`; `whole` are the power
    sums of the complete graph; `members` are those of all communities, or of the first
    ones if there are too many to test all combinations. Estimates are about the
    `counted` nodes; None: all.
    """
    exclude, minimum = settings.labelled == "exclude", settings.disclosure.min_size
    parts: list[list[NDArray[Any]]] = [[], [], [], [], []]
    for batch in batches:
        size = batch["n_estimated" if exclude else "n_nodes"]
        exposed = batch.get("n_effective", size) < minimum
        if not exclude:
            # All members are labelled and of one class.
            exposed = exposed | (batch["known"] == size[:, None]).any(axis=1)
        empty = np.isnan(batch["prevalence"]).all(axis=1)
        sketch = batch["smallest_hashes"], batch["power_sums"]
        for part, values in zip(parts, (size, exposed, empty, *sketch), strict=True):
            part.append(values)
    sizes, exposed, empty, smallest, sums = (np.concatenate(part) for part in parts)
    if minimum == 1:
        return np.zeros(len(sizes), np.uint8)
    parent = np.full(len(sizes), -1) if hierarchy is None else hierarchy.parent
    small, of = sizes < minimum, Sketches(smallest, sums)
    hidden = suppressed(sizes, small | exposed, parent, of, whole)
    complete = False
    if sum(len(each) for each in members) == len(sizes):
        of_all = _joined(members, counted)
        secret = exposed & ~small
        args = of_all, int(whole[0]), hidden, secret, minimum
        more, complete = more_suppressed(*args)
        hidden |= more
    if not complete:
        log.info(
            "not all combinations of three or more communities are checked for groups "
            "of fewer than %d nodes: there are too many (disclosure.min_size)",
            minimum,
        )
    # Where nothing is estimated, the note has another reason.
    return np.where(empty, 0, hidden + small.astype(np.uint8)).astype(np.uint8)


def _joined(members: Sequence[Communities], counted: Bools | None) -> Communities:
    """All communities, with the counted nodes alone."""
    sizes = np.concatenate([np.diff(each.offsets) for each in members])
    nodes = np.concatenate([each.members for each in members])
    if counted is not None:
        row = np.repeat(np.arange(len(sizes)), sizes)[counted[nodes]]
        sizes, nodes = np.bincount(row, minlength=len(sizes)), nodes[counted[nodes]]
    return Communities(np.concatenate([[0], np.cumsum(sizes)]), nodes)


def suppressed(
    sizes: Ints,
    small: Bools,
    parent: Ints,
    of: Sketches,
    total: NDArray[np.uint32],
) -> Bools:
    """Mark communities to suppress, so that no combination shows a few nodes.

    Combinations are differences of two communities, of a community and the complete
    graph, and of a parent (or the complete graph) and its communities.

    Parameters
    ----------
    sizes
        Nodes that each community's estimate is about, shape (S,).
    small
        Communities that are suppressed by themselves, shape (S,).
    parent
        Code of each community's parent, -1: none, shape (S,).
    of
        Sketches of the communities with m nodes or more.
    total
        Power sums of all nodes, shape (2 m - 1,).
    """
    hidden, min_size = small.copy(), of.smallest.shape[1] // 2
    rows = np.flatnonzero(sizes >= min_size)
    if not len(rows):
        return hidden
    place = np.full(len(sizes) + 1, len(rows))
    place[rows] = np.arange(len(rows))
    above, gone, n = place[parent[rows]], hidden[rows], sizes[rows]
    sums = np.vstack([of.sums, total[None]]).astype(np.int64)
    # Equal ones are all suppressed or none. Node 0, of hash 0, changes their size only.
    key = sums[:-1, 1] + (sums[:-1, 2] << 31) + ((sums[:-1, 0] & 1) << 62)
    _, first, same = np.unique(key, return_index=True, return_inverse=True)
    outside = (sums[-1, 0] - sums[:-1, 0]) % int(MODULUS)
    gone |= (outside > 0) & (outside < min_size)
    for a, b in _close_pairs(first, n, of.smallest, sums):
        if not gone[b]:
            gone[a] = True
    kept = gone = np.bincount(same, gone)[same] > 0
    before = ~gone
    while (before != gone).any():
        before, gone = gone, gone.copy()
        _complement(n, above, sums, gone, kept)
        gone = np.bincount(same, gone)[same] > 0
    hidden[rows] = gone
    return hidden


def _close_pairs(
    chosen: Ints, n: Ints, smallest: NDArray[np.uint32], sums: Ints
) -> list[tuple[int, int]]:
    """Pairs of chosen communities that differ in 1 to m - 1 nodes, the smaller first.

    Of the 2 m smallest hashes of two such communities m + 1 are in both. So they share
    one of the m that are in the fewest communities.
    """
    width = smallest.shape[1]
    m = width // 2
    values, code, counts = np.unique(
        smallest[chosen], return_inverse=True, return_counts=True
    )
    counts[values == EMPTY] = np.iinfo(counts.dtype).max
    rank = np.empty(len(values), np.int64)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(values))
    keys = np.sort(rank[code.reshape(-1, width)], axis=1)[:, :m].ravel()
    owner = np.repeat(chosen, m)
    order = np.lexsort((owner, n[owner], keys))
    keys, owner = keys[order], owner[order]
    at, step, pairs = np.arange(len(keys)), 0, []
    while len(at):
        step += 1
        at = at[at + step < len(keys)]
        a, b = owner[at], owner[at + step]
        near = (keys[at] == keys[at + step]) & (n[b] - n[a] < m)
        at, a, b = at[near], a[near], b[near]
        for part in range(0, len(at), CHUNK // width):
            i, j = (side[part : part + CHUNK // width] for side in (a, b))
            both = np.sort(np.hstack([smallest[i], smallest[j]]), axis=1)
            shared = (both[:, 1:] == both[:, :-1]) & (both[:, 1:] != EMPTY)
            needed = np.minimum(n[j], width) - (m - 1)
            likely = np.count_nonzero(shared, axis=1) >= needed
            i, j = i[likely], j[likely]
            few = _few(sums[j] - sums[i])
            pairs.append(np.stack([i[few], j[few]], axis=1))
    if not pairs:
        return []
    found = np.unique(np.concatenate(pairs), axis=0)
    found = found[np.lexsort((found[:, 1], found[:, 0], n[found[:, 0]]))]
    return [(int(a), int(b)) for a, b in found]


def _complement(n: Ints, above: Ints, sums: Ints, gone: Bools, kept: Bools) -> None:
    """Suppress more until no parent shows its suppressed communities; changes `gone`.

    None of the communities `kept` secret may be all that a parent shows.

    Where a community is suppressed, the published communities inside it take its place
    in the sum over its parent's communities. The complete graph is the last parent.
    """
    root = len(n)
    level, up = np.zeros(root, np.int64), above
    while (up < root).any():
        level += up < root
        up = np.append(above, root)[up]
    levels = [np.flatnonzero(level == k) for k in range(int(level.max()), -1, -1)]
    modulus, nothing = int(MODULUS), np.iinfo(np.int64).max
    smallest = n * root + np.arange(root)
    while True:
        inside = np.zeros_like(sums)
        candidate = np.full(root + 1, nothing)
        for rows in levels:
            shown = ~gone[rows]
            known = np.where(shown[:, None], sums[rows], inside[rows])
            np.add.at(inside, above[rows], known)
            inside[above[rows]] %= modulus
            best = np.where(shown, smallest[rows], candidate[rows])
            np.minimum.at(candidate, above[rows], best)
        # Power sums of what each parent has besides its published communities.
        left = (sums - inside) % modulus
        hidden, secret = np.append(gone, False), np.append(kept, False)
        few, rows = np.zeros(root + 1, np.bool_), np.flatnonzero(inside.any(axis=1))
        few[rows] = _few(left[rows])
        revealed = (few & ~hidden) | (secret & (few | ~left.any(axis=1)))
        large = np.flatnonzero(kept & left[:-1].any(axis=1) & ~few[:-1])
        parents = above[large]
        rest = left[parents] - left[large]
        alone = _few(rest) | ~(rest % modulus).any(axis=1)
        revealed[parents[alone]] |= ~hidden[parents[alone]]
        revealed &= candidate < nothing
        if not revealed.any():
            return
        gone[candidate[revealed] % root] = True


def _few(sums: Ints) -> Bools:
    """Whether combinations with these power sums hold 1 to m - 1 nodes."""
    m = (sums.shape[1] + 1) // 2
    modulus, few = int(MODULUS), np.zeros(len(sums), np.bool_)
    places = np.add.outer(np.arange(m), np.arange(m))
    for part in range(0, len(sums), max(CHUNK // m**2, 1)):
        matrix = (sums[part : part + max(CHUNK // m**2, 1)] % modulus)[:, places]
        every = np.arange(len(matrix))
        found = matrix.any(axis=(1, 2))
        singular = np.zeros(len(matrix), np.bool_)
        for k in range(m):
            pivot = k + np.argmax(matrix[:, k:, k] != 0, axis=1)
            matrix[every, pivot], matrix[:, k] = matrix[:, k], matrix[every, pivot]
            row = matrix[:, k, None, k:]
            singular |= row[:, 0, 0] == 0
            below = matrix[:, k + 1 :, k:]
            # Without division: below * pivot - first of below * row.
            below[:] = (below * row[:, :, :1] - below[:, :, :1] * row) % modulus
        few[part : part + len(matrix)] = singular & found
    return few
