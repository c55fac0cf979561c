"""Rows, columns and features of a table from its metadata, before it is read."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import TITLES, Settings
from xnq_dist.graph.feature_types import HASHED, LEVELS, chosen_columns, kind_of
from xnq_dist.graph.labels import NULL_WORDS
from xnq_dist.graph.profile.headers import required_columns
from xnq_dist.graph.tables import Table, open_table

__all__ = [
    "class_count",
    "has_weights",
    "id_text",
    "labelled_rows",
    "node_bytes",
    "reversed_share",
    "table_size",
]

SAMPLE = 1 << 16
"""Rows of an edge table that are looked at."""
_TEXT_ROW = 24
"""Bytes of a row, or of a string id, assumed for files that do not store their number
of rows."""


def table_size(path: str, settings: Settings, table: str) -> tuple[int, int]:
    """Rows and, for nodes, input features of a table, before it is read.

    `table` is ``nodes``, ``edges`` or ``memberships``. Rows come from the files'
    footers, lines of text tables are counted; for other formats rows are estimated from
    the size.

    Raises
    ------
    InputError
        When the table is missing or unreadable, lacks a column, or has no rows.
    """
    opened = open_table(path, TITLES[table], settings.input)
    columns = settings.columns
    if table == "nodes":
        columns = chosen_columns(opened, settings)
    features = columns.features
    required = required_columns(table, columns)
    opened.require({f"columns.{key}": name for key, name in required.items()})
    rows = opened.n_rows
    if not opened.has_footers:
        size = sum(opened.filesystem.get_file_info(f).size for f in opened.files)
        # Estimate at least one row for small files that have any.
        name = next(iter(required.values()))
        with closing(opened.batches([name], settled=False)) as batches:
            empty = next(batches, None) is None
        rows = 0 if empty else opened.count_lines() or max(1, size // _TEXT_ROW)
    if rows == 0:
        raise InputError(
            f"{opened.what} {path} has no rows: check that it is the right file"
        )
    if table != "nodes":
        return rows, 0
    if features is None:
        return rows, 1
    if not isinstance(features, str):
        return rows, sum(_produced(opened, name, settings) for name in features)
    kind = opened.schemas[opened.files[0]][features]
    # The length of variable-size lists is known only after reading: assume 128.
    return rows, int(getattr(kind, "list_size", 128))


def _produced(table: Table, column: str, settings: Settings) -> int:
    """Maximum number of features that a named column becomes."""
    kinds = {kind_of(schema[column]) for schema in table.schemas.values()}
    if "text" in kinds:
        return 1 + max(LEVELS, HASHED)
    footers = (chunk.statistics for chunk in table.chunks({column}))
    return 1 + any(found is not None and found.null_count for found in footers)


def has_weights(path: str, settings: Settings) -> bool:
    """Whether edges will have weights: from the table, or numbers of duplicates."""
    opened = open_table(path, "edge table", settings.input)
    return settings.input.duplicates == "sum" or opened.has(settings.columns.weight)


def labelled_rows(path: str, settings: Settings) -> int | None:
    """Number of labelled nodes, from null counts in the footers; None without them."""
    opened = open_table(path, "node table", settings.input)
    columns = list(opened.chunks({settings.columns.label}))
    if not columns or any(
        column.statistics is None or not column.statistics.has_null_count
        for column in columns
    ):
        return None
    nulls = sum(int(column.statistics.null_count) for column in columns)
    return sum(int(column.num_values) for column in columns) - nulls


def class_count(path: str, settings: Settings) -> int:
    """Number of classes in the first rows of the node table, at least 2."""
    opened, label = open_table(path, "node table", settings.input), settings.columns
    try:
        with closing(opened.batches([label.label], settled=False)) as batches:
            first = next(batches, pa.record_batch([[]], names=[label.label]))
        found = pc.unique(first.column(label.label)).to_pylist()
    except (pa.ArrowNotImplementedError, UnicodeDecodeError):
        return 2  # no labels; the profile says what is wrong with them
    missing = settings.labels.missing
    words = {"None", *(NULL_WORDS if missing == "auto" else missing)}
    return max(2, sum(str(value) not in words for value in found))


def reversed_share(path: str, settings: Settings, rows: int) -> float:
    """Share of the edges whose reverse is a row too, estimated from the first rows.

    If all are, the reverse of a row is among the first m of M rows with a chance of
    m / M, whether they are in random order or sorted by source.
    """
    opened, columns = open_table(path, "edge table", settings.input), settings.columns
    ends = [columns.src, columns.dst]
    try:
        with closing(opened.batches(ends, SAMPLE, settled=False)) as batches:
            first = next(batches)
        both = pa.concat_arrays([first.column(end).cast(pa.string()) for end in ends])
    except (pa.ArrowNotImplementedError, UnicodeDecodeError):
        return 0.0  # no ids; the profile says what is wrong with them
    codes = both.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    source, target = np.split(codes, 2)
    found = np.isin(source << 32 | target, target << 32 | source)
    found &= source != target
    expected = len(source) * min(1.0, len(source) / rows)
    return float(min(1.0, np.count_nonzero(found) / expected))


def id_text(path: str, settings: Settings) -> float:
    """Mean bytes of a string id; 0 if ids are integers.

    For formats without footers `_TEXT_ROW` is assumed.
    """
    opened = open_table(path, "node table", settings.input)
    name = settings.columns.node_id
    if not any(
        pt.is_string(s[name]) or pt.is_large_string(s[name])
        for s in opened.schemas.values()
    ):
        return 0.0
    if not opened.has_footers:
        return float(_TEXT_ROW)
    sizes = (int(at.total_uncompressed_size) for at in opened.chunks({name}))
    # 8-byte offsets in memory replace 4-byte lengths in the file.
    return 4 + sum(sizes) / max(1, opened.n_rows)


def node_bytes(path: str, settings: Settings) -> int | None:
    """Compressed bytes of the node table's columns in use; None without footers."""
    opened = open_table(path, "node table", settings.input)
    columns = chosen_columns(opened, settings)
    features = columns.features
    named = {columns.node_id, columns.label, columns.role}
    named |= {features} if isinstance(features, str) else set(features or ())
    if not opened.has_footers:
        return None
    return sum(int(at.total_compressed_size) for at in opened.chunks(named))
