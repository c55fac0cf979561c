"""How many supersteps: as set, or as far as the graph's nodes are apart.

After L supersteps a state has seen what lies within L steps of its node. Beyond the
distance within which 90 % of the pairs lie there is nothing new to see; `BEYOND` more
steps let what has arrived settle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xnq_dist.core.config import Settings
from xnq_dist.core.errors import StageError
from xnq_dist.graph.distances import MOST_STEPS as MOST

__all__ = ["MOST", "length_of", "with_length"]

BEYOND = 2


def length_of(diameter: int) -> int:
    """Supersteps for a graph of this effective diameter.

    Examples
    --------
    >>> [length_of(diameter) for diameter in (1, 9, 400)]
    [3, 11, 30]
    """
    return min(diameter + BEYOND, MOST)


def with_length(settings: Settings, facts: Mapping[str, Any]) -> Settings:
    """The settings with a number for `reservoir.supersteps`; `facts` of the graph."""
    if settings.reservoir.supersteps != "auto":
        return settings
    diameter = facts.get("effective_diameter")
    if diameter is None:
        raise StageError(
            "the graph was read without its distances, which reservoir.supersteps = "
            "auto needs: run again with --overwrite"
        )
    reservoir = settings.reservoir.model_copy(
        update={"supersteps": length_of(int(diameter))}
    )
    return settings.model_copy(update={"reservoir": reservoir})
