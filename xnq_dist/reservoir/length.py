"""The number of supersteps, from the settings or from the graph's effective diameter.

After L supersteps a state depends on the nodes within L steps of its node. 90 % of the
pairs lie within the effective diameter; `EXTRA` more steps let the states settle.

References
----------
M. E. J. Newman, S. H. Strogatz, D. J. Watts, "Random graphs with arbitrary degree
distributions and their applications", Physical Review E 64, 2001 (distances in random
graphs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.errors import StageError
from xnq_dist.core.settings import Settings
from xnq_dist.graph.distances import MAX_STEPS, SHARE

__all__ = ["MAX_STEPS", "expected_diameter", "length_of", "number_of_supersteps"]

EXTRA = 2


def length_of(diameter: int) -> int:
    """Supersteps for a graph of this effective diameter.

    Examples
    --------
    >>> [length_of(diameter) for diameter in (1, 9, 400)]
    [3, 11, 30]
    """
    return min(diameter + EXTRA, MAX_STEPS)


def expected_diameter(nodes: int, edges: int) -> int:
    """Effective diameter of a random graph with as many nodes and directed edges.

    Of n nodes with mean degree k, a share of 1 - exp(-k^d / n) lies within d steps.

    Examples
    --------
    >>> [expected_diameter(1_000_000, edges) for edges in (10**6, 10**7, 10**8)]
    [30, 7, 4]
    """
    degree = edges / nodes
    if degree <= 1:
        return MAX_STEPS
    reached = -math.log(1 - SHARE) * nodes
    return min(MAX_STEPS, math.ceil(math.log(reached) / math.log(degree)))


def number_of_supersteps(settings: Settings, facts: Mapping[str, Any]) -> int:
    """The supersteps as set, or for the graph with these facts."""
    wanted = settings.reservoir.supersteps
    if wanted != "auto":
        return wanted
    diameter = facts.get("effective_diameter")
    if diameter is None:
        raise StageError(
            "reservoir.supersteps = auto needs the graph's effective diameter, which "
            "was not computed: run again with --overwrite"
        )
    return length_of(int(diameter))
