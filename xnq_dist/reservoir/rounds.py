"""What one partition does in a round of neighbour sums, and a round read back.

Reads a partition from its files in every round instead of keeping it: a task then
needs nothing but values and boundary blocks, and any worker may take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.backend import choose
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.graph.layout import load_partition, node_index
from xnq_dist.reservoir.context import halo_picks, pick_halo
from xnq_dist.reservoir.device import move_partition
from xnq_dist.reservoir.superstep import MemoryStates, column_tiles, gather

__all__ = [
    "COLUMNS",
    "Publish",
    "Start",
    "Step",
    "boundary_values",
    "first_values",
    "load_values",
    "next_values",
    "sum_neighbours",
    "write_values",
]

Array = NDArray[np.float32]

COLUMNS = 32
"""Columns that a GPU is given at a time: fewer than a superstep's, so they fit."""

Start = Callable[[int], Array]
"""From a partition's number to the values of its owned rows, shape (n_owned, w)."""

Step = Callable[[int, int, Array, Array], Array]
"""``step(number, round, values, sums)``: a partition's values after the round (1, 2,
...), from those before and the sums over in-neighbours; one row an owned node."""

Publish = Callable[[Array], Array]
"""What neighbours see of values, row by row, shapes (m, w) to (m, any)."""


def first_values(start: Start, number: int) -> Array:
    """Values of a partition's owned rows before the first round."""
    return np.ascontiguousarray(start(number), dtype=np.float32)


def boundary_values(
    graph: Stage,
    manifest: Manifest,
    number: int,
    values: Array,
    publish: Publish | None = None,
) -> Array:
    """What other partitions read, rows ascending."""
    rows = values[load_partition(graph, manifest, number).boundary_rows]
    return rows if publish is None else publish(rows)


def sum_neighbours(
    graph: Stage,
    manifest: Manifest,
    number: int,
    values: Array,
    blocks: Mapping[int, Array],
    weighted: bool = True,
    backend: str = "cpu",
) -> Array:
    """Weighted sums of in-neighbours' values, in the order of the original ids.

    Parameters
    ----------
    values
        Of the partition's owned rows, as neighbours see them, shape (n_owned, w).
    blocks
        `boundary_values` of every owner of halo rows.
    weighted
        Not: every edge counts 1.
    backend
        ``cpu`` or ``gpu``: the same bits.
    """
    partition = load_partition(graph, manifest, number)
    if not weighted:
        partition = replace(partition, weights=None)
    if len(values) != partition.n_owned:
        raise StageError(
            f"partition {number} owns {partition.n_owned} nodes and was given "
            f"{len(values)} rows of values"
        )
    width = values.shape[1]
    halo = pick_halo(halo_picks(graph, manifest, partition), blocks, width)
    sums = np.empty((partition.n_owned, width), dtype=np.float32)
    states = MemoryStates(np.ascontiguousarray(values, dtype=np.float32))
    found = choose(backend)
    if not found.on_device:
        gather(found, partition, states, slice(0, width), halo, sums)
        return sums
    moved = move_partition(found, partition)
    for columns in column_tiles(width, COLUMNS):
        gather(found, moved, states, columns, halo[:, columns], sums[:, columns])
    return sums


def next_values(
    graph: Stage,
    manifest: Manifest,
    step: Step,
    number: int,
    turn: int,
    values: Array,
    blocks: Mapping[int, Array],
    publish: Publish | None,
    weighted: bool,
    backend: str,
) -> Array:
    """Values of a partition's owned rows after round `turn`."""
    seen = values if publish is None else publish(values)
    sums = sum_neighbours(graph, manifest, number, seen, blocks, weighted, backend)
    return np.ascontiguousarray(step(number, turn, values, sums), dtype=np.float32)


def write_values(
    attempt: Attempt, stem: str, number: int, turn: int, values: Array
) -> FileRecord:
    """One partition's values of one round, ``<stem>-<round>-<partition>``."""
    return attempt.write_arrays(f"{stem}-{turn:03d}-{number:05d}", values=values)


def load_values(
    where: Stage, records: Sequence[FileRecord], graph: Stage, manifest: Manifest
) -> Array:
    """One round of `propagate` put together, shape (N, w), in canonical order.

    Parameters
    ----------
    where
        Whose folder the attempt wrote to.
    records
        The round's files, in partition order.
    graph, manifest
        The stage ``graph``.
    """
    index = node_index(graph, manifest)
    found: Array | None = None
    for rows, record in zip(index, records, strict=True):
        values = where.read_arrays(record)["values"]
        if found is None:
            found = np.empty((sum(map(len, index)), values.shape[1]), np.float32)
        found[rows] = values
    if found is None:
        raise StageError("the stage graph has no partitions: run again to resume")
    return found
