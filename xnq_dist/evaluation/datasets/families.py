"""Families of similar graphs, which must not be used to tune constants for each other.

Graphs of a family are similar (Twitch networks of several countries, two tasks on one
citation graph). The error on a graph is too optimistic if a constant was chosen on
another graph of its family, so evaluations leave out complete families.
"""

from __future__ import annotations

import json
from pathlib import Path

from xnq_dist.core.errors import InputError

__all__ = ["family_of"]

FAMILIES = ("cora", "facebook100", "twitch")
"""Names of families, whose graphs are named FAMILY or FAMILY-..."""


def family_of(name: str, folder: Path) -> str:
    """The family of a graph or task; its name if it belongs to no family.

    Parameters
    ----------
    name
        Name of the task or of its folder.
    folder
        Folder of the graph; ``family`` in its ``meta.json`` has precedence.

    Raises
    ------
    InputError
        When ``meta.json`` is not JSON, or its ``family`` is not a text.

    Examples
    --------
    >>> family_of("twitch-engb", Path("twitch-engb"))
    'twitch'
    >>> family_of("minesweeper", Path("minesweeper"))
    'minesweeper'
    """
    meta = folder / "meta.json"
    if meta.is_file():
        try:
            declared = json.loads(meta.read_text(encoding="utf-8")).get("family") or ""
        except (ValueError, AttributeError):
            declared = None
        if not isinstance(declared, str):
            raise InputError(
                f'{meta} must be a JSON object in which "family", if it is there, is '
                "the name of the family of graphs as text: repair it or remove it"
            )
        if declared:
            return declared
    first = name.partition("-")[0]
    return first if first in FAMILIES else name
