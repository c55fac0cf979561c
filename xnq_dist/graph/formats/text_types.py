"""Types of columns of text tables: the narrowest one that every value fits.

A value is a number only if its text is that of the number: ``00123`` and an integer
that 64 bits cannot hold stay text, so an id never loses a digit.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.graph.values import NULL_WORDS

__all__ = ["joined", "kind_of", "type_of", "typed"]

NULLS = (*NULL_WORDS, "#N/A")
"""Words for null in columns of numbers, dates and booleans."""

_WHOLE = r"0|[1-9]\d{0,17}"
_KINDS = {
    "null": (pa.int64(), ""),
    "integer": (pa.int64(), r"0|-?[1-9]\d{0,18}"),
    "boolean": (pa.bool_(), r"true|false"),
    "date": (pa.date32(), r".*"),
    "time": (pa.timestamp("us"), r".*"),
    "instant": (pa.timestamp("us", "UTC"), r".*"),
    "number": (pa.float64(), rf"-?({_WHOLE})?(\.\d*)?(e[-+]?\d+)?|-?inf"),
    "text": (pa.string(), ".*"),
}
"""Types and patterns of the values, in the order in which kinds are tried. A column
without a value, ``null``, counts as integers."""
_WIDER = {
    frozenset({"integer", "number"}): "number",
    frozenset({"date", "time"}): "time",
}


def type_of(kind: str) -> pa.DataType:
    """The Arrow type of a kind."""
    return _KINDS[kind][0]


def joined(one: str, other: str) -> str:
    """The narrowest kind that the values of both kinds fit."""
    if "null" in (one, other) or one == other:
        return one if other == "null" else other
    return _WIDER.get(frozenset({one, other}), "text")


def kind_of(values: pa.Array, decimal: str) -> str:
    """The narrowest kind of some text."""
    return next(kind for kind in _KINDS if typed(values, kind, decimal) is not None)


def typed(values: pa.Array, kind: str, decimal: str) -> pa.Array | None:
    """Text as values of a kind; None if a value does not fit."""
    if kind == "text":
        return values
    found = _cast(values, kind, decimal)
    if found is None:
        trimmed = pc.utf8_trim_whitespace(values)
        absent = pc.is_in(trimmed, pa.array(NULLS))
        trimmed = pc.if_else(absent, None, trimmed)
        found = _cast(trimmed, kind, decimal)
    return found


def _cast(values: pa.Array, kind: str, decimal: str) -> pa.Array | None:
    if kind == "number" and decimal == ",":
        if pc.any(pc.match_substring(values, ".")).as_py():
            return None
        values = pc.replace_substring(values, ",", ".")
    wanted, pattern = _KINDS[kind]
    try:
        found = values.cast(wanted)
    except pa.ArrowInvalid:
        return None
    exact = pc.match_substring_regex(values, f"^({pattern})$", ignore_case=True)
    return None if pc.all(exact).as_py() is False else found
