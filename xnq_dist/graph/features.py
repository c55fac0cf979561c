"""Features of the nodes, streamed: never in memory for all nodes.

The node table is streamed in its order, and its rows are appended to files of blocks
of relabelled rows. Then each block is read, sorted and passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from xnq_dist.core.errors import (
    InfrastructureError,
    InputError,
    SettingsError,
    StageError,
)
from xnq_dist.core.progress import Progress, silent
from xnq_dist.graph import scratch
from xnq_dist.graph.arrays import Floats32, Ints, Ints32
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.scaling import Matrix, Scaling, learn_scaling
from xnq_dist.graph.tables import Batch, Table

__all__ = [
    "FeatureBlocks",
    "FeatureColumns",
    "exact_numbers",
    "scaling_of",
    "side_by_side",
]

_BATCH_BYTES = 1 << 25
_LARGEST_BLOCK = 1 << 28
_SETTING = "columns.features"


class FeatureColumns:
    """How rows of the node table become feature vectors.

    Parameters
    ----------
    columns
        `columns.features`: one list column, numeric columns, or None for the constant
        feature 1.
    exact
        Whether columns that float32 cannot represent (wide integers, float64) are read
        as float64, so that a large offset does not cost digits before it is subtracted.

    Raises
    ------
    InputError
        When a column is missing or of an unusable type.
    """

    def __init__(
        self, table: Table, columns: str | list[str] | None, exact: bool = False
    ) -> None:
        if columns is not None and not columns:
            raise SettingsError(
                f"{_SETTING} names no column: set it to null to use the graph alone"
            )
        self.table = table
        self.names = [columns] if isinstance(columns, str) else list(columns or [])
        self.as_list = isinstance(columns, str)
        """Whether the features are one list column."""
        self._exact = exact
        self.width = len(self.names) or 1
        """Features of a node, F; 0 for variable-size lists until the first row."""
        if self.as_list:
            self.width = 0
        table.require(dict.fromkeys([_SETTING], self.names[0]) if self.names else {})
        for name in self.names:
            table.require({_SETTING: name})
            for file, there in table.schemas.items():
                self._check_type(name, there[name], file)

    def _check_type(self, name: str, kind: pa.DataType, file: str) -> None:
        value, expected = kind, "a number: name numeric columns"
        if self.as_list:
            expected = (
                "a list of numbers: name a fixed-size-list column, or numeric columns "
                f"in a list ({_SETTING}=[{name}])"
            )
            is_list = pt.is_list(kind) or pt.is_large_list(kind)
            if not is_list and not pt.is_fixed_size_list(kind):
                raise InputError(f"column {name!r} of {file} is {kind}, not {expected}")
            value = kind.value_type
            if pt.is_fixed_size_list(kind):
                self._set_width(kind.list_size, file)
        if not (pt.is_integer(value) or pt.is_floating(value) or pt.is_boolean(value)):
            raise InputError(f"column {name!r} of {file} is {kind}, not {expected}")

    def _set_width(self, width: int, file: str) -> None:
        if not width:
            raise InputError(
                f"column {self.names[0]!r} of {file} holds empty lists: name a column "
                f"with features, or set {_SETTING} to null to use the graph alone"
            )
        if self.width and width != self.width:
            raise InputError(
                f"column {self.names[0]!r} of {file} holds {width} features per node "
                f"but {self.width} in an earlier file: all nodes need the same number"
            )
        self.width = width

    def batches(self, ids: NodeIds, index: Ints) -> Iterator[tuple[Ints, Matrix]]:
        """Canonical indices and raw features, shape (rows, F), in the table's order.

        `index` is the canonical index of each row of the table; `ids` name nodes in
        messages.

        Raises
        ------
        InputError
            For a null, a value that is not finite in float32, or lists of unequal
            length; the column and a node id are named.
        InfrastructureError
            When the number of rows changed after the ids were read.
        """
        if not self.names:
            yield index, np.ones((len(index), 1), np.float32)
            return
        # The width of variable-size lists is known after the first one.
        rows = 4096
        if self.width:
            rows = max(1, min(_BATCH_BYTES // (8 * self.width), 1 << 18))
        done = 0
        for batch in self.table.batches(self.names, rows):
            at = index[done : done + batch.rows.num_rows]
            done += batch.rows.num_rows
            if len(at) < batch.rows.num_rows:
                break
            yield at, self._matrix(batch, ids, at)
        if done != len(index):
            raise InfrastructureError(
                f"{self.table.what} {self.table.path} changed while it was read: run "
                "again"
            )

    def feature_names(self, width: int) -> list[str]:
        """Names of the `width` features."""
        if self.as_list:
            return [f"{self.names[0]}[{at}]" for at in range(width)]
        return self.names

    def _numbers(self, array: pa.Array) -> Matrix:
        return exact_numbers(array) if self._exact else numbers_of(array)

    def _matrix(self, batch: Batch, ids: NodeIds, at: Ints) -> Matrix:
        columns = [batch.column(name) for name in self.names]
        for name, column in zip(self.names, columns, strict=True):
            if column.null_count:
                row = int(np.argmax(column.is_null().to_numpy(False)))
                raise InputError(
                    f"column {name!r} is null for node {ids.name(int(at[row]))} "
                    f"({batch.row(row)}): fill in the features, every node needs them"
                )
        if self.as_list:
            matrix = self._from_lists(columns[0], batch, ids, at)
        else:
            matrix = side_by_side([self._numbers(column) for column in columns])
        usable = np.abs(matrix) <= np.finfo(np.float32).max
        if not usable.all():
            row, column = np.argwhere(~usable)[0]
            name = self.names[0] if self.as_list else self.names[column]
            place = f" (feature {column})" if self.as_list else ""
            raise InputError(
                f"column {name!r}{place} is null, not finite or too large for float32 "
                f"for node {ids.name(int(at[row]))} ({batch.row(int(row))}): fill in "
                "such values or leave the column out"
            )
        return matrix

    def _from_lists(
        self, column: pa.Array, batch: Batch, ids: NodeIds, at: Ints
    ) -> Matrix:
        if not pt.is_fixed_size_list(column.type):
            lengths = column.value_lengths().to_numpy()
            if not self.width:
                self._set_width(int(lengths[0]), batch.file)
            odd = lengths != self.width
            if odd.any():
                row = int(np.argmax(odd))
                raise InputError(
                    f"column {self.names[0]!r} holds {lengths[row]} features for node "
                    f"{ids.name(int(at[row]))} ({batch.row(row)}) but {self.width} for "
                    "earlier nodes: all nodes need the same number"
                )
        return self._numbers(column.flatten()).reshape(len(column), self.width)


def numbers_of(array: pa.Array) -> Floats32:
    """float32 values; null becomes NaN, values out of range become infinite."""
    if pt.is_boolean(array.type):
        array = array.cast(pa.int8())
    with np.errstate(over="ignore"):
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.float32)


def exact_numbers(array: pa.Array) -> Matrix:
    """float32 values if the type is exact in float32, else float64; null is NaN."""
    kind = array.type
    if pt.is_float32(kind) or pt.is_float16(kind) or kind.bit_width <= 16:
        return numbers_of(array)
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.float64)


def side_by_side(columns: list[Matrix]) -> Matrix:
    """Columns as a matrix; float64 if any of them is."""
    matrix: Any = np.stack(columns, axis=1)
    return cast(Matrix, matrix)


def scaling_of(
    columns: FeatureColumns,
    ids: NodeIds,
    index: Ints,
    mode: Literal["auto", "robust", "none"],
    progress: Progress = silent,
) -> Scaling | None:
    """The scaling of the columns, from one pass over the table; None: no scaling."""
    if mode == "none" or not columns.names:
        return None

    def read() -> Iterator[tuple[Ints, Matrix]]:
        done = 0
        for at, matrix in columns.batches(ids, index):
            yield at, matrix
            done += len(at)
            progress("measure features", done, len(index))

    return learn_scaling(read(), len(index), mode == "auto" and columns.as_list)


class FeatureBlocks:
    """Features of relabelled rows, collected in block files in an empty folder.

    A block lies within one partition; `offsets`, shape (P + 1,), are the first global
    ids of the partitions. A block takes at most a quarter of `memory` bytes.
    """

    def __init__(self, offsets: Ints, memory: int, folder: Path) -> None:
        self._offsets = offsets
        self._memory = min(memory // 4, _LARGEST_BLOCK)
        self._folder = folder
        self._starts = offsets
        self.width = 0

    def fill(
        self,
        columns: FeatureColumns,
        ids: NodeIds,
        index: Ints,
        relabelled: Ints32,
        scaling: Scaling | None = None,
        progress: Progress = silent,
    ) -> None:
        """Stream the node table into the blocks, scaled if a scaling is passed."""
        done = 0
        for at, raw in columns.batches(ids, index):
            matrix = raw.astype(np.float32, copy=False)
            if scaling is not None:
                matrix = scaling.apply(raw)
            if not self.width:
                self._set_width(matrix.shape[1])
            target = relabelled[at]
            block = np.searchsorted(self._starts, target, "right") - 1
            order = np.argsort(block, kind="stable")
            edges = np.flatnonzero(np.diff(block[order])) + 1
            for rows in np.split(order, edges):
                stem = self._folder / str(block[rows[0]])
                scratch.append(stem.with_suffix(".rows"), target[rows])
                scratch.append(stem.with_suffix(".values"), matrix[rows])
            done += len(at)
            progress("read features", done, len(index))

    def _set_width(self, width: int) -> None:
        self.width = width
        rows = max(1, self._memory // (4 * width))
        self._starts = np.concatenate(
            [
                np.arange(first, last, rows)
                for first, last in zip(self._offsets, self._offsets[1:], strict=False)
            ]
            + [self._offsets[-1:]]
        )

    def read(self, partition: int) -> Iterator[tuple[int, int, Floats32]]:
        """Yield (first global id, end, features) of a partition's blocks in order."""
        first, last = self._offsets[partition], self._offsets[partition + 1]
        for block in range(*np.searchsorted(self._starts, [first, last])):
            start, stop = int(self._starts[block]), int(self._starts[block + 1])
            stem = self._folder / str(block)
            rows = scratch.read(stem.with_suffix(".rows"), np.int32)
            values = scratch.read(stem.with_suffix(".values"), np.float32)
            if not np.array_equal(np.sort(rows), np.arange(start, stop)):
                raise StageError(
                    f"features of nodes {start} to {stop - 1} are missing or repeated "
                    f"in {self._folder}: run again"
                )
            matrix = np.empty((stop - start, self.width), np.float32)
            matrix[rows - start] = values.reshape(-1, self.width)
            stem.with_suffix(".values").unlink()
            yield start, stop, matrix
