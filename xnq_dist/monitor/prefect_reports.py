"""Reports to Prefect's API, sent by a daemon thread that does not delay the run.

A newer report replaces an older one that is not sent yet, and reports that the API
rejects are dropped. If the API does not respond, the run waits `GRACE` seconds at its
end.
"""

from __future__ import annotations

import contextvars
import logging
import platform
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectException

from xnq_dist.core.redaction import redacted

__all__ = ["GRACE", "LogLines", "Outbox", "Record"]

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds that a finished run waits for an API that does not respond."""
LOG_LINES = 1000
"""Maximum number of log lines that wait to be sent."""


class Record:
    """A record of Prefect's API: its first report makes it, later ones change it.

    Parameters
    ----------
    kind
        ``flow_runs``, ``task_runs`` or ``artifacts``.
    fixed
        Returns the values that stay; called on the outbox's thread.
    id
        Of a record that exists.
    """

    def __init__(
        self,
        kind: str,
        fixed: Callable[[Any], dict[str, Any]] = lambda client: {},
        id: str | None = None,  # noqa: A002
    ) -> None:
        self._kind, self._fixed, self.id = kind, fixed, id

    def made(self, client: Any) -> str:
        """The id of the record, which is made if it does not exist."""
        if self.id is None:
            self.send({}, client)
        return str(self.id)

    def send(self, values: dict[str, Any], client: Any) -> None:
        """Make the record with these values, or change them."""
        path = f"/{self._kind}/"
        if self.id is None:
            values = {**self._fixed(client), **values}
            self.id = str(client.request("POST", path, json=values).json()["id"])
        elif self._kind == "artifacts":
            client.request("PATCH", f"{path}{self.id}", json=values)
        elif values:
            values = {**values, "force": True}
            client.request("POST", f"{path}{self.id}/set_state", json=values)


class LogLines(logging.Handler):
    """Sends log records of the package as log lines of a flow run.

    Prefect sends those of its own loggers only. The name of a line is that of the
    logger and the host, which Prefect's page shows after the text.
    """

    def __init__(self, outbox: Outbox, run: Record) -> None:
        super().__init__(logging.INFO)
        self._outbox, self._run = outbox, run
        self._waiting: deque[dict[str, Any]] = deque(maxlen=LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record; does not wait for the API."""
        self._waiting.append(
            {
                "name": f"{record.name} on {platform.node()}",
                "level": record.levelno,
                "message": redacted(record.getMessage()),
                "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            }
        )
        self._outbox.post(self, self._send)

    def _send(self, client: Any) -> None:
        run = {"flow_run_id": self._run.made(client)}
        lines = []
        while self._waiting:
            lines.append(self._waiting.popleft() | run)
        client.request("POST", "/logs/", json=lines)


class Outbox:
    """Sends reports one by one; of reports with the same key only the newest."""

    def __init__(self) -> None:
        self._waiting: dict[object, Callable[[Any], None]] = {}
        self._sending = False
        self._silent_since: float | None = None
        self._news = threading.Condition()
        # Prefect's settings are in the context of the thread that makes the outbox.
        run = contextvars.copy_context().run
        threading.Thread(
            target=run, args=(self._work,), daemon=True, name="reports to Prefect"
        ).start()

    def post(self, key: object, send: Callable[[Any], None]) -> None:
        """Queue a report; does not wait for the API."""
        with self._news:
            self._waiting[key] = send
            self._news.notify_all()

    def flush(self, seconds: float = GRACE) -> None:
        """Wait until all is sent, at most `seconds` after the last response."""
        with self._news:
            silent = self._silent_since
            waited = 0.0 if silent is None else time.monotonic() - silent
            if self._news.wait_for(
                lambda: not (self._waiting or self._sending), max(seconds - waited, 0)
            ):
                return
        log.warning(
            "Prefect's API did not accept the last reports within %g s: the run is "
            "complete, but Prefect may show it as unfinished",
            seconds,
        )

    def _work(self) -> None:
        refused = False
        with get_client(sync_client=True) as client:
            while True:
                send = self._next()
                try:
                    send(client)
                except (httpx.HTTPError, PrefectException) as error:
                    if not refused:
                        log.warning(
                            "Prefect's API does not accept reports (%s): the run "
                            "continues without them",
                            redacted(str(error)) or type(error).__name__,
                        )
                    refused = True
                    if isinstance(error, httpx.TransportError):
                        with self._news:
                            self._waiting.clear()
                else:
                    self._silent_since = None

    def _next(self) -> Callable[[Any], None]:
        with self._news:
            self._sending = False
            self._news.notify_all()
            self._news.wait_for(lambda: self._waiting)
            self._sending = True
            self._silent_since = self._silent_since or time.monotonic()
            return self._waiting.pop(next(iter(self._waiting)))
