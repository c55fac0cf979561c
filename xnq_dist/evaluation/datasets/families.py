"""Families of graphs: what a constant must not be tuned on when a graph is judged.

Graphs of one family are alike (the Twitch networks of several countries, two tasks on
one citation graph): a constant chosen on one of them says nothing about how it does on
a graph that nobody tuned on. Tables of an evaluation leave a whole family out.
"""

from __future__ import annotations

import json
from pathlib import Path

from xnq_dist.core.errors import InputError

__all__ = ["family_of"]

FAMILIES = ("cora", "facebook100", "twitch")
"""Names of families whose graphs are called FAMILY or FAMILY-..."""


def family_of(name: str, folder: Path | None = None) -> str:
    """The family of a graph or task; its own name where nothing declares one.

    Parameters
    ----------
    name
        Of the task or of its folder.
    folder
        Folder of the graph: ``family`` in its ``meta.json`` comes first.

    Raises
    ------
    InputError
        When ``meta.json`` is not JSON, or its ``family`` is not a text.

    Examples
    --------
    >>> family_of("twitch-engb"), family_of("cora-multi"), family_of("minesweeper")
    ('twitch', 'cora', 'minesweeper')
    """
    meta = None if folder is None else folder / "meta.json"
    if meta is not None and meta.is_file():
        try:
            declared = json.loads(meta.read_text(encoding="utf-8")).get("family")
        except (ValueError, AttributeError) as error:
            raise InputError(
                f"{meta} is not a JSON object: repair it or remove it"
            ) from error
        if declared is not None:
            if not isinstance(declared, str) or not declared:
                raise InputError(
                    f'{meta}: "family" is {declared!r}: give the name of the family of '
                    "graphs as text, or remove the entry"
                )
            return declared
    first = name.partition("-")[0]
    return first if first in FAMILIES else name
