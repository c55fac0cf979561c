"""Progress reports of long work: a function of (what, done, total)."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress", "silent"]

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Ignore the progress."""
