"""Dask clusters and clients from the settings; clusters of the kind ``address``."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from xnq_dist._version import __version__
from xnq_dist.core.backend import (
    GpuFacts,
    device_share,
    gpu_facts,
)
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import (
    ClusterError,
    InfrastructureError,
    SettingsError,
    causes,
)
from xnq_dist.core.limits import ALLOCATOR, free_memory
from xnq_dist.core.need import Workers, parse_bytes
from xnq_dist.core.sections import ClusterSettings
from xnq_dist.core.settings import Settings
from xnq_dist.core.terminal import kept_from_children
from xnq_dist.core.waiting import (
    TIMEOUT,
    Heartbeats,
    run_on_workers,
    worker_records,
    workers,
)

if TYPE_CHECKING:
    from distributed import Client, Security

__all__ = [
    "CLOSE",
    "PLANNED",
    "Connection",
    "connect",
    "connection_to",
    "device_memory",
    "free_memory",
    "local_size",
    "open_cluster",
    "settle",
    "smallest_memory",
    "threads_each",
    "workers",
    "workers_of",
]

log = logging.getLogger(__name__)

DEVICE_SHARE = 0.9
"""Share of a GPU's memory that workers may use; the driver and libraries need some."""

WORKER = "Dask Worker process"
"""Names of worker processes start with it."""

CLOSE = 10.0
"""Seconds to wait for a client to close if the scheduler does not answer."""

DASK_LOGS = "distributed", "distributed.client", "distributed.gc", "bokeh"
"""Loggers that Dask gives levels and handlers; others below them have none."""

NO_PAGES = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Options of a scheduler without a dashboard, whose port must still be on loopback, and
free."""

TERMINATE = 1.15
"""Share of its memory limit at which a local worker is ended: the plan uses up to the
limit, with about this accuracy."""

PLANNED: dict[str, Any] = {
    # The plan manages memory: Dask must neither spill nor pause.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": TERMINATE,
    # The profiler reads all threads' frames a hundred times a second; CPython 3.11.7
    # can deadlock there (python/cpython issue 106883), and nobody reads the profile.
    "distributed.worker.profile.enabled": False,
    "distributed.comm.timeouts.connect": "60s",
    # The index of 10 M labelled nodes is a task's argument of 80 MB: Dask's warning is
    # for programs that can avoid it.
    "distributed.admin.large-graph-warning-threshold": "1 GB",
    # No web pages: Dask's show logs, tasks and calls to anyone who can reach a port.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask's configuration for clusters started here and their workers."""


def _renew_dask_thread() -> None:
    """Replace the pool of Dask whose only thread a forked process does not have.

    Celery, Gunicorn and multiprocessing fork processes that may have computed before:
    their children would wait forever for the parent's thread.
    """
    if (used := sys.modules.get("distributed.utils")) is not None:
        used._offload_executor = ThreadPoolExecutor(1)  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_renew_dask_thread)


@dataclass(frozen=True)
class Connection:
    """Address and credentials of a scheduler; may hold a private key, so keep local."""

    address: str
    security: Security | None = field(default=None, repr=False)
    """Credentials; None: those of Dask's configuration."""


def local_size(
    settings: ClusterSettings,
    count: int,
    threads: int,
    free: int | None,
    device: int = 0,
) -> Workers:
    """Workers of a cluster that is started here.

    They have the threads and memory of the settings, else these threads, and together
    nine tenths of the free memory; the plan checks whether this is enough.

    Parameters
    ----------
    free
        Bytes of free memory; None: measured now.
    """
    memory = settings.memory_limit
    if memory == "auto":
        there = free_memory() if free is None else free
        memory = max(1, int(there * 0.9) // count)
    if settings.threads != "auto":
        threads = settings.threads
    return Workers(count, threads, parse_bytes(memory), device)


@contextmanager
def open_cluster(settings: ClusterSettings) -> Iterator[Connection]:
    """A scheduler with at least one worker; closed at the end if started here.

    Raises
    ------
    InfrastructureError
        When no scheduler answers, no worker joins in time, or all are lost at once.
    ClusterError
        When GPUs cannot be used, or workers run another version of this package.
    """
    import dask
    import distributed  # noqa: F401 - must set its defaults before the ones below

    with ExitStack() as stack:
        module = CLUSTERS.module_of(settings.kind)
        record = CLUSTERS[settings.kind]
        if record.running:
            connection = module.connection_to(settings)
        else:
            size = module.size(settings)
            nannies = "distributed.nanny.pre-spawn-environ"
            planned = {f"{nannies}.{name}": ALLOCATOR[name] for name in ALLOCATOR}
            planned["distributed.scheduler.worker-ttl"] = f"{settings.timeout} s"
            stack.enter_context(dask.config.set(PLANNED | planned))
            stack.callback(_kill_left, multiprocessing.active_children())
            try:
                with kept_from_children(), _quiet_dask(stack):
                    cluster = module.start(settings, size, stack)
            except (AssertionError, OSError, RuntimeError) as error:
                # A nanny of distributed 2026.8 raises AssertionError for a worker that
                # does not start in time. Without GPUs the usual cause is that the
                # processes were killed.
                kind = ClusterError if record.gpu else InfrastructureError
                # Dask's own errors do not name the cause.
                reason = str([*causes(error, contexts=True)][-1]) or "no answer in time"
                raise kind(
                    f"a Dask cluster of {size.count} workers cannot be started "
                    f"({reason}): run again; if it fails again, reduce "
                    "cluster.memory_limit, or set cluster.workers=1"
                ) from error
            stack.callback(_close, cluster, 30.0)
            if record.queued:
                # Here, where signals of a terminal are not blocked: this may take long.
                module.wait(cluster, settings, size)
            connection = Connection(cluster.scheduler_address, cluster.security)
        with connect(connection, settings.timeout) as client:
            Heartbeats(client).wait_for_one()
            _check_versions(client)
        yield connection


@contextmanager
def connect(connection: Connection, timeout: float = 60.0) -> Iterator[Client]:
    """A client of a running scheduler.

    Parameters
    ----------
    timeout
        Seconds without a sign of life after which every wait in the block ends.

    Raises
    ------
    InfrastructureError
        When no scheduler answers.
    """
    from distributed import Client

    address = connection.address
    try:
        client = Client(address, timeout=timeout, security=connection.security)
    except (OSError, ValueError) as error:
        raise InfrastructureError(
            f"no Dask scheduler answers at {address}: start one with `dask scheduler`, "
            "or correct cluster.address; a scheduler with TLS needs a tls:// address "
            "and its certificates in cluster.tls_ca, tls_cert and tls_key; run again "
            "to resume"
        ) from error
    token = TIMEOUT.set(timeout)
    try:
        yield client
    finally:
        TIMEOUT.reset(token)
        _close(client, CLOSE)


def connection_to(settings: ClusterSettings) -> Connection:
    """The connection to the scheduler at `cluster.address`; nothing is sent.

    Raises
    ------
    SettingsError
        When certificates are needed and are missing or cannot be read.
    """
    from distributed import Security

    address = settings.address or ""  # the settings have one for this kind
    if not address.startswith("tls://"):
        return Connection(address)
    files = {
        "tls_ca_file": settings.tls_ca,
        "tls_client_cert": settings.tls_cert,
        "tls_client_key": settings.tls_key,
    }
    # Without these settings, Dask's configuration names the certificates.
    security = Security(require_encryption=True, **(files if settings.tls_ca else {}))
    try:
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the certificates for {address} cannot be used ({error}): check that all "
            "three are PEM files and cluster.tls_key is the key to cluster.tls_cert"
        ) from error
    if context is None:
        raise SettingsError(
            f"{address} needs certificates: set cluster.tls_ca, cluster.tls_cert and "
            "cluster.tls_key to their files"
        )
    return Connection(address, security)


def threads_each(client: Client, tasks: int) -> int:
    """Threads for each of as many tasks as run at a time, at least 1."""
    return max(1, sum(workers(client).values()) // max(1, tasks))


def smallest_memory(client: Client) -> int:
    """Smallest memory limit of all workers in bytes; 2^62 if no worker has one."""
    # A worker without a limit reports 0.
    records = worker_records(client).values()
    return min((int(r["memory_limit"]) or 2**62 for r in records), default=2**62)


def workers_of(client: Client, settings: Settings) -> Workers:
    """The connected workers and what each may use; ``auto`` is not on GPUs."""
    on_gpus = settings.backend == "gpu"
    device = device_memory(client, settings.cluster) if on_gpus else 0
    threads, memory = workers(client).values(), smallest_memory(client)
    return Workers(max(1, len(threads)), max(threads, default=1), memory, device)


def settle(client: Client, settings: Settings) -> Settings:
    """The settings with a backend that every worker has, ``cpu`` or ``gpu``.

    It is the same for all workers, because results have other bits. States in half
    precision are for CPUs.

    Raises
    ------
    SettingsError
        When a GPU is requested and a worker has none.
    """
    on_cpus = settings.backend == "cpu" or settings.exchange.on_cpus
    # Ignore workers that are lost during the call; the stage runs without them.
    answers = {} if on_cpus else run_on_workers(client, gpu_facts)
    reasons = {
        at: facts.reason for at, facts in answers.items() if isinstance(facts, GpuFacts)
    }
    without = [f"{at} ({why})" for at, why in sorted(reasons.items()) if why]
    missing = f"{len(without)} of {len(reasons)} workers have no GPU"
    if without and settings.backend == "gpu":
        raise SettingsError(
            f"{missing}, as {without[0]}: set backend = cpu, or start these workers on "
            "machines with a GPU"
        )
    if 0 < len(without) < len(reasons):
        log.warning("%s: all workers use CPUs", missing)
    on_gpus = not without and (reasons or settings.backend == "gpu")
    return settings.model_copy(update={"backend": "gpu" if on_gpus else "cpu"})


def device_memory(client: Client, settings: ClusterSettings) -> int:
    """Bytes of device memory that each worker may use, the minimum of all workers.

    Workers that share a GPU share its memory. Every worker must have a GPU.
    """
    if settings.device_memory != "auto":
        return parse_bytes(settings.device_memory)
    # Ignore workers that are lost during the call; the stage runs without them.
    answers = run_on_workers(client, device_share)
    devices = [device for device in answers.values() if isinstance(device, tuple)]
    if not devices:
        raise ClusterError(
            "no worker reports the memory of its GPU: set cluster.device_memory, or "
            "backend = cpu"
        )
    names = [name for name, _ in devices]
    return min(int(size * DEVICE_SHARE) // names.count(name) for name, size in devices)


@contextmanager
def _quiet_dask(stack: ExitStack) -> Iterator[None]:
    """Dask's loggers are quiet until the stack is closed, and no handler is.

    Clusters that start (`silence_logs`) raise the levels of handlers of Dask's loggers,
    which may be those of the program too: they find none in the block.
    """
    with ExitStack() as block:
        for name in DASK_LOGS:
            logger = logging.getLogger(name)
            if logger.level < logging.CRITICAL:  # not by another open cluster
                stack.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.CRITICAL)
            for handler in [*logger.handlers]:
                logger.removeHandler(handler)
                block.callback(logger.addHandler, handler)
        yield


def _close(opened: Any, seconds: float) -> None:
    """Close a client or cluster; if it does not answer, it ends with this process."""
    try:
        opened.close(timeout=seconds)
    except TimeoutError:
        log.warning("%s was not closed within %g s", opened, seconds)
    except AssertionError as error:
        # Of Dask's cluster of jobs at its end, if one was not accepted.
        log.debug("%r when %s was closed", error, opened)


def _kill_left(before: Sequence[BaseProcess]) -> None:
    """Kill worker processes that outlive their cluster, except those of `before`.

    A stopped process ignores other signals, and this one would wait for it at its end.
    """
    for process in multiprocessing.active_children():
        if process not in before and process.name.startswith(WORKER):
            process.kill()


def _version() -> str:
    """The version of the process that calls it, such as a worker."""
    return __version__


def _check_versions(client: Client) -> None:
    """Refuse workers with another version."""
    for address, version in run_on_workers(client, _version).items():
        # Lost connections are OSErrors: ignore workers that are lost during the call.
        if version != __version__ and not isinstance(version, OSError):
            raise ClusterError(
                f"worker {address} has xnq-dist {version}, this process has "
                f"{__version__}: install the same version everywhere"
            )
