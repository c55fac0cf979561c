"""The formats of input tables: one record here and one module each.

A format's module has two functions:
``schema(filesystem, file)`` returns a `pyarrow.Schema`;
``batches(filesystem, file, columns, rows, schema)`` yields record batches of about
`rows` rows with these columns in this order. Functions of a format that is ``untyped``
take what is known of the file (`csv_table.TextFile`). Errors of Arrow and of the system
become an `InputError` with the record's `title` and `hint`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xnq_dist.core import records

__all__ = ["FORMATS", "Format", "format_of", "has_ending"]


@dataclass(frozen=True, kw_only=True)
class Format(records.PartRecord):
    """One format; `title` completes "FILE is not ...". The first is the default."""

    endings: tuple[str, ...]
    """Endings of the file names."""
    hint: str
    """What to do with a file that cannot be read."""
    grouped: bool = False
    """Whether rows are in groups that can be read alone: ``group_rows(filesystem,
    file)`` returns their sizes, ``batches`` takes a range of them, `groups`, and
    ``chunks(filesystem, file)`` yields what the file states of columns in groups."""
    untyped: bool = False
    """Whether files are text, so that their values decide the types."""


FORMATS = records.Registry(
    "format",
    (
        Format(
            name="parquet",
            title="a complete Parquet file",
            endings=(".parquet", ".pq"),
            hint="copy or write it again",
            grouped=True,
            module="xnq_dist.graph.formats.parquet_table",
        ),
        Format(
            name="csv",
            title="a text table that can be read",
            endings=(".csv", ".tsv", ".tab", ".txt"),
            hint="check the row, or write Parquet",
            untyped=True,
            module="xnq_dist.graph.formats.csv_table",
        ),
    ),
)


def format_of(file: str) -> Format:
    """The format of a file, by the ending of its name."""
    known = list(FORMATS.records().values())
    return next((each for each in known if has_ending(file, each.endings)), known[0])


def has_ending(file: str, endings: tuple[str, ...]) -> bool:
    """Whether a file's name, without the ending of a compression, has an ending."""
    for packed in (".gz", ".bz2", ".zst", ".lz4"):
        file = file.removesuffix(packed)
    return file.endswith(endings)
