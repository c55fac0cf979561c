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
"""Distinct values above which they are not counted."""
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
    return next((name for name, test in _KINDS.items() if test(kind)), str(kind))


_KINDS = {
    "booleans": pt.is_boolean,
    "integers": pt.is_integer,
    "numbers": pt.is_floating,
    "dates": pt.is_temporal,
    "text": is_text,
}


class ColumnCounter:
    """Counts a column; `levels` says whether distinct values are of interest."""

    def __init__(self, name: str, levels: bool = True) -> None:
        self._name = name
        self._kinds: set[str] = set()
        self._rows = self._valid = 0
        self._range: list[Any] = []
        self._counts = _NO_VALUES if levels else None

    @property
    def kind(self) -> str:
        """The kinds of all batches."""
        if self._kinds == {"integers", "numbers"}:
            return "numbers"
        return " and ".join(sorted(self._kinds)) or "empty"

    def add(self, array: pa.Array) -> None:
        """Count the values of a batch; dictionary encoding is removed before."""
        self._rows += len(array)
        array = array.drop_null()
        if pt.is_uint64(array.type) and (pc.max(array).as_py() or 0) >= 2**63:
            array = array.cast(pa.float64(), safe=False)
        if pt.is_floating(array.type):
            array = array.filter(pc.invert(pc.is_nan(array)))
        self._valid += len(array)
        if not len(array):
            return
        self._kinds.add(kind_of(array.type))
        if self.kind not in _KINDS:
            self._counts = None
        elif self.kind == "text":
            array = array.cast(pa.binary())  # which may be no UTF-8
        else:
            both = pc.min_max(array).as_py()
            ends = [*self._range, both["min"], both["max"]]
            self._range = [min(ends), max(ends)]
        if self._counts is not None:
            values, rows = array.value_counts().flatten()
            joined = _joined(self._counts, pa.table({"value": values, "rows": rows}))
            self._counts = joined if len(joined) <= LEVELS else None

    def finish(self) -> ColumnProfile:
        """The profile of all batches."""
        levels: list[tuple[Any, int]] = []
        if self._counts:
            order = [("rows", "descending"), ("value", "ascending")]
            most = self._counts.sort_by(order).slice(0, KEPT).to_pydict()
            levels = [*zip(map(_plain, most["value"]), most["rows"], strict=True)]
        low, high = map(_plain, self._range or (None, None))
        return ColumnProfile(
            self._name,
            self.kind,
            self._rows,
            self._rows - self._valid,
            low,
            high,
            len(self._counts) if self._counts else None,
            tuple(levels),
        )


_NO_VALUES = pa.table({"value": pa.nulls(0), "rows": pa.array([], pa.int64())})


def _joined(*counts: pa.Table) -> pa.Table:
    """Rows of each distinct value."""
    # Integers of one file are numbers in another.
    every = pa.concat_tables(counts, promote_options="permissive")
    found = every.group_by("value").aggregate([("rows", "sum")])
    return found.rename_columns(["value", "rows"])


def _plain(value: Any) -> Any:
    """A value as JSON stores it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | None) else str(value)
