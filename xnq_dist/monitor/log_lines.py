"""The package's log lines: on stderr, and to further handlers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["CONSOLE", "Console", "attached"]

LOGGER = logging.getLogger("xnq_dist")


class Console(logging.StreamHandler[Any]):
    """Logs to the current sys.stderr, which tests and progress bars replace."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)


CONSOLE = Console()
"""The handler that logs to stderr."""
CONSOLE.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))


@contextmanager
def attached(handler: logging.Handler) -> Iterator[None]:
    """Give the package's records from INFO on to one more handler."""
    level = LOGGER.level
    LOGGER.addHandler(handler)
    if not LOGGER.isEnabledFor(logging.INFO):
        LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
