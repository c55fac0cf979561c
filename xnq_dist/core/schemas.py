"""Schemas of all tables that are written or read back: columns, types and versions.

The tables are listed in ``tables.yaml``. They are checked on writing (`conform`) and on
reading (`check`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import yaml

from xnq_dist.core.errors import StageError

__all__ = [
    "TABLES",
    "Column",
    "TableSchema",
    "check",
    "class_column",
    "conform",
]


TYPES = {
    "id": ("int64", "string"),
    "label": ("int64", "bool", "string"),
    "vector<float32>": ("float",),
    "vector<float>": ("float", "halffloat"),
}
"""Arrow's types for a kind of column, of the values of a vector."""
OR_NULL = " or null"


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    kind: str
    """``id`` (int64 or string, as in the user's tables), ``label`` (int64, bool or
    string, as in the label column), the name of an Arrow type, or ``vector<float32>``,
    ``vector<float>`` for a fixed-size list."""
    meaning: str
    nullable: bool = False

    def accepts(self, kind: pa.DataType) -> bool:
        """Whether a column of this Arrow type matches."""
        if self.kind.startswith("vector<"):
            kind = kind.value_type if pt.is_fixed_size_list(kind) else pa.null()
        return str(kind) in TYPES.get(self.kind, (self.kind,))


@dataclass(frozen=True)
class TableSchema:
    """A table's entry in the registry."""

    version: int
    columns: tuple[Column, ...]
    meaning: str


def _table(entry: Mapping[str, Any]) -> TableSchema:
    columns = (
        Column(name, kind.removesuffix(OR_NULL), meaning, kind.endswith(OR_NULL))
        for name, (kind, meaning) in entry["columns"].items()
    )
    return TableSchema(entry.get("version", 1), tuple(columns), entry["meaning"])


_TEXT = Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8")
TABLES = {name: _table(entry) for name, entry in yaml.safe_load(_TEXT).items()}
"""The schemas of all tables by name."""


def class_column(classes: Sequence[Any] | pa.Array, times: int) -> pa.Array:
    """All classes in turn, `times` over, in the type of the labels.

    Readers that compare classes with those of other results compare them as text.
    """
    return pa.array(classes).take(pa.array(np.tile(np.arange(len(classes)), times)))


def check(
    schema: pa.Schema, name: str, where: str, columns: Collection[str] | None = None
) -> None:
    """Check a table that is read back against its schema.

    Parameters
    ----------
    columns
        Required columns; a table of an earlier version may lack others. None: all.

    Raises
    ------
    StageError
        The message names the file and a wrong column.
    """
    for column in TABLES[name].columns:
        if columns is not None and column.name not in columns:
            continue
        at = schema.get_field_index(column.name)
        found = schema.field(at).type if at >= 0 else None
        if found is None or not column.accepts(found):
            raise StageError(
                f"{where} is not a {name!r} table: column {column.name!r} is "
                f"{found or 'missing'}, not {column.kind}; run again with --overwrite "
                "to replace it"
            )


def conform(table: pa.Table, name: str, where: str, run_id: str = "") -> pa.Table:
    """The table with exactly the registered columns in order, checked for nulls.

    The schema's name and version go into the file's metadata. A published table gets
    the `run_id` of its results, as its last column and in the metadata.
    """
    entry = TABLES[name]
    check(table.schema, name, where)
    for column in entry.columns:
        values = table[column.name]
        if not column.nullable and values.null_count:
            raise StageError(f"{where}: column {column.name!r} has nulls")
        if column.kind == "double" and pc.any(pc.invert(pc.is_finite(values))).as_py():
            raise StageError(f"{where}: column {column.name!r} is not finite")
    metadata = dict(table.schema.metadata or {})
    metadata[b"xnq_dist.table"] = name.encode()
    metadata[b"xnq_dist.version"] = str(entry.version).encode()
    ordered = table.select([column.name for column in entry.columns])
    if run_id:
        metadata[b"xnq_dist.run_id"] = run_id.encode()
        field = pa.field("run_id", pa.string(), nullable=False)
        ordered = ordered.append_column(field, pa.repeat(run_id, len(ordered)))
    return ordered.replace_schema_metadata(metadata)
