"""A Dask client from a setting."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from xnq_dist._version import __version__
from xnq_dist.core.backend import (
    choose,
    device_share,
    gpu_facts,
)
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import (
    ClusterError,
    ConnectionLostError,
    InfrastructureError,
    SettingsError,
)
from xnq_dist.core.settings_sections import ClusterSettings
from xnq_dist.core.sizes import parse_bytes
from xnq_dist.core.terminal import kept_from_children
from xnq_dist.core.waiting import TIMEOUT, first_worker, run_on_workers, worker_records

if TYPE_CHECKING:
    from distributed import Client, Security

__all__ = [
    "Connection",
    "LocalSize",
    "connect",
    "device_memory",
    "free_memory",
    "open_cluster",
    "settle",
    "settle_backend",
    "smallest_memory",
    "workers",
]

log = logging.getLogger(__name__)

DEVICE_SHARE = 0.9
"""Of a GPU's memory that workers plan with; the rest is the driver's and libraries'."""

CLOSE = 10.0
"""Seconds that closing a client may take where the scheduler does not answer."""

TERMINATE = 1.15
"""Of its memory limit that a local worker may be seen with: the plan fills the limit,
and its figures are not better than this."""


PRIVATE: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""No pages: those of Dask show logs, tasks and calls to whoever can reach a port."""


@dataclass(frozen=True)
class Connection:
    """How to reach a scheduler; for this process alone: it may hold a private key."""

    address: str
    security: Security | None = field(default=None, repr=False)
    """Credentials; None: as Dask is configured."""


@dataclass(frozen=True)
class LocalSize:
    """Shape of a local cluster."""

    workers: int
    threads: int
    memory: int
    """Bytes a worker may use."""
    device: int = 0
    """Bytes of a GPU's memory that a worker may use; 0: it has none."""


def free_memory() -> int:
    """Bytes of memory that are free on this machine now."""
    return int(psutil.virtual_memory().available)


@contextmanager
def open_cluster(settings: ClusterSettings, preload: str = "") -> Iterator[Connection]:
    """A scheduler with at least one worker; closed at the end if we started it.

    Parameters
    ----------
    preload
        A module that workers of ours import before they join, GPUs' (which dask-cuda
        sets up) aside; empty: none.

    Raises
    ------
    InfrastructureError
        When no scheduler answers, no worker joins in time, or they are lost at once.
    ClusterError
        When GPUs cannot be used, or workers run another version of this package.
    """
    import dask
    import distributed  # noqa: F401 - its defaults must be there before ours

    with ExitStack() as stack:
        module = CLUSTERS.module_of(settings.kind)
        record = CLUSTERS.record_of(settings.kind)
        if record.running:
            connection = module.connection_to(settings)
        else:
            size = module.size(settings)
            # The plan owns memory: Dask must neither spill nor pause behind its back.
            stack.enter_context(
                dask.config.set(
                    {
                        "distributed.worker.memory.target": False,
                        "distributed.worker.memory.spill": False,
                        "distributed.worker.memory.pause": False,
                        "distributed.worker.memory.terminate": TERMINATE,
                        # The profiler reads all threads' frames a hundred times a
                        # second; CPython 3.11.7 can deadlock there (python/cpython
                        # issue 106883), and nobody reads the profile.
                        "distributed.worker.profile.enabled": False,
                        "distributed.comm.timeouts.connect": "60s",
                        **PRIVATE,
                    }
                )
            )
            try:
                with kept_from_children(), _without_working_folder():
                    cluster = module.start(settings, size, preload)
            except (AssertionError, OSError, RuntimeError, TimeoutError) as error:
                # The first is how a nanny of distributed 2026.8 gives up a worker that
                # does not start in time.
                # Where GPUs are not to blame, something has ended the processes.
                kind = ClusterError if record.gpu else InfrastructureError
                raise kind(
                    f"a Dask cluster of {size.workers} workers cannot be "
                    f"started ({error}): run again, and if that does not help, check "
                    "cluster.workers and cluster.memory_limit"
                ) from error
            stack.callback(_close, cluster, 30.0)
            connection = Connection(cluster.scheduler_address, cluster.security)
        with connect(connection, settings.timeout) as client:
            if not first_worker(client):
                raise InfrastructureError(
                    f"the scheduler at {connection.address} has no workers after "
                    f"{settings.timeout:g} s: start some with `dask worker`"
                )
            if not _check_versions(client):
                raise InfrastructureError(
                    f"all workers of the scheduler at {connection.address} were lost: "
                    "run again once there are others"
                )
        yield connection


@contextmanager
def _without_working_folder() -> Iterator[None]:
    """Python processes that start in the block import nothing from where they start.

    A user's folder may hold a ``types.py``, and workers start as ``python -c``. The
    variable is taken back then, for it would reach the user's own processes as well; so
    a worker that is started again later does import from there.
    """
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def connect(connection: Connection, timeout: float = 60.0) -> Iterator[Client]:
    """A client of a running scheduler.

    Parameters
    ----------
    timeout
        Seconds without a sign of life that end every wait in the block (`waiting`).

    Raises
    ------
    InfrastructureError
        When no scheduler answers there, or it is lost meanwhile.
    """
    from distributed import CancelledError, Client
    from distributed.client import ClosedClientError

    address = connection.address
    try:
        client = Client(address, timeout=timeout, security=connection.security)
    except (OSError, TimeoutError, ValueError) as error:
        raise InfrastructureError(
            f"no Dask scheduler answers at {address}: start one with `dask scheduler`, "
            "or correct cluster.address; one with TLS needs a tls:// address and its "
            "own certificates in cluster.tls_ca, tls_cert and tls_key; run again to "
            "resume"
        ) from error
    token = TIMEOUT.set(timeout)
    try:
        yield client
    except (CancelledError, ClosedClientError) as error:
        raise ConnectionLostError(
            f"the connection to the Dask scheduler at {address} was lost ({error}): "
            "start it again if it is yours, and run again to resume"
        ) from error
    finally:
        TIMEOUT.reset(token)
        _close(client, CLOSE)


def _close(opened: Any, seconds: float) -> None:
    """Close a client or cluster; one that does not answer ends with this process."""
    try:
        opened.close(timeout=seconds)
    except TimeoutError:
        log.warning("%s was not closed within %g s", opened, seconds)


def workers(client: Client) -> dict[str, int]:
    """Threads of every live worker by address, in address order.

    Raises
    ------
    ConnectionLostError
        When the scheduler is gone.
    """
    found = worker_records(client)
    return {address: int(found[address]["nthreads"]) for address in sorted(found)}


def smallest_memory(client: Client) -> int:
    """Bytes that the worker with the least may use; 2^62 where none says."""
    # A worker without a limit says 0: then the machine's own memory is unknown here.
    records = worker_records(client).values()
    return min((int(r["memory_limit"]) or 2**62 for r in records), default=2**62)


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
    told = run_on_workers(client, _why_no_gpu)
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
    found = run_on_workers(client, _device)
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


def _version() -> str:
    from xnq_dist._version import __version__ as version

    return version


def _check_versions(client: Client) -> int:
    """Refuse workers with another version; how many answered."""
    found = run_on_workers(client, _version)
    # Lost connections are OSErrors: whoever is lost meanwhile says nothing.
    there = {at: told for at, told in found.items() if not isinstance(told, OSError)}
    for address, version in there.items():
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
    return len(there)
