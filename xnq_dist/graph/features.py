"""Features of the nodes, streamed: never in memory for all nodes.

Columns that are not complete numbers are encoded (`encoding`). The node table is
streamed in its order, and its rows are appended to files of blocks of relabelled rows.
Then each block is read, sorted and passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.arrays import Floats, Floats32, Ints
from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.core.progress import Counts, Progress, silent
from xnq_dist.core.threads import ahead
from xnq_dist.graph import scratch
from xnq_dist.graph.encoding import Source, Values, encoded, learn_encoding, numbers_of
from xnq_dist.graph.feature_types import kind_of
from xnq_dist.graph.halo import PartitionBook
from xnq_dist.graph.scaling import Scaling, learn_scaling
from xnq_dist.graph.tables import Batch, Table

__all__ = [
    "FeatureBlocks",
    "FeatureColumns",
]

_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 1 << 25
_LARGEST_BLOCK = 1 << 26
_SETTING = "columns.features"


class FeatureColumns:
    """How rows of the node table become feature vectors.

    Parameters
    ----------
    columns
        `columns.features` after `chosen_columns`: one list column, named columns, or
        None for the constant feature 1.
    scores
        Whether they are `columns.scores`, which must be numbers.

    Raises
    ------
    InputError
        When a column is missing or of an unusable type.
    """

    def __init__(
        self,
        table: Table,
        columns: str | list[str] | None,
        progress: Progress = silent,
        scores: bool = False,
    ) -> None:
        setting = "columns.scores" if scores else _SETTING
        self.table, self._progress = table, progress
        self.names = [columns] if isinstance(columns, str) else list(columns or [])
        self.as_list = isinstance(columns, str)
        """Whether the features are one list column."""
        self.sources: list[Source] = []
        """How columns become complete numbers; empty before `learn`."""
        self.scaling = Scaling.unchanged(1)
        """How these are scaled, after `learn`."""
        table.require((setting, name) for name in self.names)
        self._kinds = {name: self._kind_of(name, scores) for name in self.names}

    def _kind_of(self, name: str, scores: bool) -> str:
        """The kind of a column, the same in all files."""
        found = set()
        for file, there in self.table.schemas.items():
            kind = there[name]
            # Structs and maps are nested and have no type of values.
            value = getattr(kind, "value_type", kind) if self.as_list else kind
            known = kind_of(value) if self.as_list is pt.is_nested(kind) else None
            numeric = scores or self.as_list
            if known is None or (numeric and known != "number"):
                rule = (
                    "columns.scores, which takes numbers"
                    if scores
                    else f"{_SETTING}, which takes one list column of numbers, or "
                    f"names in a list, [{name}], of numbers, booleans, dates and text"
                )
                raise InputError(
                    f"column {name!r} of {file} is {kind}, which cannot be used: leave "
                    f"it out of {rule}"
                )
            if not pt.is_null(kind):
                found.add(known)
        if "text" in found and len(found) > 1:
            raise InputError(
                f"feature column {name!r} of {self.table.path} is text in one file and "
                "not in another: write all files with the same type"
            )
        return "list" if self.as_list else min(found, default="number")

    def learn(
        self,
        index: Ints,
        mode: str = "robust",
    ) -> None:
        """Learn the encoding and the scaling (`features.scale`) in one pass.

        `index` is the canonical index of each row of the table.

        Raises
        ------
        InputError
            For a value that is not finite in float32, or lists of unequal length; the
            column and the row are named.
        InfrastructureError
            When the table changed after the ids were read.
        """
        if not self.names:
            return
        values = self._values(index, partial(self._progress, "measure features"))
        self.sources, sample = learn_encoding(values, self._kinds, len(index))
        self.scaling = Scaling.unchanged(self.n_features)
        if mode != "none":
            self.scaling = learn_scaling(sample, mode == "auto" and self.as_list)

    def batches(self, index: Ints) -> Iterator[tuple[Ints, Floats32]]:
        """Canonical indices and scaled features, (rows, F), in the table's order.

        Errors are those of `learn`, which comes first.
        """
        if not self.names:
            yield index, np.ones((len(index), 1), np.float32)
            return
        for at, values in self._values(index, silent):
            yield at, self.scaling.apply(encoded(self.sources, values))

    def _values(
        self, index: Ints, progress: Counts
    ) -> Iterator[tuple[Ints, list[Any]]]:
        """Canonical indices, and the values of each source."""
        # The width of lists is known after the first pass.
        width = max(len(self.names), self.n_features)
        rows, done = max(1, min(_BATCH_BYTES // (8 * width), _BATCH_ROWS)), 0
        for batch in ahead(self.table.batches(self.names, rows)):
            at = index[done : done + batch.rows.num_rows]
            done += batch.rows.num_rows
            if len(at) < batch.rows.num_rows:
                break
            yield at, [self._checked(name, batch) for name in self.names]
            progress(done, len(index))
        if done != len(index):
            raise self.changed()

    def changed(self) -> InfrastructureError:
        """The error of a table that changed after its ids were read."""
        return InfrastructureError(
            f"{self.table.what} {self.table.path} changed while it was read: run again"
        )

    @property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        produced = [name for source in self.sources for name in source.names]
        return produced or (["constant"] if self.names else [])

    @property
    def n_features(self) -> int:
        """Number of the features, after `learn`."""
        return len(self.feature_names) or 1

    def _checked(self, name: str, batch: Batch) -> Values:
        """One source's values; numbers are finite, or NaN without a value."""
        column = batch.column(name)
        if self._kinds[name] == "text":
            return column.cast(pa.string())
        if self.as_list:
            matrix = self._from_lists(column, batch)
        else:
            matrix = numbers_of(column)[:, None]
        wrong = np.abs(matrix) > np.finfo(np.float32).max
        if wrong.any():
            row, place = np.argwhere(wrong)[0].tolist()
            where = f" (feature {place})" if self.as_list else ""
            raise InputError(
                f"feature column {name!r}{where} is infinite or too large for float32 "
                f"in {batch.row(row)}: correct the value or leave it empty"
            )
        return matrix

    @cached_property
    def _width(self) -> int:
        """Length of the first list; 0 if there is none."""
        batches = self.table.batches(self.names, _BATCH_ROWS)
        lists = (each for b in batches for each in b.rows.column(0).drop_null())
        return len(next(lists, ()))

    def _from_lists(self, column: pa.Array, batch: Batch) -> Floats:
        present = column.is_valid().to_numpy(zero_copy_only=False)
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        odd = present & (lengths != self._width)
        if odd.any() or not self._width:
            row = int(np.argmax(odd))
            raise InputError(
                f"column {self.names[0]!r} holds {int(lengths[row])} features in "
                f"{batch.row(row)} and {self._width} in another row: all nodes need "
                "the same number, at least one"
            )
        filled = np.full((len(column), self._width), np.nan)
        filled[present] = numbers_of(column.flatten()).reshape(-1, self._width)
        return filled


class FeatureBlocks:
    """Features of relabelled rows, read into block files below a folder.

    A block lies within one partition of `book`, and takes at most a quarter of `memory`
    bytes. `index` is the canonical index of each row of the node table.
    """

    def __init__(
        self,
        columns: FeatureColumns,
        index: Ints,
        book: PartitionBook,
        memory: int,
        folder: Path,
    ) -> None:
        width, self._offsets = columns.n_features, book.offsets
        self._folder = folder / "features"
        rows = max(1, min(memory // 4, _LARGEST_BLOCK) // (4 * width))
        firsts = [np.arange(*bounds, rows) for bounds in pairwise(book.offsets)]
        self._starts = np.concatenate([*firsts, book.offsets[-1:]])
        self._row = np.dtype([("row", np.int32), ("values", np.float32, (width,))])
        self._folder.mkdir()
        for at, matrix in columns.batches(index):
            found = np.empty(len(at), self._row)
            found["row"], found["values"] = book.relabelled[at], matrix
            block = np.searchsorted(self._starts, found["row"], "right") - 1
            order = np.argsort(block, kind="stable")
            edges = np.flatnonzero(np.diff(block[order])) + 1
            for part in np.split(order, edges):
                scratch.append(self._folder / str(block[part[0]]), found[part])

    def read(self, partition: int) -> Iterator[tuple[int, int, Floats32]]:
        """Yield (first global id, end, features) of a partition's blocks in order."""
        first, last = self._offsets[partition], self._offsets[partition + 1]
        for block in range(*np.searchsorted(self._starts, [first, last])):
            start, stop = int(self._starts[block]), int(self._starts[block + 1])
            path = self._folder / str(block)
            rows = scratch.shared(path, self._row, stop - start)
            matrix = np.empty(rows["values"].shape, np.float32)
            matrix[rows["row"] - start] = rows["values"]
            path.unlink()
            yield start, stop, matrix
