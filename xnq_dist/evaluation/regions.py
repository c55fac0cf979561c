"""Communities of a real graph to evaluate on: its own, regions, groups, samples.

All are drawn from the graph alone, the same for every method and share of labels; only
samples by class need the labels, which they are drawn by.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.groups.leiden import leiden
from xnq_dist.quantify.interface import Communities

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "KINDS",
    "REGIONS",
    "SAMPLES",
    "by_kind",
    "class_counts_in",
    "communities_of",
    "draw_attributes",
    "draw_regions",
    "draw_samples_by_class",
    "joined",
    "only",
]

REGIONS = ("leiden", "bfs", "walk", "followers", "random", "whole", "unions")
"""Kinds that the graph alone makes."""
SAMPLES = {"app": 0, "app+labels": 25}
"""Samples drawn by class, and the labelled nodes among their members."""
KINDS = (*REGIONS, "attribute", "given", *SAMPLES)
"""All: ``attribute`` by deciles of features, ``given`` by a memberships table."""
RESOLUTIONS = (1.0, 3.0, 10.0)
UNITED = 3.0
"""Resolution of the communities that ``unions`` are made of."""
TOGETHER = (2, 10)
"""Communities in a union."""
COUNT = 100
"""Sets of a kind."""
LEAST, MOST = 50, 500
"""Nodes of a region or of a random set."""
LEAST_FOLLOWERS = 20
RESTART = 0.1
TRIES = 50
FEATURES = 10
"""Features whose deciles are groups."""
LEAST_GROUP = 20
"""Nodes of such a group; at most half of all."""
MOST_KINDS = 10
"""Kinds in one memberships table."""
SAMPLE = 500
REPEATS = 5
"""Samples a prevalence."""
PREVALENCES = 21


def joined(sets: list[NDArray[np.int64]]) -> Communities:
    """Communities of sets of nodes."""
    sizes = np.array([len(members) for members in sets], np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = np.concatenate([np.empty(0, np.int64), *sets])
    return Communities(offsets, flat)


def communities_of(assignment: NDArray[np.int64]) -> Communities:
    """Communities 0, 1, ... of an assignment of every node, shape (N,).

    Examples
    --------
    >>> communities_of(np.array([1, 0, 1])).members.tolist()
    [1, 0, 2]
    """
    sizes = np.bincount(assignment)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Communities(offsets, np.argsort(assignment, kind="stable"))


def class_counts_in(
    sets: Communities, codes: NDArray[np.integer], n_classes: int
) -> NDArray[np.int64]:
    """Members of each class, those with a code below 0 left out, shape (S, C)."""
    community = np.repeat(np.arange(len(sets)), np.diff(sets.offsets))
    code = codes[sets.members]
    cells = (community * n_classes + code)[code >= 0]
    counts = np.bincount(cells, minlength=len(sets) * n_classes)
    return counts.reshape(len(sets), n_classes).astype(np.int64)


def only(sets: Communities, kept: NDArray[np.bool_]) -> Communities:
    """The sets without the nodes that are not kept, shape (N,)."""
    inside = kept[sets.members]
    before = np.concatenate([[0], np.cumsum(inside)])
    return Communities(before[sets.offsets].astype(np.int64), sets.members[inside])


def draw_regions(
    kind: str, adjacency: csr_array[Any], seed: int
) -> dict[str, Communities]:
    """The communities of a kind (of `REGIONS`), by its name, resolution or number.

    Row v of the adjacency holds the in-neighbours of node v, shape (N, N).
    """
    n_nodes = adjacency.shape[0]
    if kind == "leiden":
        found = {}
        for resolution in RESOLUTIONS:
            assignment = leiden(adjacency, resolution, seed)
            found[f"leiden {resolution:g}"] = communities_of(assignment)
        return found
    if kind == "whole":
        return {kind: joined([np.arange(n_nodes)])}
    if kind == "unions":
        return _unions(leiden(adjacency, UNITED, seed), seed)
    draws = {"bfs": _bfs, "walk": _walk, "followers": _followers, "random": _scattered}
    random = stream(seed, Purpose.REGIONS, REGIONS.index(kind))
    sets = []
    for _ in range(COUNT * TRIES):
        middle = int(random.integers(n_nodes))
        size = int(random.integers(LEAST, MOST + 1))
        members = draws[kind](adjacency, middle, size, random)
        if members is not None:
            sets.append(np.sort(members))
        if len(sets) == COUNT:
            break
    return {kind: joined(sets)} if sets else {}


def _unions(assignment: NDArray[np.int64], seed: int) -> dict[str, Communities]:
    """Random communities taken together: errors that they share do not average out."""
    random = stream(seed, Purpose.REGIONS, REGIONS.index("unions"))
    number = int(assignment.max(initial=-1)) + 1
    found = {}
    for size in TOGETHER:
        if size < number:
            drawn = [random.choice(number, size, replace=False) for _ in range(COUNT)]
            sets = [np.flatnonzero(np.isin(assignment, some)) for some in drawn]
            found[f"unions of {size}"] = joined(sets)
    return found


def _neighbours(adjacency: csr_array[Any], node: int) -> NDArray[np.int64]:
    return np.asarray(
        adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]], np.int64
    )


def _bfs(
    adjacency: csr_array[Any], middle: int, size: int, random: np.random.Generator
) -> NDArray[np.int64] | None:
    """The first nodes of a breadth-first search."""
    seen, waiting = {middle}, deque([middle])
    while waiting and len(seen) < size:
        for node in _neighbours(adjacency, waiting.popleft()).tolist():
            if node not in seen and len(seen) < size:
                seen.add(node)
                waiting.append(node)
    return np.array(list(seen)) if len(seen) >= LEAST else None


def _followers(
    adjacency: csr_array[Any], middle: int, size: int, random: np.random.Generator
) -> NDArray[np.int64] | None:
    """All neighbours of a node, without the node."""
    near = _neighbours(adjacency, middle)
    near = np.unique(near[near != middle])
    return near if len(near) >= LEAST_FOLLOWERS else None


def _scattered(
    adjacency: csr_array[Any], middle: int, size: int, random: np.random.Generator
) -> NDArray[np.int64] | None:
    """Any nodes."""
    n_nodes = adjacency.shape[0]
    return random.choice(n_nodes, size, replace=False) if size <= n_nodes else None


def _walk(
    adjacency: csr_array[Any], middle: int, size: int, random: np.random.Generator
) -> NDArray[np.int64] | None:
    """Nodes that a random walk with restarts comes by."""
    seen, at = {middle}, middle
    for _ in range(20 * size):
        near = _neighbours(adjacency, at)
        back = not len(near) or random.random() < RESTART
        at = middle if back else int(near[random.integers(len(near))])
        seen.add(at)
        if len(seen) == size:
            break
    return np.array(list(seen)) if len(seen) >= LEAST else None


def draw_attributes(features: NDArray[np.floating], seed: int) -> Communities:
    """Groups by deciles of random features (N, F); of a flag, those who have it."""
    n_nodes, n_features = features.shape
    random = stream(seed, Purpose.REGIONS, len(KINDS))
    sets: list[NDArray[np.int64]] = []
    used = 0
    for column in random.permutation(n_features).tolist():
        values = features[:, column]
        ends = np.unique(np.quantile(values, np.arange(1, 10) / 10, method="lower"))
        group = np.searchsorted(ends, values, side="left")
        # The most frequent value of a flag or of a sparse feature is no group.
        groups = [np.flatnonzero(group == k) for k in range(len(ends) + 1)]
        large = [g for g in groups if LEAST_GROUP <= len(g) <= n_nodes / 2]
        sets += large
        used += bool(large)
        if used == FEATURES:
            break
    return joined(sets)


def by_kind(names: Sequence[str], sets: Communities) -> dict[str, Communities]:
    """Given communities by kind: the word that all names of a kind begin with.

    Kinds are ``given dorm``, ...; ``given`` alone where the names do not all begin with
    one of a few words, each followed by a blank.

    Examples
    --------
    >>> sets = joined([np.array([0]), np.array([1]), np.array([2])])
    >>> list(by_kind(["dorm 1", "year 2005", "dorm 2"], sets))
    ['given dorm', 'given year']
    """
    words = [name.partition(" ") for name in names]
    kinds = dict.fromkeys(word for word, _, rest in words if rest)
    several = 1 < len(kinds) <= MOST_KINDS and 2 * len(kinds) <= len(names) + 1
    if not several or not all(rest for *_, rest in words):
        return {"given": sets}
    parts = np.split(sets.members, sets.offsets[1:-1])
    return {
        f"given {kind}": joined(
            [
                part
                for part, (word, *_) in zip(parts, words, strict=True)
                if word == kind
            ]
        )
        for kind in kinds
    }


def draw_samples_by_class(
    truth: NDArray[np.int32],
    labels: NDArray[np.int32],
    n_classes: int,
    among: int,
    seed: int,
) -> Communities:
    """Samples of unlabelled nodes by class, with so many labelled ones among them.

    Two classes: `REPEATS` samples for each of 21 prevalences; more: as many, uniform on
    the simplex. A node is in a sample once. ``labels`` are those of ``truth`` that are
    known, -1 elsewhere, shape (N,).
    """
    random = stream(seed, Purpose.REGIONS, len(KINDS) + 1, among)
    free, known = labels < 0, labels >= 0
    sets = []
    for k in range(PREVALENCES * REPEATS):
        if n_classes == 2:
            positive = (k % PREVALENCES) / (PREVALENCES - 1)
            shares = np.array([1 - positive, positive])
        else:
            shares = random.dirichlet(np.ones(n_classes))
        members = []
        for size, pool in ((SAMPLE, free), (among, known)):
            for code, count in enumerate(random.multinomial(size, shares).tolist()):
                nodes = np.flatnonzero(pool & (truth == code))
                if len(nodes):
                    members.append(random.choice(nodes, count))
        sets.append(np.unique(np.concatenate(members)))
    return joined(sets)
