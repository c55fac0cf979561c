"""Names from the data as text that every page and picture can hold."""

from __future__ import annotations

import re

__all__ = ["plain"]

_NOT_XML = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")


def plain(text: str, limit: int | None = None) -> str:
    """A name as one line of characters that XML allows, shortened to a length.

    Examples
    --------
    >>> plain("a name that is long", limit=8)
    'a name …'
    """
    clean = re.sub(r"\s+", " ", text)
    clean = _NOT_XML.sub("\ufffd", clean)
    if limit is not None and len(clean) > limit:
        return clean[: limit - 1] + "…"
    return clean
