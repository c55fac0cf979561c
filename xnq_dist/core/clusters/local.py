"""Workers on this machine: processes, or threads of this process.

With ``auto`` the plan of a run chooses (`plan.of_tables.estimate`): one worker is this
process. What has no plan, such as a comparison of methods, gets worker processes unless
`cluster.workers` is 1.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from xnq_dist.core.cluster import CLOSE, NO_PAGES, local_size
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.limits import processors
from xnq_dist.core.need import Workers
from xnq_dist.core.sections import ClusterSettings
from xnq_dist.core.threads import one_blas_thread
from xnq_dist.core.waiting import watched

__all__ = ["check_program", "options", "size", "start", "started", "tls"]


PRELOAD = "xnq_dist.preload"
"""Module that worker processes import before they join."""

START = 45.0
"""Seconds for a worker's imports at its start, in addition to `cluster.timeout`."""


def size(settings: ClusterSettings, free: int | None = None) -> Workers:
    """Workers, threads and memory of a local cluster.

    Up to four workers share the processors.
    """
    there = processors()
    count = min(4, there) if settings.workers == "auto" else settings.workers
    return local_size(settings, count, max(1, there // count), free)


def options(size: Workers) -> dict[str, Any]:
    """Options of a cluster on this machine, without how its processes connect."""
    return {
        "n_workers": size.count,
        "threads_per_worker": size.threads,
        "memory_limit": size.memory,
        "scheduler_kwargs": NO_PAGES,
        "worker_dashboard_address": NO_PAGES["dashboard_address"],
        # `waiting` reports lost workers; tracebacks of ended workers would hide its
        # message.
        "silence_logs": logging.CRITICAL,
    }


def tls() -> dict[str, Any]:
    """Options with which processes connect over loopback.

    Any user of the machine can reach loopback ports, and anyone who can reach a
    scheduler can run code. Temporary credentials, kept in memory, prevent this.
    """
    from distributed import Security

    return {"host": "127.0.0.1", "security": Security.temporary(), "protocol": "tls"}


def check_program() -> None:
    """Check that worker processes can start and import the running program.

    Raises
    ------
    SettingsError
        When it was read from standard input, or would start workers in each worker;
        when /dev/shm cannot be written.
    """
    if not os.access("/dev/shm", os.W_OK):  # noqa: S108 - of multiprocessing's locks
        raise SettingsError(
            "worker processes need /dev/shm, which cannot be written: make it "
            "writable, or set cluster.workers=1"
        )
    program = sys.modules["__main__"]
    file = getattr(program, "__file__", None)
    advice = 'or set cluster.workers=1 (in Python: cluster={"workers": 1})'
    if file is None or program.__spec__ is not None:
        return  # a notebook, `python -c` or `python -m`
    if file == "<stdin>":
        raise SettingsError(
            "worker processes cannot import a program that is read from standard "
            f"input: save it as a file, {advice}"
        )
    try:
        guarded = "__name__" in Path(file).read_text(encoding="utf-8", errors="ignore")
    except OSError:
        return
    if not guarded:
        raise SettingsError(
            f"worker processes import {file}, which would start workers again: put its "
            f'statements under if __name__ == "__main__":, {advice}'
        )


def start(settings: ClusterSettings, size: Workers, stack: ExitStack) -> Any:
    """Start a cluster on this machine."""
    import dask
    from distributed import LocalCluster

    if settings.kind == "auto" and size.count == 1:
        # A scheduler and a worker as threads: no port takes work from other processes.
        # BLAS has one thread until the cluster is closed, as in a worker process.
        stack.enter_context(one_blas_thread())
        # After a machine was suspended, its only worker is not to be removed.
        stack.enter_context(dask.config.set({"distributed.scheduler.worker-ttl": None}))
        return LocalCluster(processes=False, protocol="inproc", **options(size))
    check_program()
    configured = dask.config.get("distributed.worker.preload") or []
    make = partial(
        LocalCluster,
        # Without it, Dask would wait forever for a worker that hangs at its start.
        death_timeout=settings.timeout + START,
        preload=[*configured, PRELOAD],
        **options(size),
        **tls(),
    )
    return started(make, settings)


def started(make: Callable[[], Any], settings: ClusterSettings) -> Any:
    """The cluster of worker processes that a call makes.

    Distributed 2026.7 may wait forever to close a nanny whose worker hung.

    Raises
    ------
    TimeoutError
        When the call takes too long.
    """
    end = time.monotonic() + settings.timeout + START + CLOSE

    def look() -> None:
        if time.monotonic() > end:
            raise TimeoutError

    return watched(make, look)
