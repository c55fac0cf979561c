"""How feature columns of any type become numbers, learnt from all nodes.

- Numbers and booleans without a value are filled with the median of the values that are
  present; a column ``NAME is missing`` of 0 and 1 marks the filled rows.
- Text such as ``12.5 %`` or ``12,5%`` in all rows that have a value is read as numbers.
- Dates and timestamps become days since 1970-01-01.
- Text becomes one column of 0 and 1 for each of its values (levels), and one for no
  value. Text with more than `LEVELS` values is hashed into `HASHED` columns. Text
  with a different value for almost every node has no column.

What is learnt does not depend on the order of rows, on files or on partitions. Labels
are not used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints
from xnq_dist.graph.feature_types import HASHED, LEVELS, kind_of
from xnq_dist.graph.formats.text_types import NULL_WORDS
from xnq_dist.graph.ids import text_hashes, text_of
from xnq_dist.graph.scaling import Matrix, largest_hash, node_hashes

__all__ = [
    "Encoding",
    "exact_numbers",
    "learn_encoding",
    "needs_encoding",
    "percent_numbers",
]

log = logging.getLogger(__name__)

DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
PERCENT = r"^\s*[-+]?\d+([.,]\d+)?[\s\x{A0}\x{202F}]*%\s*$"
VALUES_SEEN = 4096
"""Expected number of rows whose text is counted to find columns of distinct values."""
ROWS_A_VALUE = 2
"""Text with fewer rows a value than this is a name or an id, not a category."""

Values: TypeAlias = Any
"""A source's rows: numbers, shape (n, F), with NaN for no value; or text."""


def needs_encoding(array: pa.Array) -> bool:
    """Whether a column (or a list's values) is more than complete numbers."""
    if pt.is_nested(array.type):
        return bool(array.null_count) or needs_encoding(array.flatten())
    if array.null_count or kind_of(array.type) in ("date", "text"):
        return True
    return pt.is_floating(array.type) and bool(pc.any(pc.is_nan(array)).as_py())


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


def percent_numbers(text: pa.Array) -> Floats | None:
    """Percentages as numbers, NaN where there is none; None if a text is no such."""
    text = pc.if_else(pc.is_in(text, pa.array(["", *NULL_WORDS])), None, text)
    if pc.all(pc.match_substring_regex(text, PERCENT)).as_py() is False:
        return None
    digits = pc.replace_substring(text, ",", ".")
    digits = pc.replace_substring_regex(digits, r"[^-.\d]", "")
    numbers: Floats = digits.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


@dataclass(frozen=True)
class Source:
    """One feature column of the table, and the columns that it becomes."""

    name: str
    kind: str
    fills: Floats | None = None
    """Values for gaps in numbers, shape (F,); NaN where a column has none."""
    levels: tuple[bytes, ...] = ()
    hashed: int = 0
    """Number of columns that text is hashed into; 0: one for each level."""
    missing: int = 0
    """Rows without a value (of a list: without one of its values)."""

    def matrix(self, values: Values) -> Floats32 | Matrix:
        """The source's produced columns, without NaN."""
        if self.fills is not None:
            if self.kind == "percent":
                values = cast(Floats, percent_numbers(values))[:, None]
            gaps = np.isnan(values)
            filled = np.where(gaps, self.fills.astype(values.dtype), values)
            return _joined([filled, *self._marks(gaps.any(axis=1))], len(filled))
        text = values.cast(pa.binary())
        empty = text.is_null().to_numpy(zero_copy_only=False)
        if self.hashed:
            hashes = text_hashes(*text_of(values.fill_null(""))).view(np.uint64)
            codes = (hashes % np.uint64(self.hashed)).astype(np.int64)
            signs = np.where(hashes >> np.uint64(63), -1, 1)
            codes[empty] = -1
            found = (codes[:, None] == np.arange(self.hashed)) * signs[:, None]
        else:
            known = pa.array(self.levels, pa.binary())
            codes = pc.index_in(text, known).fill_null(-1).to_numpy()
            found = codes[:, None] == np.arange(len(self.levels))
        return _joined([found.astype(np.float32), *self._marks(empty)], len(found))

    def _marks(self, empty: Bools) -> list[Floats32]:
        return [empty[:, None].astype(np.float32)] if self.missing else []

    def rows(self) -> list[dict[str, Any]]:
        """The produced columns in order, as rows of the table ``feature_encoding``."""
        rows: list[tuple[str, str, str | None, float | None]] = []
        if self.fills is not None:
            for at, value in enumerate(self.fills.tolist()):
                fill = None if np.isnan(value) else value
                if self.kind == "list":
                    rows.append((f"{self.name}[{at}]", "number", None, fill))
                else:
                    rows.append((self.name, self.kind, None, fill))
        for at in range(self.hashed):
            rows.append((f"{self.name} hashed [{at}]", "hashed", None, None))
        for level in self.levels:
            text = level.decode(errors="replace")
            rows.append((f"{self.name} = {text}", "category", text, None))
        if self.missing:
            rows.append((f"{self.name} is missing", "missing", None, None))
        names = "feature", "kind", "level", "fill"
        return [
            {"source": self.name} | dict(zip(names, row, strict=True)) for row in rows
        ]


def _joined(parts: Sequence[Matrix], rows: int) -> Matrix:
    if not parts:
        return np.empty((rows, 0), np.float32)
    return cast(Matrix, np.concatenate(parts, axis=1))


@dataclass(frozen=True)
class Encoding:
    """The map from the table's feature columns to columns of complete numbers."""

    sources: tuple[Source, ...]

    def matrix(self, values: Sequence[Values]) -> Matrix:
        """Numbers of some rows, shape (n, F), without NaN."""
        pairs = zip(self.sources, values, strict=True)
        found = _joined([source.matrix(each) for source, each in pairs], len(values[0]))
        # Without any column, the graph alone is used.
        return found if found.shape[1] else np.ones((len(found), 1), np.float32)

    @property
    def names(self) -> list[str]:
        """Names of the produced columns."""
        return [row["feature"] for row in self._rows()] or ["constant"]

    def _rows(self) -> list[dict[str, Any]]:
        return [row for source in self.sources for row in source.rows()]

    def table(self) -> pa.Table:
        """Schema ``feature_encoding``: one row per produced column."""
        names = "feature", "source", "kind", "level", "fill"
        kinds = [pa.string()] * 4 + [pa.float64()]
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        return pa.Table.from_pylist(self._rows(), schema)

    def facts(self) -> dict[str, int]:
        """Number of produced columns of each kind, as JSON values."""
        kinds = [row["kind"] for row in self._rows()]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


class _Numbers:
    """Learns the fills of a numeric source from nodes chosen by their hash."""

    def __init__(self, name: str, kind: str) -> None:
        self._name, self._kind = name, kind
        self._low: Any = np.nan
        self._gaps: Any = False
        self._missing = 0
        self._sample: list[Matrix] = []

    def add(self, values: Matrix, chosen: Bools) -> None:
        gaps = np.isnan(values)
        self._gaps = self._gaps | gaps.any(axis=0)
        self._missing += int(np.count_nonzero(gaps.any(axis=1)))
        self._low = np.fmin(self._low, np.fmin.reduce(values, axis=0))
        self._sample.append(values[chosen])

    @property
    def found(self) -> bool:
        """Whether any row has a value."""
        return not np.isnan(self._low).all()

    def finish(self) -> Source:
        sample = np.concatenate(self._sample).astype(np.float64)
        fills = np.full(sample.shape[1], np.nan)
        for at in np.flatnonzero(self._gaps).tolist():
            present = sample[~np.isnan(sample[:, at]), at]
            # Values that are too rare for the sample: the smallest one; none at all: 0.
            rare = np.nan_to_num(self._low[at])
            fills[at] = np.median(present) if len(present) else rare
        return Source(self._name, self._kind, fills, missing=self._missing)


class _Text:
    """Learns the levels of a text source, or that it has too many."""

    def __init__(self, name: str, nodes: int) -> None:
        self._name = name
        self._largest = np.uint64(min(int(VALUES_SEEN / nodes * 2**64), 2**64 - 1))
        self._counts: dict[bytes, int] = {}
        self._rows = self._missing = 0
        self._seen: dict[int, int] = {}
        self._percent: _Numbers | None = _Numbers(name, "percent")

    def add(self, values: pa.Array, chosen: Bools) -> None:
        numbers = None if self._percent is None else percent_numbers(values)
        if self._percent is not None and numbers is not None:
            self._percent.add(numbers[:, None], chosen)
        else:
            self._percent = None
        self._missing += values.null_count
        present = values.drop_null()
        self._rows += len(present)
        hashes = text_hashes(*text_of(present)).view(np.uint64)
        found = np.unique(hashes[hashes <= self._largest], return_counts=True)
        for value, times in zip(*(each.tolist() for each in found), strict=True):
            self._seen[value] = self._seen.get(value, 0) + times
        if len(self._counts) > LEVELS:
            return
        for each in pc.value_counts(present.cast(pa.binary())):
            value = each["values"].as_py()
            self._counts[value] = self._counts.get(value, 0) + each["counts"].as_py()
            if len(self._counts) > LEVELS:
                break

    def finish(self) -> Source:
        if self._percent is not None and self._percent.found:
            return self._percent.finish()
        counts = self._counts
        made = Source(self._name, "text", missing=self._missing)
        if len(counts) <= LEVELS:
            ranked = sorted(counts, key=lambda value: (-counts[value], value))
            return replace(made, levels=tuple(ranked))
        if sum(self._seen.values()) < ROWS_A_VALUE * len(self._seen):
            return Source(self._name, "left out")
        return replace(made, hashed=HASHED)


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
        chosen = node_hashes(index) <= largest_hash(nodes, width)
        for learner, each in zip(learners, values, strict=True):
            learner.add(each, chosen)
    encoding = Encoding(tuple(learner.finish() for learner in learners))
    for source in encoding.sources:
        if source.kind == "left out":
            log.warning(
                "feature column %r has a different value for almost every node and is "
                "left out: leave it out of columns.features",
                source.name,
            )
    return encoding
