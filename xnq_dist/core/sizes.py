"""Converts sizes in bytes from and to text."""

from __future__ import annotations

from typing import Annotated

from pydantic import ByteSize, Field, TypeAdapter

__all__ = ["check_size", "human", "parse_bytes"]

_BYTES = TypeAdapter(Annotated[ByteSize, Field(gt=0)])


def parse_bytes(text: str | int) -> int:
    """Bytes of a text such as ``"2 GiB"``, ``"500MB"`` or a number.

    Raises
    ------
    ValueError
        When the text is not a positive number with a known unit.

    Examples
    --------
    >>> parse_bytes("1.5 GiB")
    1610612736
    """
    try:
        return int(_BYTES.validate_python(str(text)))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a size such as '2 GiB'") from error


def check_size(value: str | int) -> str | int:
    """Return the value if it is a size; else raise a `ValueError`."""
    parse_bytes(value)
    return value


def human(count: float) -> str:
    """A number of bytes as readable text.

    Examples
    --------
    >>> human(1536)
    '1.5 KiB'
    """
    return ByteSize(count).human_readable(separator=" ")
