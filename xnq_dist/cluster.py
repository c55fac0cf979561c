"""A Dask client from a setting."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from xnq_dist._version import __version__
from xnq_dist.backend import (
    choose,
    cuda_cluster,
    device_share,
    gpu_facts,
    need_cuda,
    ucx_installed,
)
from xnq_dist.config import Settings
from xnq_dist.errors import (
    ClusterError,
    ConnectionLostError,
    InfrastructureError,
    SettingsError,
)
from xnq_dist.sections import ClusterSettings
from xnq_dist.sizes import parse_bytes
from xnq_dist.terminal import kept_from_children

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "LocalSize",
    "connect",
    "device_memory",
    "local_size",
    "open_cluster",
    "settle",
    "settle_backend",
    "smallest_memory",
    "workers",
]

log = logging.getLogger(__name__)

DEVICE_SHARE = 0.9
"""Of a GPU's memory that workers plan with; the rest is the driver's and libraries'."""

TERMINATE = 1.15
"""Of its memory limit that a local worker may be seen with: the plan fills the limit,
and its figures are not better than this."""


@dataclass(frozen=True)
class LocalSize:
    """Shape of a local cluster."""

    workers: int
    threads: int
    memory: int
    """Bytes a worker may use."""
    device: int = 0
    """Bytes of a GPU's memory that a worker may use; 0: it has none."""


def local_size(settings: ClusterSettings, kept: int = 0) -> LocalSize:
    """Workers, threads and memory of a local cluster.

    Up to four workers share the processors; nine tenths of the memory that is free
    now is divided among them. With ``cuda``: a worker of one thread for each GPU.

    Parameters
    ----------
    kept
        Bytes of the free memory that this process is yet to take for itself.
    """
    if settings.kind == "cuda":
        return _cuda_size(settings)
    # The affinity mask, not the processors there are: batch systems set it.
    processors = len(os.sched_getaffinity(0))
    count = min(4, processors) if settings.workers == "auto" else settings.workers
    threads = (
        max(1, processors // count) if settings.threads == "auto" else settings.threads
    )
    if settings.memory_limit == "auto":
        free = psutil.virtual_memory().available
        # Whether that is enough is for the plan to say, in a sentence.
        memory = int(max(free - kept, free // 10) * 0.9) // count
    else:
        memory = parse_bytes(settings.memory_limit)
    return LocalSize(count, threads, memory)


def _cuda_size(settings: ClusterSettings) -> LocalSize:
    # With the memory given, a plan can be made on a machine without a GPU.
    facts = gpu_facts() if settings.device_memory != "auto" else need_cuda()
    planned = 1 if settings.workers == "auto" else settings.workers
    devices = facts.devices or planned
    count = devices if settings.workers == "auto" else min(devices, settings.workers)
    threads = 1 if settings.threads == "auto" else settings.threads
    memory, device = settings.memory_limit, settings.device_memory
    if memory == "auto":
        memory = int(psutil.virtual_memory().available * 0.9) // count
    if device == "auto":
        device = int(facts.memory * DEVICE_SHARE)
    return LocalSize(count, threads, parse_bytes(memory), parse_bytes(device))


def _start(settings: ClusterSettings, size: LocalSize, preload: str) -> Any:
    """A cluster of this machine's processors or GPUs.

    Raises
    ------
    ClusterError
        When a package or device is missing.
    """
    import dask
    from distributed import LocalCluster

    options: dict[str, Any] = {
        "n_workers": size.workers,
        "threads_per_worker": size.threads,
        "memory_limit": size.memory,
        "host": "127.0.0.1",
        # No dashboard, and its port on loopback, any that is free.
        "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        "worker_dashboard_address": "127.0.0.1:0",
        "silence_logs": logging.ERROR,
    }
    if settings.kind != "cuda":
        if preload:
            users = dask.config.get("distributed.worker.preload") or []
            options["preload"] = [*users, preload]
        return LocalCluster(**options)
    wanted = settings.protocol
    ucx = wanted == "ucx" or (wanted == "auto" and ucx_installed())
    return cuda_cluster(
        **options,
        protocol="ucx" if ucx else "tcp",
        # The plan owns the device's memory: nothing spills, and the pool has an end.
        device_memory_limit=None,
        rmm_pool_size=size.device // 2,
        rmm_maximum_pool_size=size.device,
        rmm_allocator_external_lib_list=["cupy"],
    )


@contextmanager
def open_cluster(
    settings: ClusterSettings, preload: str = "", kept: int = 0
) -> Iterator[str]:
    """Address of a scheduler with at least one worker; closed again when it is ours.

    Parameters
    ----------
    preload
        A module that workers of ours import before they join, GPUs' (which dask-cuda
        sets up) aside; empty: none.
    kept
        As for `local_size`.

    Raises
    ------
    InfrastructureError
        When no scheduler answers, or no worker joins in time.
    ClusterError
        When the cluster cannot be started, or workers run another version of this
        package.
    """
    import dask
    import distributed  # noqa: F401 - its defaults must be there before ours

    with ExitStack() as stack:
        if settings.kind == "address":
            if settings.address is None:  # refused by the settings already
                raise ClusterError("cluster.address is not set")
            address = settings.address
        else:
            size = local_size(settings, kept)
            # The plan owns memory: Dask must neither spill nor pause behind its back.
            stack.enter_context(
                dask.config.set(
                    {
                        "distributed.worker.memory.target": False,
                        "distributed.worker.memory.spill": False,
                        "distributed.worker.memory.pause": False,
                        "distributed.worker.memory.terminate": TERMINATE,
                        "distributed.comm.timeouts.connect": "60s",
                    }
                )
            )
            try:
                with kept_from_children():
                    cluster = _start(settings, size, preload)
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
    InfrastructureError
        When no scheduler answers there.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=timeout)
    except (OSError, TimeoutError, ValueError) as error:
        raise InfrastructureError(
            f"no Dask scheduler answers at {address}: start one with `dask scheduler`, "
            "or correct cluster.address, and run again to resume"
        ) from error
    with client:
        yield client


def workers(client: Client) -> dict[str, int]:
    """Threads of every live worker by address, in address order.

    Raises
    ------
    ConnectionLostError
        When the scheduler is gone.
    """
    found = _told(client)
    return {address: int(found[address]["nthreads"]) for address in sorted(found)}


def smallest_memory(client: Client) -> int:
    """Bytes that the worker with the least may use; 2^62 where none says."""
    # A worker without a limit says 0: then the machine's own memory is unknown here.
    limits = [int(told["memory_limit"]) or 2**62 for told in _told(client).values()]
    return min(limits, default=2**62)


def _told(client: Client) -> dict[str, Any]:
    """What the scheduler says of each worker, by address, asked now.

    `Client.scheduler_info` would not do: what it returns is kept in the client, whose
    own clock may have put an answer without any workers there in the meantime
    (distributed 2026.8). On a busy machine all workers then seem to be lost.
    """
    try:
        if client.scheduler is None:
            raise ConnectionError("the client is closed")
        found = client.sync(client.scheduler.identity, n_workers=-1)
    except OSError as error:
        raise ConnectionLostError(
            f"the Dask scheduler was lost ({error}): start it again if it is yours, "
            "and run again to resume"
        ) from error
    told: dict[str, Any] = found["workers"]
    return told


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
    # A worker that is lost meanwhile says nothing; the stage goes on without it.
    told = client.run(_why_no_gpu, on_error="return")
    found = {a: why for a, why in told.items() if isinstance(why, str)}
    without = {address: why for address, why in sorted(found.items()) if why}
    if not without:
        return "gpu" if found or wanted == "gpu" else "cpu"
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


def device_memory(client: Client, settings: ClusterSettings) -> int:
    """Bytes of device memory that a worker may use, the least of all workers.

    Workers that share a GPU share its memory. Every worker must have one.
    """
    if settings.device_memory != "auto":
        return parse_bytes(settings.device_memory)
    # A worker that is lost meanwhile says nothing; the stage goes on without it.
    found = client.run(_device, on_error="return")
    there = [told for told in found.values() if isinstance(told, tuple)]
    if not there:
        raise ClusterError(
            "no worker tells its GPU's memory: set cluster.device_memory, or "
            "backend = cpu"
        )
    names = [name for name, _ in there]
    return min(int(size * DEVICE_SHARE) // names.count(name) for name, size in there)


def _device() -> tuple[str, int]:
    name, size = device_share()
    return f"{os.uname().nodename} {name}", size


def _wait_for_worker(client: Client, address: str, timeout: float) -> None:
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        raise InfrastructureError(
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
