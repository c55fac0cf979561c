"""What one column holds: type, nulls, range and values, counted batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.graph.values import is_text

__all__ = ["ColumnCounter", "ColumnProfile", "TableProfile", "kind_of"]

LEVELS = 10_000
"""Distinct values above which a column is not counted further."""
SAMPLE = 1 << 20
"""Rows that are counted even if there are more than `LEVELS` distinct values."""
KEPT = 1000
"""Values that a profile lists, the most frequent ones."""


@dataclass(frozen=True)
class ColumnProfile:
    """One column of a table."""

    name: str
    kind: str
    """``integers``, ``numbers``, ``booleans``, ``text``, ``dates``, or Arrow's name."""
    rows: int
    nulls: int
    """Nulls and NaN."""
    low: Any = None
    high: Any = None
    distinct: int | None = None
    """Number of distinct values; None: not counted, or more than `LEVELS`."""
    levels: tuple[tuple[Any, int], ...] = ()
    """Values and their rows, by number of rows; at most `KEPT`."""


@dataclass(frozen=True)
class TableProfile:
    """One table of the user."""

    what: str
    path: str
    rows: int
    columns: tuple[ColumnProfile, ...]
    facts: dict[str, Any]
    """What the findings need besides, as JSON values."""

    def column(self, name: str | None) -> ColumnProfile | None:
        """The column of this name, None if there is none."""
        return next((each for each in self.columns if each.name == name), None)

    @classmethod
    def of(cls, values: dict[str, Any]) -> TableProfile:
        """The profile from JSON values."""
        columns = tuple(
            ColumnProfile(**each | {"levels": tuple(map(tuple, each["levels"]))})
            for each in values["columns"]
        )
        return cls(**values | {"columns": columns})


def kind_of(kind: pa.DataType) -> str:
    """The type of a column in the words of messages."""
    for name, test in _KINDS.items():
        if test(kind):
            return name
    return str(kind)


_KINDS = {
    "booleans": pt.is_boolean,
    "integers": pt.is_integer,
    "numbers": pt.is_floating,
    "dates": pt.is_temporal,
    "text": is_text,
}
_COMMON = {"integers": pa.int64(), "numbers": pa.float64(), "text": pa.binary()}
"""Type in which the values of all batches are counted; text by its bytes."""


class ColumnCounter:
    """Counts a column; `levels` says whether distinct values are of interest."""

    def __init__(self, name: str, levels: bool = True) -> None:
        self._name = name
        self._levels = levels
        self._kind = ""
        self._rows = self._valid = self._held = 0
        self._range: list[Any] = []
        self._counted: list[pa.Table] = []

    def add(self, array: pa.Array) -> None:
        """Count the values of a batch; dictionary encoding is removed before."""
        self._rows += len(array)
        array = array.drop_null()
        if pt.is_uint64(array.type) and (pc.max(array).as_py() or 0) >= 2**63:
            array = array.cast(pa.float64(), safe=False)
        kind = kind_of(array.type)
        if kind == "numbers":
            array = array.filter(pc.invert(pc.is_nan(array)))
        self._valid += len(array)
        if not len(array):
            return
        if {kind, self._kind} == {"integers", "numbers"}:
            kind = self._kind = "numbers"
        if self._kind not in ("", kind):
            kind, self._levels, self._counted = f"{self._kind} and {kind}", False, []
        self._kind = kind
        if kind not in _KINDS:
            return
        array = array.cast(_COMMON.get(kind, array.type))
        if kind != "text":
            both = pc.min_max(array).as_py()
            self._range = [*self._range, both["min"], both["max"]]
            self._range = [min(self._range), max(self._range)]
        if self._levels:
            self._count(array)

    def _count(self, array: pa.Array) -> None:
        values, counts = array.value_counts().flatten()
        self._counted.append(pa.table({"value": values, "rows": counts}))
        self._held += len(values)
        if self._held <= 4 * LEVELS:
            return
        joined = _joined(self._counted)
        self._counted, self._held = [joined], len(joined)
        sample = LEVELS if self._kind == "numbers" else SAMPLE
        if self._held > LEVELS and self._rows > sample:
            self._levels, self._counted = False, []

    def finish(self) -> ColumnProfile:
        """The profile of all batches."""
        levels: list[tuple[Any, int]] = []
        distinct = None
        if self._counted:
            joined = _joined(self._counted)
            distinct = len(joined)
            ordered = joined.sort_by(
                [("rows_sum", "descending"), ("value", "ascending")]
            )
            rows = ordered.slice(0, KEPT).to_pydict()
            levels = [
                (_plain(value), count)
                for value, count in zip(rows["value"], rows["rows_sum"], strict=True)
            ]
        low, high = map(_plain, self._range or (None, None))
        return ColumnProfile(
            self._name,
            self._kind or "empty",
            self._rows,
            self._rows - self._valid,
            low,
            high,
            distinct,
            tuple(levels),
        )


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Rows of each distinct value."""
    renamed = [table.rename_columns(["value", "rows"]) for table in tables]
    # Integers of one file are numbers in another.
    every = pa.concat_tables(renamed, promote_options="permissive")
    return every.group_by("value").aggregate([("rows", "sum")])


def _plain(value: Any) -> Any:
    """A value as JSON stores it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | None) else str(value)
