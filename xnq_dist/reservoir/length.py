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

from xnq_dist.core.settings import Settings
from xnq_dist.graph.distances import MAX_STEPS, SHARE

__all__ = ["MAX_STEPS", "expected_diameter", "number_of_supersteps"]

EXTRA = 2


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


def number_of_supersteps(settings: Settings, diameter: int | None) -> int:
    """The supersteps as set, or for a graph of this effective diameter.

    None: it is not known yet, and the maximum is returned. The stage ``graph`` measures
    it if the settings ask for it.
    """
    wanted = settings.reservoir.supersteps
    if wanted != "auto":
        return wanted
    return MAX_STEPS if diameter is None else min(diameter + EXTRA, MAX_STEPS)
