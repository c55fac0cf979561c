"""Communities of a real graph for evaluations: Leiden, regions, groups, samples.

They depend on the graph only and are the same for every method and share of labels,
except samples by class, which are drawn using the labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order

from xnq_dist.core.arrays import Bools, Ints, Ints32, offsets_of
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.groups.leiden import leiden
from xnq_dist.quantify.interface import Communities

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "DECLARED",
    "KINDS",
    "REGIONS",
    "SAMPLES",
    "by_kind",
    "communities_of",
    "draw_attributes",
    "draw_regions",
    "draw_samples_by_class",
]

REGIONS = ("leiden", "bfs", "walk", "followers", "random", "whole", "unions")
"""Kinds that depend on the graph only."""
DECLARED = "app"
"""Samples of unlabelled nodes by class, of `SAMPLE` nodes each, declared to `auto`."""
SAMPLES = (DECLARED, "by-class")
"""Kinds of samples drawn by class; the second are of all nodes, of `MIN_SIZE` to
`SAMPLE` nodes, and not declared."""
KINDS = (*REGIONS, "attribute", "given", *SAMPLES)
"""All kinds: ``attribute`` by deciles of features, ``given`` by a memberships table."""
RESOLUTIONS = (1.0, 3.0, 10.0)
"""Leiden resolutions of the kind ``leiden``."""
UNION_RESOLUTION = 3.0
"""Leiden resolution of the communities in ``unions``."""
UNION_SIZES = (2, 10)
"""Numbers of communities in a union."""
COUNT = 100
"""Maximum number of sets of a kind."""
MIN_SIZE, MAX_SIZE = 50, 500
"""Sizes of a region or a random set, in nodes."""
MIN_FOLLOWERS = 20
RESTART = 0.1
"""Probability that a walk restarts at a step."""
TRIES = 50
"""Maximum number of tries per set."""
FEATURES = 10
"""Number of features whose deciles are groups."""
MIN_GROUP = 20
"""Minimum number of nodes of such a group; the maximum is half of all."""
MAX_KINDS = 10
"""Maximum number of kinds in one memberships table."""
SAMPLE = 500
"""Maximum number of nodes drawn for a sample by class."""
REPEATS = 5
"""Number of samples per prevalence."""
PREVALENCES = 21


def communities_of(assignment: Ints) -> Communities:
    """Make communities 0, 1, ... from the community of every node, shape (N,).

    Examples
    --------
    >>> communities_of(np.array([1, 0, 1])).members.tolist()
    [1, 0, 2]
    """
    offsets = offsets_of(np.bincount(assignment))
    return Communities(offsets, np.argsort(assignment, kind="stable"))


def draw_regions(
    kind: str, adjacency: csr_array[Any], seed: int
) -> dict[str, Communities]:
    """Draw the communities of a kind in `REGIONS`.

    Row v of the adjacency, shape (N, N), holds the in-neighbours of node v. Returns
    communities by name: the kind, with a resolution or union size if there are several.
    """
    n_nodes = adjacency.shape[0]
    if kind == "leiden":
        return {
            f"leiden {resolution:g}": communities_of(
                leiden(adjacency, resolution, seed)
            )
            for resolution in RESOLUTIONS
        }
    if kind == "whole":
        return {kind: Communities.of([np.arange(n_nodes)])}
    if kind == "unions":
        return _unions(leiden(adjacency, UNION_RESOLUTION, seed), seed)
    random = stream(seed, Purpose.REGIONS, REGIONS.index(kind))
    sets = []
    for _ in range(COUNT * TRIES):
        start = int(random.integers(n_nodes))
        size = int(random.integers(MIN_SIZE, MAX_SIZE + 1))
        members = _region(kind, adjacency, start, size, random)
        if len(members) >= (MIN_FOLLOWERS if kind == "followers" else MIN_SIZE):
            sets.append(np.sort(members))
        if len(sets) == COUNT:
            break
    return {kind: Communities.of(sets)} if sets else {}


def _region(
    kind: str,
    adjacency: csr_array[Any],
    start: int,
    size: int,
    random: np.random.Generator,
) -> Ints:
    """A region of at most `size` nodes; followers are all neighbours of the start."""

    def neighbours(node: int) -> Ints:
        ends = adjacency.indptr[node : node + 2]
        return np.asarray(adjacency.indices[slice(*ends)], np.int64)

    if kind == "bfs":
        order = breadth_first_order(adjacency, start, return_predecessors=False)
        return order[:size].astype(np.int64)
    if kind == "followers":
        near = neighbours(start)
        return np.unique(near[near != start])
    if kind == "random":
        # A set larger than the graph is not drawn.
        size = size if size <= adjacency.shape[0] else 0
        return random.choice(adjacency.shape[0], size, replace=False)
    # Nodes that a random walk with restarts visits.
    seen, at = {start}, start
    for _ in range(20 * size):
        near = neighbours(at)
        back = not len(near) or random.random() < RESTART
        at = start if back else int(near[random.integers(len(near))])
        seen.add(at)
        if len(seen) == size:
            break
    return np.array(list(seen))


def _unions(assignment: Ints, seed: int) -> dict[str, Communities]:
    """Unions of random communities, in which common errors do not average out."""
    random = stream(seed, Purpose.REGIONS, REGIONS.index("unions"))
    number = int(assignment.max(initial=-1)) + 1
    unions = {}
    for size in UNION_SIZES:
        if size < number:
            drawn = [random.choice(number, size, replace=False) for _ in range(COUNT)]
            sets = [np.flatnonzero(np.isin(assignment, names)) for names in drawn]
            unions[f"unions of {size}"] = Communities.of(sets)
    return unions


def draw_attributes(features: NDArray[np.floating], seed: int) -> Communities:
    """Groups by deciles of random features, shape (N, F); for flags, nodes with it."""
    n_nodes, n_features = features.shape
    random = stream(seed, Purpose.REGIONS, len(KINDS))
    sets: list[Ints] = []
    used = 0
    for column in random.permutation(n_features).tolist():
        values = features[:, column]
        ends = np.unique(np.quantile(values, np.arange(1, 10) / 10, method="lower"))
        group = np.searchsorted(ends, values, side="left")
        # The most frequent value of a flag or a sparse feature does not form a group.
        groups = [np.flatnonzero(group == k) for k in range(len(ends) + 1)]
        chosen = [g for g in groups if MIN_GROUP <= len(g) <= n_nodes / 2]
        sets += chosen
        used += bool(chosen)
        if used == FEATURES:
            break
    return Communities.of(sets)


def by_kind(names: Sequence[str], sets: list[Ints]) -> dict[str, Communities]:
    """Divide communities with these members into kinds by their names' first word.

    Kinds are named ``given dorm``, ...; there is one kind ``given`` unless all names
    begin with one of a few words, followed by a space.

    Examples
    --------
    >>> sets = [np.array([0]), np.array([1]), np.array([2])]
    >>> list(by_kind(["dorm 1", "year 2005", "dorm 2"], sets))
    ['given dorm', 'given year']
    """
    kinds: dict[str, list[Ints]] = defaultdict(list)
    for name, members in zip(names, sets, strict=True):
        word, _, rest = name.partition(" ")
        kinds[word if rest else ""].append(members)
    several = 1 < len(kinds) <= MAX_KINDS and 2 * len(kinds) <= len(names) + 1
    if not several or "" in kinds:
        return {"given": Communities.of(sets)}
    return {f"given {kind}": Communities.of(members) for kind, members in kinds.items()}


def draw_samples_by_class(
    truth: Ints32,
    n_classes: int,
    drawn: Bools,
    smallest: int,
    seed: int,
) -> Communities:
    """Draw samples by class from the nodes where `drawn`, shape (N,), is true.

    For two classes, there are `REPEATS` samples for each of 21 prevalences; for more,
    as many with prevalences uniform on the simplex. Sizes are uniform from `smallest`
    to `SAMPLE`. A node is in a sample at most once.
    """
    random = stream(seed, Purpose.REGIONS, len(KINDS) + 1, smallest)
    nodes = [np.flatnonzero(drawn & (truth == code)) for code in range(n_classes)]
    sets = []
    for k in range(PREVALENCES * REPEATS):
        if n_classes == 2:
            positive = (k % PREVALENCES) / (PREVALENCES - 1)
            shares = np.array([1 - positive, positive])
        else:
            shares = random.dirichlet(np.ones(n_classes))
        counts = random.multinomial(random.integers(smallest, SAMPLE + 1), shares)
        members = [
            random.choice(of_class, count)
            for of_class, count in zip(nodes, counts, strict=True)
            if len(of_class)
        ]
        sets.append(np.unique(np.concatenate(members)))
    return Communities.of(sets)
