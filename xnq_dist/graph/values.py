"""Values of the user's columns in one form, and as shown in messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

__all__ = [
    "NULL_WORDS",
    "column_of",
    "divided",
    "is_text",
    "of_one_type",
    "one_form",
    "plain_values",
    "quoted",
    "show",
    "whole",
    "without_views",
]

NULL_WORDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?")
"""Texts that mean unlabelled with ``labels.missing = auto``, spaces aside."""
MAX_NAME = 200
"""Characters of a column's name in messages."""


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are text."""
    return bool(
        pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    )


def column_of(matrix: NDArray[Any]) -> pa.Array:
    """A column of vectors that are the rows of a matrix."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with text in place of string views, which Arrow does not filter."""
    return pa.schema(map(_kept, schema))


def _kept(field: pa.Field) -> pa.Field:
    kind = field.type
    if pt.is_dictionary(kind) and pt.is_string_view(kind.value_type):
        return field.with_type(pa.dictionary(pa.int32(), pa.string()))
    return field.with_type(pa.large_string()) if pt.is_string_view(kind) else field


def of_one_type(ids: list[pa.Array]) -> pa.ChunkedArray:
    """Ids of a table, as text if some of them are text or too large for int64."""
    if len({each.type for each in ids}) > 1:
        ids = [each.cast(pa.string()) for each in ids]
    return pa.chunked_array(ids, None if ids else pa.int64())


def plain_values(array: pa.Array) -> pa.Array:
    """Values without dictionaries; decimals as integers or text, durations as seconds.

    A whole decimal becomes int64, or text where one of the column is too large.
    """
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pt.is_decimal(array.type) and array.type.scale == 0:
        return whole(array)
    if pt.is_duration(array.type):
        return divided(array, 1)
    return array


def whole(array: pa.Array) -> pa.Array:
    """Integers as int64, or as text where one of them is too large."""
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        return array.cast(pa.string())


def divided(array: pa.Array, seconds: int) -> pa.Array:
    """Durations, or times since 1970, in units of some seconds, as float64."""
    unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    return pc.divide(array.cast(pa.int64()).cast(pa.float64(), False), seconds * unit)


def one_form(array: pa.Array) -> pa.Array:
    """Text in composed Unicode (NFC), without zero-width spaces; other types as is.

    A word is then one class, or one community, however it was typed.
    """
    if not pt.is_string(array.type) or pc.all(pc.string_is_ascii(array)).as_py():
        return array
    try:
        composed = pc.utf8_normalize(array, "NFC")
    except pa.ArrowInvalid:  # not UTF-8: named as it is
        return array
    return pc.replace_substring_regex(composed, "[\u200b\ufeff]", "")


def show(ids: pa.Array | pa.ChunkedArray, at: int) -> str:
    """An id as shown in messages, like Python's repr; invalid bytes are replaced."""
    value = ids[at]
    if pt.is_integer(value.type):
        return str(value.as_py())
    return repr(bytes(value.as_buffer()).decode("utf-8", errors="replace"))


def quoted(column: str) -> str:
    """A column's name in a message; a damaged file may have very long ones."""
    return repr(column if len(column) <= MAX_NAME else f"{column[:MAX_NAME]}...")
