"""Edge lists: two or three columns, with the comments of SNAP and KONECT."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.convert import Converted
from xnq_dist.convert.text_lines import blocks_of
from xnq_dist.core.errors import InputError
from xnq_dist.graph.formats.sniffing import compression_of

__all__ = ["ids_of", "matches", "read"]


MARKS = "#%"
WEIGHTS = ("weight", "weights", "w", "value", "count", "multiplicity")
"""Names of a third column of weights."""
SOURCES = ("source", "src", "from", "fromnodeid", "u", "node1", "node_1", "id1")
"""Names of a first column of nodes."""


def matches(path: Path, head: bytes) -> bool:
    """Text whose lines have as many fields each, from 2 to 4, or comments in front."""
    binary = b"\0" in head and compression_of(head) == "none"
    if binary or not path.is_file():
        return False
    block = next(blocks_of(path, MARKS), None)
    if block is None or not len(block.lines):
        return False
    fields = _fields(block.lines.slice(0, 100))
    names = _header(fields, [])
    counts = set(pc.list_value_length(fields).to_pylist())
    ends = not names or names[0].lower() in SOURCES  # else a table of nodes
    return ends and len(counts) == 1 and counts <= {2, 3, 4}


def read(path: Path) -> Converted:
    """Read the edges; the nodes are those that have one."""
    comments: list[str] = []
    columns: list[list[pa.Array]] = []
    names: list[str] = []
    for block in blocks_of(path, MARKS):
        comments += block.comments if not columns else []
        if not len(block.lines):
            continue
        fields = _fields(block.lines)
        if not columns:
            names = _header(fields, comments)
            width = len(fields[0])
            if width < 2:
                raise ValueError(f"line {block.numbers[0]:,} has one field")
            columns = [[] for _ in range(width)]
        counts = pc.list_value_length(fields).to_numpy()
        wrong = np.flatnonzero(counts != len(columns))
        if len(wrong):
            raise InputError(
                f"{path} has {counts[wrong[0]]} fields in line "
                f"{block.numbers[wrong[0]]:,} and {len(columns)} in the first: correct "
                "the line"
            )
        flat = fields.flatten()
        for place, column in enumerate(columns):
            places = pa.array(np.arange(place, len(flat), len(columns)))
            column.append(flat.take(places))
    if not columns:
        raise ValueError("it has no edges")
    if names and columns[0][0][0].as_py() == names[0]:
        columns = [[column[0].slice(1), *column[1:]] for column in columns]
    return _converted(
        path, [pa.chunked_array(each) for each in columns], names, comments
    )


def _fields(lines: pa.Array) -> pa.ListArray:
    """Lists of the fields, separated by what the first line has."""
    first = lines[0].as_py()
    for separator in (",", ";"):
        if separator in first:
            fields = pc.split_pattern(lines, separator)
            trimmed = pc.utf8_trim(fields.flatten(), ' "\t')
            return pa.ListArray.from_arrays(fields.offsets, trimmed)
    return pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lines))


def _header(fields: pa.ListArray, comments: list[str]) -> list[str]:
    """Names of the columns in the first line or the last comment; [] if none."""
    first = fields[0].as_py()
    if len(fields) > 1 and not _numeric(first) and _numeric(fields[1].as_py()):
        return [str(name) for name in first]
    if first[0].lower() in SOURCES:
        return [str(name) for name in first]
    last = re.split(r"[\s,;]+", comments[-1].lstrip(MARKS).strip()) if comments else []
    return last if len(last) == len(first) and not _numeric(last) else []


def _numeric(fields: list[str]) -> bool:
    return all(re.fullmatch(r"-?\d+", field) for field in fields[:2])


def _converted(
    path: Path, columns: list[pa.ChunkedArray], names: list[str], comments: list[str]
) -> Converted:
    directed = _direction(path, comments)
    ids = ids_of(pa.chunked_array([*columns[0].chunks, *columns[1].chunks]))
    edges = len(columns[0])
    table = {"src": ids.slice(0, edges), "dst": ids.slice(edges)}
    notes = []
    left = names[3:] or [f"column {place + 1}" for place in range(3, len(columns))]
    if len(columns) > 2:
        if not names or names[2].lower() in WEIGHTS:
            table["weight"] = columns[2].cast(pa.float64())
            notes.append("the third column is the weight")
        else:
            left.insert(0, names[2])
    if left:
        notes.append(f"left out: {', '.join(left)}")
    nodes = ids.unique().sort()
    return Converted(
        pa.table({"node_id": nodes}),
        pa.table(table),
        directed,
        notes=tuple(notes),
    )


def _direction(path: Path, comments: list[str]) -> bool | None:
    """Whether edges have a direction, by SNAP's words or KONECT's first line."""
    head = " ".join(comments)
    konect = re.match(r"%\s*(sym|asym|bip)\b", head)
    if konect is None:
        snap = re.search(r"\b(un)?directed graph", head, re.IGNORECASE)
        return None if snap is None else snap[1] is None
    if konect[1] == "bip":
        raise InputError(
            f"{path} is bipartite: its two columns name two sets of nodes, and "
            "xnq-dist takes one; write ids that differ between the sets, without the "
            "line of comments"
        )
    return konect[1] == "asym"


def ids_of(texts: pa.ChunkedArray) -> pa.Array:
    """Node ids as int64 if all texts are those of integers, else the texts."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts
    return numbers if numbers.cast(pa.string()).equals(texts) else texts
