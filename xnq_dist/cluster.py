"""A Dask client from a setting."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from xnq_dist._version import __version__
from xnq_dist.backend import choose, gpu_facts
from xnq_dist.config import ClusterSettings, Settings, parse_bytes
from xnq_dist.errors import ClusterError, SettingsError

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "LocalSize",
    "connect",
    "local_size",
    "open_cluster",
    "settle",
    "settle_backend",
    "workers",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalSize:
    """Shape of a local cluster."""

    workers: int
    threads: int
    memory: int
    """Bytes a worker may use."""


def local_size(settings: ClusterSettings) -> LocalSize:
    """Workers, threads and memory of a local cluster.

    Up to four workers share the processors; nine tenths of the memory that is free
    now is divided among them.
    """
    # The affinity mask, not the processors there are: batch systems set it.
    processors = len(os.sched_getaffinity(0))
    count = min(4, processors) if settings.workers == "auto" else settings.workers
    threads = (
        max(1, processors // count) if settings.threads == "auto" else settings.threads
    )
    if settings.memory_limit == "auto":
        memory = int(psutil.virtual_memory().available * 0.9) // count
    else:
        memory = parse_bytes(settings.memory_limit)
    return LocalSize(count, threads, memory)


@contextmanager
def open_cluster(settings: ClusterSettings) -> Iterator[str]:
    """Address of a scheduler with at least one worker; closed again when it is ours.

    Raises
    ------
    ClusterError
        When no scheduler answers, no worker joins in time, or workers run another
        version of this package.
    """
    import dask
    from distributed import LocalCluster

    with ExitStack() as stack:
        if settings.kind == "address":
            if settings.address is None:  # refused by the settings already
                raise ClusterError("cluster.address is not set")
            address = settings.address
        else:
            size = local_size(settings)
            # The plan owns memory: Dask must neither spill nor pause behind its back.
            stack.enter_context(
                dask.config.set(
                    {
                        "distributed.worker.memory.target": False,
                        "distributed.worker.memory.spill": False,
                        "distributed.worker.memory.pause": False,
                        "distributed.comm.timeouts.connect": "60s",
                    }
                )
            )
            try:
                cluster = LocalCluster(
                    n_workers=size.workers,
                    threads_per_worker=size.threads,
                    memory_limit=size.memory,
                    host="127.0.0.1",
                    # No dashboard, and its port on loopback, any that is free.
                    scheduler_kwargs={
                        "dashboard": False,
                        "dashboard_address": "127.0.0.1:0",
                    },
                    worker_dashboard_address="127.0.0.1:0",
                    silence_logs=logging.ERROR,
                )
            except (OSError, RuntimeError, TimeoutError) as error:
                raise ClusterError(
                    f"a local Dask cluster of {size.workers} workers cannot be "
                    f"started ({error}): check cluster.workers and cluster.memory_limit"
                ) from error
            stack.callback(cluster.close, timeout=30)
            address = cluster.scheduler_address
        with connect(address, settings.timeout) as client:
            _wait_for_worker(client, address, settings.timeout)
            _check_versions(client)
        yield address


@contextmanager
def connect(address: str, timeout: float = 60.0) -> Iterator[Client]:
    """A client of a running scheduler.

    Raises
    ------
    ClusterError
        When no scheduler answers there.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=timeout)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: start one with `dask scheduler`, "
            "or correct cluster.address"
        ) from error
    with client:
        yield client


def workers(client: Client) -> dict[str, int]:
    """Threads of every live worker by address, in address order."""
    found = client.scheduler_info(n_workers=-1)["workers"]
    return {address: int(found[address]["nthreads"]) for address in sorted(found)}


def settle(client: Client, settings: Settings) -> Settings:
    """The settings with a backend that every worker has, ``cpu`` or ``gpu``.

    Raises
    ------
    SettingsError
        When a GPU is asked for and some worker has none.
    """
    if settings.backend == "cpu":
        return settings
    found = settle_backend(client, settings.backend)
    if found == "cpu":
        choose(found, settings.reservoir.precision)
    return settings.model_copy(update={"backend": found})


def settle_backend(client: Client, wanted: str) -> str:
    """``cpu`` or ``gpu``: one for all workers, or where a node is would show.

    Raises
    ------
    SettingsError
        When a GPU is asked for and some worker has none.
    """
    if wanted == "cpu":
        return wanted
    found = client.run(_why_no_gpu)
    without = {address: why for address, why in sorted(found.items()) if why}
    if not without:
        return "gpu" if found else "cpu"
    address, why = next(iter(without.items()))
    if wanted == "gpu":
        raise SettingsError(
            f"backend = gpu cannot be used on {len(without)} of {len(found)} workers, "
            f"{address} first: {why}"
        )
    if len(without) < len(found):
        log.warning(
            "%d of %d workers have no GPU (%s): CPUs are used on all",
            len(without),
            len(found),
            why,
        )
    return "cpu"


def _why_no_gpu() -> str:
    return gpu_facts().reason


def _wait_for_worker(client: Client, address: str, timeout: float) -> None:
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        raise ClusterError(
            f"the scheduler at {address} has no workers after {timeout:g} s: start "
            "some with `dask worker`"
        ) from error


def _version() -> str:
    from xnq_dist._version import __version__ as version

    return version


def _check_versions(client: Client) -> None:
    found = client.run(_version, on_error="return")
    for address, version in found.items():
        if isinstance(version, BaseException):
            raise ClusterError(
                f"worker {address} cannot import xnq_dist ({version}): install "
                f"xnq-dist {__version__} where the workers run"
            )
        if version != __version__:
            raise ClusterError(
                f"worker {address} has xnq-dist {version}, this is {__version__}: "
                "install the same version everywhere"
            )
