"""Types of columns of text tables: the narrowest one that every value fits.

A value is a number only if its text is that of the number: ``00123`` and an integer
that 64 bits cannot hold stay text, so an id never loses a digit.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NULL_WORDS", "joined", "kind_of", "type_of", "typed"]

NULL_WORDS = ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""Words for null in columns of numbers, dates and booleans."""

_TYPES = {
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "time": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "number": pa.float64(),
}
"""Kinds in the order in which they are tried; others: ``null`` and ``text``."""
_WIDER = {
    frozenset({"integer", "number"}): "number",
    frozenset({"date", "time"}): "time",
}


def type_of(kind: str) -> pa.DataType:
    """The Arrow type of a kind; a column without a value counts as integers."""
    return pa.string() if kind == "text" else _TYPES.get(kind, pa.int64())


def joined(one: str, other: str) -> str:
    """The narrowest kind that the values of both kinds fit."""
    if "null" in (one, other) or one == other:
        return one if other == "null" else other
    return _WIDER.get(frozenset({one, other}), "text")


def kind_of(values: pa.Array, decimal: str) -> str:
    """The narrowest kind of some text."""
    return next(
        (
            kind
            for kind in ("null", *_TYPES)
            if typed(values, kind, decimal) is not None
        ),
        "text",
    )


def typed(values: pa.Array, kind: str, decimal: str) -> pa.Array | None:
    """Text as values of a kind; None if a value does not fit."""
    if kind == "text":
        return values
    if kind == "null":
        empty = pc.all(_absent(values)).as_py() is not False
        return pa.nulls(len(values), pa.int64()) if empty else None
    found = _cast(values, kind, decimal)
    if found is None:
        trimmed = pc.utf8_trim_whitespace(values)
        found = _cast(pc.if_else(_absent(trimmed), None, trimmed), kind, decimal)
    return found


def _absent(values: pa.Array) -> pa.Array:
    return pc.is_in(values, pa.array([None, "", *NULL_WORDS], pa.string()))


def _cast(values: pa.Array, kind: str, decimal: str) -> pa.Array | None:
    text = values
    if kind == "number" and decimal == ",":
        if pc.any(pc.match_substring(values, ".")).as_py():
            return None
        values = pc.replace_substring(values, ",", ".")
    try:
        found = values.cast(_TYPES[kind])
    except pa.ArrowInvalid:
        return None
    if kind == "boolean":
        words = pa.array(["true", "false", None])
        exact = pc.all(pc.is_in(pc.utf8_lower(text), words)).as_py()
    elif kind in ("integer", "number"):
        exact = not _loses_digits(text, found, kind)
    else:
        exact = True
    return found if exact is not False else None


def _loses_digits(text: pa.Array, numbers: pa.Array, kind: str) -> bool:
    """Whether a value has leading zeros or a sign, or is an integer too large."""
    if kind == "integer":
        lost = pc.match_substring_regex(text, r"^(0.|-0|\+)")
    else:
        lost = pc.match_substring_regex(text, r"^([-+]?0\d|\+\d+$)")
        large = pc.greater_equal(pc.abs(numbers), 2.0**63)
        lost = pc.or_(lost, pc.and_(large, pc.match_substring_regex(text, r"^-?\d+$")))
    return bool(pc.any(lost).as_py())
