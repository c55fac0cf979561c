"""Families of similar graphs, which must not be used to tune constants for each other.

Graphs of a family are similar (Twitch networks of several countries, two tasks on one
citation graph). The error on a graph is too optimistic if a constant was chosen on
another graph of its family, so evaluations leave out complete families.
"""

from __future__ import annotations

__all__ = ["family_of"]

FAMILIES = ("cora", "facebook100", "twitch")
"""Names of families, whose graphs are named FAMILY or FAMILY-..."""


def family_of(name: str) -> str:
    """The family of a graph or task of this name; the name if it has no family.

    Examples
    --------
    >>> family_of("twitch-engb"), family_of("minesweeper")
    ('twitch', 'minesweeper')
    """
    first = name.partition("-")[0]
    return first if first in FAMILIES else name
