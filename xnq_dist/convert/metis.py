"""METIS graph files: a header, then the neighbours of one node in each line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.convert import Converted, GraphFormat
from xnq_dist.convert.reading import check_memory
from xnq_dist.convert.text_lines import blocks_of
from xnq_dist.core.errors import InputError

__all__ = ["RECORDS", "matches", "read"]

RECORDS = (
    GraphFormat(
        name="metis",
        title="a METIS graph file",
        text="METIS graph file (.graph, .metis)",
        rank=7,
        hint="check it with METIS's graphchk",
    ),
)

ENDINGS = (".graph", ".metis")


def matches(path: Path, head: bytes) -> bool:
    """A file with METIS's ending."""
    stem = path.name.removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")
    return path.is_file() and stem.endswith(ENDINGS)


@dataclass(frozen=True)
class _Header:
    """The first line: nodes, edges, and what precedes and follows the neighbours."""

    nodes: int
    edges: int
    before: int
    """Numbers in front of the neighbours: size and weights of the node."""
    weighted: bool
    """Whether every neighbour is followed by the weight of the edge."""

    @staticmethod
    def of(line: str, path: Path) -> _Header:
        words = line.split()
        if not 2 <= len(words) <= 4 or not all(word.isdecimal() for word in words):
            raise InputError(
                f"{path} begins with {line[:40]!r}, not with the numbers of nodes and "
                "edges of a METIS graph file: check that it is the right file"
            )
        nodes, edges = int(words[0]), int(words[1])
        size, node, edge = list((words[2] if len(words) > 2 else "0").zfill(3)[-3:])
        constraints = int(words[3]) if len(words) > 3 else 1
        before = int(size == "1") + (constraints if node == "1" else 0)
        return _Header(nodes, edges, before, edge == "1")


def read(path: Path) -> Converted:
    """Read the graph; nodes are numbered from 1, as in the file."""
    header: _Header | None = None
    found: list[NDArray[np.int64]] = []
    node = 0
    for block in blocks_of(path, "%"):
        lines, numbers = block.lines, block.numbers
        if header is None and len(lines):
            header = _Header.of(lines[0].as_py(), path)
            check_memory(path, 64 * (header.nodes + header.edges))
            lines, numbers = lines.slice(1), numbers[1:]
        if header is None:
            continue
        fields = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lines))
        # Splitting an empty line gives one empty field.
        empty = pc.equal(pc.utf8_trim_whitespace(lines), "")
        counts = pc.list_value_length(fields).to_numpy().astype(np.int64)
        counts[empty.to_numpy(zero_copy_only=False)] = 0
        flat = fields.flatten()
        values = flat.filter(pc.not_equal(flat, "")).cast(pa.int64()).to_numpy()
        found.append(_edges(header, node, counts, values, numbers, path))
        node += len(counts)
        if node > header.nodes and counts[header.nodes - node :].any():
            raise InputError(
                f"{path} has neighbours of more than the {header.nodes:,} nodes of its "
                "first line: correct the line"
            )
    if header is None or node < header.nodes:
        raise InputError(
            f"{path} ends after {node:,} of "
            f"{0 if header is None else header.nodes:,} nodes: save or download it "
            "again"
        )
    return _converted(header, np.concatenate(found), path)


def _edges(
    header: _Header,
    node: int,
    counts: NDArray[np.int64],
    values: NDArray[np.int64],
    numbers: NDArray[np.int64],
    path: Path,
) -> NDArray[np.int64]:
    """Rows of source, target and weight of the lines of a block."""
    step = 1 + header.weighted
    neighbours = counts - header.before
    wrong = np.flatnonzero((counts > 0) & ((neighbours < 0) | (neighbours % step > 0)))
    if len(wrong):
        raise InputError(
            f"{path} has {counts[wrong[0]]} numbers in line {numbers[wrong[0]]:,}, "
            "which do not fit the format in its first line: correct the line"
        )
    starts = np.cumsum(counts) - counts
    place = np.arange(len(values)) - np.repeat(starts, counts)
    inside = place >= header.before
    source = np.repeat(np.arange(node + 1, node + 1 + len(counts)), counts)[inside]
    numbers_of = values[inside]
    rows = np.ones((len(numbers_of) // step, 3), np.int64)
    rows[:, 0] = source[::step]
    rows[:, 1] = numbers_of[::step]
    if header.weighted:
        rows[:, 2] = numbers_of[1::step]
    bad = np.flatnonzero((rows[:, 1] < 1) | (rows[:, 1] > header.nodes))
    if len(bad):
        raise InputError(
            f"{path} names node {rows[bad[0], 1]} as a neighbour of node "
            f"{rows[bad[0], 0]}, and its nodes are 1 to {header.nodes:,}: correct the "
            "line"
        )
    return rows


def _converted(header: _Header, rows: NDArray[np.int64], path: Path) -> Converted:
    if len(rows) != 2 * header.edges:
        raise InputError(
            f"{path} has {len(rows):,} neighbours and {header.edges:,} edges in its "
            "first line, and every edge must be in the lines of both nodes: correct "
            "the file"
        )
    table = {"src": pa.array(rows[:, 0]), "dst": pa.array(rows[:, 1])}
    if header.weighted:
        table["weight"] = pa.array(rows[:, 2])
    notes = ["left out: sizes and weights of the nodes"] * bool(header.before)
    nodes = np.arange(1, header.nodes + 1)
    return Converted(
        pa.table({"node_id": pa.array(nodes)}),
        pa.table(table),
        False,
        notes=tuple(notes),
    )
