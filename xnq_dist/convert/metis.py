"""METIS graph files: a header, then the neighbours of one node in each line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.convert import Converted
from xnq_dist.convert.reading import check_memory
from xnq_dist.convert.text_lines import blocks_of
from xnq_dist.core.errors import InputError

__all__ = ["matches", "read"]


ENDINGS = (".graph", ".metis")


def matches(path: Path, head: bytes) -> bool:
    """A file with METIS's ending."""
    stem = path.name.removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")
    return path.is_file() and stem.endswith(ENDINGS)


def read(path: Path) -> Converted:
    """Read the graph; nodes are numbered from 1, as in the file."""
    numbers, counts, values = _lines(path)
    if not len(counts) or not 2 <= counts[0] <= 4:
        raise ValueError("its first line is not the numbers of nodes and edges")
    header: list[int] = values[: counts[0]].tolist()
    values = values[counts[0] :]
    nodes, edges, form, constraints = header + [0, 1][len(header) - 2 :]
    check_memory(path, 64 * (nodes + edges))
    numbers, counts = numbers[1:], counts[1:]
    if len(counts) < nodes or counts[nodes:].any():
        raise InputError(
            f"{path} has {len(counts):,} lines after the first, which names "
            f"{nodes:,} nodes: save or download it again"
        )
    size, weights, weighted = (digit == "1" for digit in f"{form:03d}"[-3:])
    # Size and weights of the node come before its neighbours.
    before, step = size + constraints * weights, 1 + weighted
    wrong = (counts > 0) & ((counts < before) | ((counts - before) % step > 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{path} has {counts[at]} numbers in line {numbers[at]:,}, which do not "
            "fit the format in its first line: correct the line"
        )
    source = np.repeat(np.arange(1, len(counts) + 1), counts)
    place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    source, values = source[place >= before][::step], values[place >= before]
    target = values[::step]
    outside = (target < 1) | (target > nodes)
    if outside.any():
        at = int(np.argmax(outside))
        raise InputError(
            f"{path} names node {target[at]} as a neighbour of node {source[at]}, and "
            f"its nodes are 1 to {nodes:,}: correct the line"
        )
    if len(source) != 2 * edges:
        raise InputError(
            f"{path} has {len(source):,} neighbours and {edges:,} edges in its first "
            "line, and every edge must be in the lines of both nodes: correct the file"
        )
    table = {"src": pa.array(source), "dst": pa.array(target)}
    if weighted:
        table["weight"] = pa.array(values[1::step])
    left = ("left out: sizes and weights of the nodes",) if before else ()
    ids = pa.array(np.arange(1, nodes + 1))
    return Converted(pa.table({"node_id": ids}), pa.table(table), False, notes=left)


def _lines(path: Path) -> tuple[NDArray[np.int64], ...]:
    """Number and count of numbers of each line, and the numbers of all lines."""
    parts: list[tuple[NDArray[np.int64], ...]] = []
    for block in blocks_of(path, "%", blank=True):
        lines = pc.utf8_trim_whitespace(block.lines)
        fields = pc.utf8_split_whitespace(lines)
        # An empty line splits into one empty field.
        counts = pc.if_else(pc.equal(lines, ""), 0, pc.list_value_length(fields))
        flat = fields.flatten()
        values = flat.filter(pc.not_equal(flat, "")).cast(pa.int64())
        parts.append(
            (block.numbers, counts.cast(pa.int64()).to_numpy(), values.to_numpy())
        )
    if not parts:
        raise ValueError("it is empty")
    numbers, every, found = (np.concatenate(part) for part in zip(*parts, strict=True))
    return numbers, every, found
