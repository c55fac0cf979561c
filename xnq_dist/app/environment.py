"""Environment variables for Prefect and Dask: no usage data, fewer lines, threads."""

from __future__ import annotations

import os

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.limits import processors

__all__ = ["DEFAULTS", "prepare_environment"]

DEFAULTS = {
    # Neither the client nor a server that it starts sends usage data.
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # A deployment's flow started without an API starts one on loopback; on a busy
    # machine that takes longer than Prefect's default timeout.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    # By default, each call to an API that has died waits a minute; no result depends
    # on these calls.
    "PREFECT_CLIENT_MAX_RETRIES": "1",
    # The command line logs its own progress; Prefect logs warnings only.
    "PREFECT_LOGGING_LEVEL": "WARNING",
    # Prefect's tracebacks go to its API; the terminal shows one sentence, or all of it
    # with XNQ_DEBUG.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_CLI_COLORS": "false",
    "DASK_LOGGING__DISTRIBUTED": "warning",
    # Worker processes start as `python -c`, which would import a module of the working
    # folder, such as a types.py, in place of Python's own.
    "PYTHONSAFEPATH": "1",
}


def prepare_environment() -> None:
    """Set the variables that are not set yet; call before importing Prefect.

    Raises
    ------
    SettingsError
        When a variable makes the kernels unusable.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise SettingsError(
            "NUMBA_DISABLE_JIT is set, and the kernels are not usable without "
            "compilation: unset it"
        )
    for name, value in DEFAULTS.items():
        if "CONSOLE" in name and os.environ.get("XNQ_DEBUG"):
            continue
        os.environ.setdefault(name, value)
    count = processors()
    if count < len(os.sched_getaffinity(0)):
        # BLAS, OpenMP and Arrow start a thread for each processor of the machine, and
        # a container's quota would make them wait for each other.
        os.environ.setdefault("OMP_NUM_THREADS", str(count))
