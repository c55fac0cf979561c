"""Converts sizes in bytes from and to text."""

from __future__ import annotations

__all__ = ["check_size", "human", "parse_bytes"]

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


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
    cleaned = str(text).strip().lower().replace(" ", "")
    digits = cleaned.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = cleaned[len(digits) :] or "b"
    try:
        value = int(float(digits) * _UNITS[unit])
    except (KeyError, OverflowError, ValueError) as error:
        raise ValueError(f"{text!r} is not a size such as '2 GiB'") from error
    if value <= 0:
        raise ValueError(f"{text!r} is not a size above zero")
    return value


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
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
