"""Progress reports of long work."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Counts", "Progress", "silent", "uncounted"]

Progress = Callable[[str, int, int], None]
"""Called with a step, and the numbers of its parts that are done, and of all."""

Counts = Callable[[int, int], object]
"""Called with the two numbers of one step."""


def silent(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


def uncounted(done: int, total: int) -> None:
    """Ignore the progress of one step."""
