"""Communities of a real graph to evaluate on: detected, ego networks, regions, samples.

All are drawn from the graph alone, the same for every method and share of labels; only
samples need the labels, which they are drawn by.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.errors import SettingsError
from xnq_dist.quantify.interface import Communities
from xnq_dist.quantify.leiden import leiden

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["FAMILIES", "REGIONS", "communities_of", "draw_regions", "joined"]

PURPOSE = 511
"""Key of the random streams that draw regions."""
REGIONS = ("leiden", "bfs", "ego", "walk")
"""Families that the graph alone makes."""
FAMILIES = (*REGIONS, "given", "app", "app+labels")
"""All: ``given`` by a memberships table, and samples drawn by class, without and with
labelled nodes among them."""
RESOLUTIONS = (1.0, 3.0, 10.0)
COUNT = 100
"""Regions of a family."""
LEAST, MOST = 50, 500
"""Nodes of a region."""
LEAST_DEGREE = 20
"""Of the middle of an ego network."""
RESTART = 0.1
TRIES = 50


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


def draw_regions(
    family: str, adjacency: csr_array[Any], seed: int
) -> dict[str, Communities]:
    """The communities of a family, by its name or, for Leiden, by resolution.

    Parameters
    ----------
    family
        One of `REGIONS`.
    adjacency
        Row v holds the in-neighbours of node v, shape (N, N).
    seed
        Of the random streams.

    Raises
    ------
    SettingsError
        For a name that is none of `REGIONS`.
    """
    if family == "leiden":
        found = {}
        for resolution in RESOLUTIONS:
            assignment = leiden(adjacency, resolution, seed)
            found[f"leiden {resolution:g}"] = communities_of(assignment)
        return found
    if family not in REGIONS:
        raise SettingsError(
            f"there are no communities {family!r}: choose of {', '.join(FAMILIES)}"
        )
    key = np.random.SeedSequence(seed, spawn_key=(PURPOSE, REGIONS.index(family)))
    random = np.random.Generator(np.random.Philox(key))
    draw = {"bfs": _bfs, "ego": _ego, "walk": _walk}[family]
    n_nodes = adjacency.shape[0]
    sets = []
    for _ in range(COUNT * TRIES):
        middle = int(random.integers(n_nodes))
        members = draw(adjacency, middle, int(random.integers(LEAST, MOST + 1)), random)
        if members is not None:
            sets.append(np.sort(members))
        if len(sets) == COUNT:
            break
    return {family: joined(sets)} if sets else {}


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


def _ego(
    adjacency: csr_array[Any], middle: int, size: int, random: np.random.Generator
) -> NDArray[np.int64] | None:
    """A node with all its neighbours."""
    near = _neighbours(adjacency, middle)
    return np.unique(np.append(near, middle)) if len(near) >= LEAST_DEGREE else None


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
