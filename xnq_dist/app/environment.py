"""What Prefect and Dask must be told before import: nothing leaves the machine."""

from __future__ import annotations

import os

__all__ = ["DEFAULTS", "prepare_environment"]

DEFAULTS = {
    # No usage data to anybody, from the client or from the server it starts.
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # A deployment's flow that is tried without an API starts one on loopback, which
    # takes longer than Prefect's own patience on a busy machine.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    # A deployed flow's own calls would wait a minute each for an API that has died; no
    # result depends on them.
    "PREFECT_CLIENT_MAX_RETRIES": "1",
    # The command line reports by itself; Prefect only speaks up when something is off.
    "PREFECT_LOGGING_LEVEL": "WARNING",
    # Its tracebacks go to its own API; the terminal gets one sentence (XNQ_DEBUG: all).
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "xnq_dist",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_CLI_COLORS": "false",
    "DASK_LOGGING__DISTRIBUTED": "warning",
}


def prepare_environment() -> None:
    """Set what is not set already; call before the first import of Prefect."""
    for name, value in DEFAULTS.items():
        if "CONSOLE" in name and os.environ.get("XNQ_DEBUG"):
            continue
        os.environ.setdefault(name, value)
