"""The package's log lines: as text or JSON on stderr, and to further handlers."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from xnq_dist.core.redaction import redacted

__all__ = [
    "Console",
    "JsonLines",
    "attached",
    "console",
    "format_dask",
    "is_json",
    "json_lines",
]

LOGGER = logging.getLogger("xnq_dist")


class Named(Protocol):
    """What names a run in a line."""

    run_id: str
    stage: str


class Console(logging.StreamHandler[Any]):
    """Logs to the current sys.stderr, which tests and progress bars replace."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)


class JsonLines(logging.Formatter):
    """One JSON object per record.

    Parameters
    ----------
    status
        Its run's id and stage are in each line; None: there is no run yet.
    """

    def __init__(self, status: Named | None = None) -> None:
        super().__init__()
        self._status = status

    def format(self, record: logging.LogRecord) -> str:
        """The record's line."""
        status = self._status
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "run_id": status and status.run_id,
            "host": socket.gethostname(),
            "stage": (status and status.stage) or None,
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            values["traceback"] = redacted(self.formatException(record.exc_info))
        return json.dumps(values, ensure_ascii=False)


def is_json() -> bool:
    """Whether lines are logged as JSON to stderr."""
    return any(isinstance(each.formatter, JsonLines) for each in LOGGER.handlers)


def console() -> Console:
    """The handler that logs to stderr, as text or, if requested, as JSON."""
    handler = next((h for h in LOGGER.handlers if isinstance(h, Console)), Console())
    as_json = os.environ.get("XNQ_LOG_FORMAT") == "json"
    text = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLines() if as_json else text)
    return handler


def format_dask(status: Named) -> None:
    """Let Dask's warnings be JSON, too, if the lines of this package are."""
    if is_json():
        for each in logging.getLogger("distributed").handlers:
            each.setFormatter(JsonLines(status))


@contextmanager
def json_lines(status: Named) -> Iterator[None]:
    """Name the run in the block's lines if ``XNQ_LOG_FORMAT=json``."""
    if os.environ.get("XNQ_LOG_FORMAT") != "json":
        yield
        return
    handler = console()
    handler.setFormatter(JsonLines(status))
    if handler in LOGGER.handlers:
        yield  # the command line's, which stays JSON
        return
    with attached(handler):
        yield


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
