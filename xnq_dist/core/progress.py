"""Progress reports of long work."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Counts", "Progress", "silent"]

Progress = Callable[[str, int, int], None]
"""Called with a step, and the numbers of its parts that are done, and of all."""

Counts = Callable[[int, int], object]
"""Called with the two numbers of one step."""


def silent(*_: object) -> None:
    """Ignore the progress."""
