"""How feature columns of any type become numbers, learnt from all nodes.

- Numbers and booleans without a value are filled with the median of the values that are
  present; a column ``NAME is missing`` of 0 and 1 marks the filled rows.
- Dates and timestamps become days since 1970-01-01.
- Text becomes one column of 0 and 1 for each of its values (levels), and one for no
  value. Text with more than `LEVELS` values is hashed into `HASHED` columns. Text
  with a different value for almost every node has no column.

What is learnt does not depend on the order of rows, on files or on partitions. Labels
are not used.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.graph.feature_types import HASHED, LEVELS
from xnq_dist.graph.ids import text_hashes, text_of
from xnq_dist.graph.scaling import Matrix, largest_hash, node_hashes, sample_rows

__all__ = [
    "Encoding",
    "exact_numbers",
    "learn_encoding",
]

log = logging.getLogger(__name__)

DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
VALUES_SEEN = 4096
"""Expected number of rows whose text is counted to find columns of distinct values."""
ROWS_A_VALUE = 2
"""Text with fewer rows a value than this is a name or an id, not a category."""

Values: TypeAlias = Any
"""A source's rows: numbers, shape (n, F), with NaN for no value; or text."""


def exact_numbers(array: pa.Array) -> Matrix:
    """float32 values if the type is exact in float32, else float64; null is NaN."""
    kind = array.type
    if pt.is_null(kind):
        return np.full(len(array), np.nan, np.float32)
    if pt.is_decimal(kind):
        array = array.cast(pa.float64())
    elif pt.is_date32(kind):
        array = array.cast(pa.int32())
    elif pt.is_date64(kind) or pt.is_timestamp(kind):
        ticks = DAY["ms" if pt.is_date64(kind) else kind.unit]
        days = array.cast(pa.int64()).to_numpy(zero_copy_only=False) / ticks
        return np.asarray(days, np.float64)
    elif pt.is_float32(kind) or pt.is_float16(kind) or kind.bit_width <= 16:
        array = array.cast(pa.int8()) if pt.is_boolean(kind) else array
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.float32)
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.float64)


@dataclass(frozen=True)
class Source:
    """One feature column of the table, and the columns that it becomes."""

    names: tuple[str, ...]
    """Of the produced columns."""
    fills: Floats | None = None
    """Values for gaps in numbers, shape (F,); NaN where a column has none."""
    levels: tuple[bytes, ...] = ()
    """Values of text with a column of their own."""
    hashed: bool = False
    """Whether text is hashed into `HASHED` columns instead."""
    missing: bool = False
    """Whether a column marks rows without a value (of a list: without one of them)."""

    def matrix(self, values: Values) -> Matrix:
        """The source's produced columns, without NaN."""
        if self.fills is not None:
            gaps = np.isnan(values)
            found = np.where(gaps, self.fills.astype(values.dtype), values)
            empty = gaps.any(axis=1)
        else:
            empty = values.is_null().to_numpy(zero_copy_only=False)
            codes, signs = self._codes(values)
            width = HASHED if self.hashed else len(self.levels)
            found = (codes[:, None] == np.arange(width)) & ~empty[:, None]
            found = (found * signs[:, None]).astype(np.float32)
        marks = [empty[:, None].astype(np.float32)] if self.missing else []
        return cast(Matrix, np.concatenate([found, *marks], axis=1))

    def _codes(self, text: pa.Array) -> tuple[Ints, Ints]:
        """The column of each row's text, and the sign of its value there."""
        if not self.hashed:
            known = pa.array(self.levels, pa.binary())
            codes = pc.index_in(text.cast(pa.binary()), known).fill_null(-1).to_numpy()
            return codes, np.ones_like(codes)
        hashes = text_hashes(*text_of(text.fill_null(""))).view(np.uint64)
        codes = (hashes % np.uint64(HASHED)).astype(np.int64)
        return codes, np.where(hashes >> np.uint64(63), -1, 1)


@dataclass(frozen=True)
class Encoding:
    """The map from the table's feature columns to columns of complete numbers."""

    sources: tuple[Source, ...]

    def matrix(self, values: Sequence[Values]) -> Matrix:
        """Numbers of some rows, shape (n, F), without NaN."""
        pairs = zip(self.sources, values, strict=True)
        parts = [source.matrix(each) for source, each in pairs if source.names]
        # Without any column, the graph alone is used.
        parts = parts or [np.ones((len(values[0]), 1), np.float32)]
        return cast(Matrix, np.concatenate(parts, axis=1))

    @property
    def names(self) -> list[str]:
        """Names of the produced columns."""
        return [n for source in self.sources for n in source.names] or ["constant"]


class _Numbers:
    """Learns the fills of a numeric source from nodes chosen by their hash."""

    def __init__(self, name: str, kind: str) -> None:
        self._name, self._kind = name, kind
        self._low: Any = np.nan
        self._gaps: Any = False
        self._sample: list[Matrix] = []

    def add(self, values: Matrix, chosen: Bools) -> None:
        gaps = np.isnan(values)
        self._gaps = self._gaps | gaps.any(axis=0)
        self._low = np.fmin(self._low, np.fmin.reduce(values, axis=0))
        self._sample.append(values[chosen])

    def finish(self) -> Source:
        sample = np.concatenate(self._sample).astype(np.float64)
        fills = np.full(sample.shape[1], np.nan)
        for at in np.flatnonzero(self._gaps).tolist():
            present = sample[~np.isnan(sample[:, at]), at]
            # Values that are too rare for the sample: the smallest one; none at all: 0.
            rare = np.nan_to_num(self._low[at])
            fills[at] = np.median(present) if len(present) else rare
        missing, name = bool(np.any(self._gaps)), self._name
        places = range(len(fills)) if self._kind == "list" else ()
        names = [f"{name}[{at}]" for at in places] or [name]
        return Source((*names, *_mark(name, missing)), fills, missing=missing)


class _Text:
    """Learns the levels of a text source, or that it has too many."""

    def __init__(self, name: str, nodes: int) -> None:
        self._name = name
        self._largest = largest_hash(nodes, VALUES_SEEN)
        self._counts: Counter[bytes] = Counter()
        self._missing = False
        self._seen: Counter[int] = Counter()

    def add(self, values: pa.Array, _: Bools) -> None:
        self._missing |= bool(values.null_count)
        present = values.drop_null()
        hashes = text_hashes(*text_of(present)).view(np.uint64)
        self._seen.update(hashes[hashes <= self._largest].tolist())
        if len(self._counts) <= LEVELS:
            counted = present.cast(pa.binary()).value_counts()[: LEVELS + 1]
            for each in counted.to_pylist():
                self._counts[each["values"]] += each["counts"]

    def finish(self) -> Source:
        name, counts, missing = self._name, self._counts, self._missing
        mark = _mark(name, missing)
        if len(counts) <= LEVELS:
            levels = tuple(sorted(counts, key=lambda value: (-counts[value], value)))
            names = [f"{name} = {each.decode(errors='replace')}" for each in levels]
            return Source((*names, *mark), levels=levels, missing=missing)
        if self._seen.total() < ROWS_A_VALUE * len(self._seen):
            log.warning(
                "feature column %r has a different value for almost every node and is "
                "left out: leave it out of columns.features",
                name,
            )
            return Source(())
        names = [f"{name} hashed [{at}]" for at in range(HASHED)]
        return Source((*names, *mark), hashed=True, missing=missing)


def _mark(name: str, missing: bool) -> list[str]:
    return [f"{name} is missing"] if missing else []


def learn_encoding(
    batches: Iterable[tuple[Ints, Sequence[Values]]],
    named: Sequence[tuple[str, str]],
    nodes: int,
) -> Encoding:
    """Learn the encoding of the sources from all rows.

    Parameters
    ----------
    batches
        Canonical indices, and the values of each source.
    named
        Name and kind of each source: a kind of `kind_of`, or ``list``.
    """
    learners: list[_Text | _Numbers] = [
        _Text(name, nodes) if kind == "text" else _Numbers(name, kind)
        for name, kind in named
    ]
    width = len(learners)
    for index, values in batches:
        if named[0][1] == "list":
            width = values[0].shape[1]
        chosen = node_hashes(index) <= largest_hash(nodes, sample_rows(width))
        for learner, each in zip(learners, values, strict=True):
            learner.add(each, chosen)
    return Encoding(tuple(learner.finish() for learner in learners))
