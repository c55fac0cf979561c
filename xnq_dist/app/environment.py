"""Environment variables: no usage data, fewer lines of Dask, threads."""

from __future__ import annotations

import os

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.limits import processors

__all__ = ["DEFAULTS", "prepare_environment"]

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "DASK_LOGGING__DISTRIBUTED": "warning",
    # Worker processes start as `python -c`, which would import a module of the working
    # folder, such as a types.py, in place of Python's own.
    "PYTHONSAFEPATH": "1",
}


def prepare_environment() -> None:
    """Set the variables that are not set yet.

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
        os.environ.setdefault(name, value)
    count = processors()
    if count < len(os.sched_getaffinity(0)):
        # BLAS, OpenMP and Arrow start a thread for each processor of the machine, and
        # a container's quota would make them wait for each other.
        os.environ.setdefault("OMP_NUM_THREADS", str(count))
