"""Conversion of graphs in other formats to the tables that `run` reads.

A format is one module with ``RECORDS`` (`core.records`) and two functions.
``matches(path, head)`` says whether a file with these first bytes, or a folder (`head`
is empty), looks like the format; ``read(path)`` returns a `Converted`. Errors of
libraries on a damaged file become an `InputError` with the record's `title` and `hint`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from xnq_dist.core import records

__all__ = ["FORMATS", "Converted", "GraphFormat"]


@dataclass(frozen=True, kw_only=True)
class GraphFormat(records.PartRecord):
    """One format; `title` completes "FILE is not ..."."""

    hint: str
    """What to do with a file that cannot be read."""


FORMATS = records.Registry("format", GraphFormat, {__name__: Path(__file__).parent})


@dataclass(frozen=True)
class Converted:
    """A graph as tables, in the memory of one process."""

    nodes: pa.Table
    """``node_id``, one row per node, and what the file has on nodes: ``features``,
    ``label`` or columns with the file's names."""
    edges: pa.Table
    """``src``, ``dst`` and ``weight`` where the file has weights."""
    directed: bool | None
    """Whether edges have a direction; None: the file does not say so."""
    splits: pa.Table | None = None
    """``node_id``, ``fold`` and ``role``, if the file has masks."""
    notes: tuple[str, ...] = ()
    """What was decided and left out, for the user."""
