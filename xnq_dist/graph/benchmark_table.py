"""Reads and checks the table of benchmarks: known shares or counts of classes.

Columns: the community (`columns.community`; null, or no such column: the whole graph),
``class``, ``share`` or ``count``, and optionally ``se``, the standard error of the
share or count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import ColumnSettings, InputSettings
from xnq_dist.core.store import fingerprint
from xnq_dist.graph.tables import Batch, open_table

__all__ = ["BenchmarkTable", "group_name", "read_benchmarks"]

CLASS, SHARE, COUNT, ERROR = "class", "share", "count", "se"
TOLERANCE = 1e-6
"""Rounding error allowed in a sum of shares."""


@dataclass(frozen=True)
class BenchmarkRow:
    """One row of the table."""

    community: str | None
    """Name as text; None: the whole graph."""
    class_name: str
    value: float
    """Share or count."""
    se: float
    """Its standard error; 0: known exactly."""


@dataclass(frozen=True)
class BenchmarkTable:
    """All rows of a table, without duplicates."""

    path: str
    shares: bool
    """Whether values are shares; False: counts."""
    rows: tuple[BenchmarkRow, ...]

    @property
    def groups(self) -> list[str | None]:
        """The communities, each once, the whole graph first."""
        named = {row.community for row in self.rows}
        return sorted(named, key=lambda name: (name is not None, name or ""))

    def digest(self) -> dict[str, Any]:
        """Digest that stages record as an input, independent of the order of rows."""
        rows = sorted(
            (
                *(row.community is not None, str(row.community), row.class_name),
                *(row.value.hex(), row.se.hex()),
            )
            for row in self.rows
        )
        return {"rows": len(rows), "digest": fingerprint(self.shares, rows)}

    def check_classes(self, classes: Sequence[str]) -> None:
        """Check that all classes occur in the labels, and that shares add up to 1."""
        for row in self.rows:
            if row.class_name not in classes:
                raise InputError(
                    f"benchmark table {self.path} names class {row.class_name!r} for "
                    f"{group_name(row.community)}, which no node is labelled with: "
                    f"use one of {', '.join(classes)}"
                )
        for group, shares in self.sums():
            if len(shares) == len(classes) and abs(sum(shares) - 1) > TOLERANCE:
                raise InputError(
                    f"the shares of all classes of {group_name(group)} add up to "
                    f"{sum(shares):.6g} in benchmark table {self.path}: they must add "
                    "up to 1"
                )

    def sums(self) -> Iterator[tuple[str | None, list[float]]]:
        """Yield the shares of each group; nothing for counts."""
        for group in self.groups if self.shares else ():
            yield group, [row.value for row in self.rows if row.community == group]


def group_name(community: str | None) -> str:
    """The group's name in messages."""
    return "the whole graph" if community is None else f"community {community!r}"


def read_benchmarks(
    path: str, columns: ColumnSettings, settings: InputSettings | None = None
) -> BenchmarkTable:
    """The rows of a table of benchmarks; `columns.community` is used.

    Raises
    ------
    InputError
        When a column is missing, a value is null, out of range or not a number, a row
        occurs twice, or shares of a group add up to more than 1.
    """
    table = open_table(path, "benchmark table", settings)
    table.require({"column `class` of the benchmark table": CLASS})
    with_shares, with_counts = table.has(SHARE), table.has(COUNT)
    if with_shares == with_counts:
        raise InputError(
            f"benchmark table {table.path} has {'both' if with_shares else 'none'} of "
            f"the columns {SHARE!r} and {COUNT!r}: give one of them"
        )
    value = SHARE if with_shares else COUNT
    optional = [name for name in (columns.community, ERROR) if table.has(name)]
    rows: dict[tuple[str | None, str], BenchmarkRow] = {}
    for batch in table.batches([CLASS, value, *optional]):
        for at, values in enumerate(batch.rows.to_pylist()):
            row = _row(values, batch, at, columns.community, value)
            key = row.community, row.class_name
            if key in rows:
                raise InputError(
                    f"benchmark table {table.path} has class {row.class_name!r} of "
                    f"{group_name(row.community)} twice, again in {batch.row(at)}: "
                    "keep one row"
                )
            rows[key] = row
    if not rows:
        raise InputError(
            f"benchmark table {table.path} has no rows: add one, or leave the setting "
            "benchmark out"
        )
    found = BenchmarkTable(table.path, with_shares, tuple(rows.values()))
    for group, shares in found.sums():
        if sum(shares) > 1 + TOLERANCE:
            raise InputError(
                f"the shares of {group_name(group)} add up to {sum(shares):.6g} in "
                f"benchmark table {table.path}: the sum must be at most 1"
            )
    return found


def _row(
    values: dict[str, Any], batch: Batch, at: int, community: str, value: str
) -> BenchmarkRow:
    where = batch.row(at)
    if values[CLASS] is None:
        raise InputError(
            f"column {CLASS!r} of the benchmark table is null in {where}: name a class"
        )
    number = _number(values[value], value, where)
    if value == SHARE and number > 1:
        raise InputError(
            f"column {value!r} is {number:g} in {where}: a share is from 0 to 1 (write "
            "12 % as 0.12)"
        )
    error = values.get(ERROR)
    se = 0.0 if error is None else _number(error, ERROR, where)
    group, name = values.get(community), values[CLASS]
    if isinstance(name, float) and name.is_integer():
        name = int(name)  # other tools store integers with nulls as floats
    return BenchmarkRow(None if group is None else str(group), str(name), number, se)


def _number(value: Any, column: str, where: str) -> float:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not math.isfinite(value) or value < 0:
        raise InputError(
            f"column {column!r} of the benchmark table is "
            f"{'null' if value is None else repr(value)} in {where}: give a finite "
            "number that is not negative"
        )
    return float(value)
