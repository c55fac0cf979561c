"""Data that all tasks of a worker use: read once, and kept until others are read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["forget", "loaded"]

T = TypeVar("T")
_READING = threading.Lock()


def loaded(read: Callable[..., T], path: Path, *more: Any) -> T:
    """What a function reads from a path; a second task waits for the first to read."""
    with _READING:
        found: T = _kept(read, path, *more)
        return found


def forget() -> None:
    """Release what is kept."""
    _kept.cache_clear()


@lru_cache(maxsize=1)
def _kept(read: Callable[..., Any], *arguments: Any) -> Any:
    return read(*arguments)
