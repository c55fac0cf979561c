"""Waits for a Dask cluster; this package waits for workers only here.

Every wait ends if the cluster fails, but none limits how long work may take. A wait
checks the cluster once a second; it ends when the scheduler does not answer, or there
is no worker, for `cluster.timeout` seconds (`TIMEOUT`). Dask's errors of a lost
scheduler are raised unchanged: `core.failures` has the sentence for them. The scheduler
removes a worker without a heartbeat: those that are started here for the same time,
others for their `distributed.scheduler.worker-ttl`, by default five minutes.

A worker process sends a heartbeat about every half second while its tasks run, as long
as they release Python's global interpreter lock from time to time. Python code does,
and so do the kernels of this package, NumPy, SciPy, scikit-learn and Arrow. A foreign
call that holds the lock for the complete time looks like a stopped process.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.progress import Counts, silent

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = [
    "TIMEOUT",
    "Heartbeats",
    "gather",
    "raise_failure",
    "result",
    "run_on_workers",
    "wait_all",
    "wait_some",
    "watched",
    "worker_records",
    "workers",
]

log = logging.getLogger(__name__)

T = TypeVar("T")
Look = Callable[[], object]
"""Called about once a second during a wait; ends the wait by an exception."""

TIMEOUT: ContextVar[float] = ContextVar("TIMEOUT", default=60.0)
"""Seconds without a sign of life after which a wait ends; set by `cluster.connect`."""

POLL = 1.0
"""Seconds between two checks of the cluster."""

DONE = ("finished", "error", "cancelled")
"""A future in any other state is in progress, also if its worker was lost."""


def worker_records(client: Client) -> dict[str, Any]:
    """The scheduler's current record of each worker, by address, in order.

    `Client.scheduler_info` is not enough: the client caches it, and a periodic update
    may have replaced it by a version without any workers (distributed 2026.8). On a
    busy machine all workers then seem to be lost.

    Raises
    ------
    OSError
        When the scheduler does not answer within the timeout.
    """
    if client.scheduler is None:
        raise ConnectionError("the client is closed")
    identity = client.sync(
        client.scheduler.identity, callback_timeout=TIMEOUT.get(), n_workers=-1
    )
    return dict(sorted(identity["workers"].items()))


def workers(client: Client) -> dict[str, int]:
    """Threads of every live worker by address, in order."""
    records = worker_records(client).items()
    return {address: int(record["nthreads"]) for address, record in records}


class Heartbeats:
    """Looks at the workers from call to call of `look`; logs those that were lost."""

    def __init__(self, client: Client) -> None:
        self._client, self._seen = client, time.monotonic()
        self._there: set[str] = set()

    def look(self) -> dict[str, int]:
        """Threads of every worker, by address, in order.

        The scheduler removes workers without a heartbeat: other workers do their tasks
        again.

        Raises
        ------
        InfrastructureError
            When there was no worker for the timeout.
        OSError
            When the scheduler does not answer within the timeout.
        """
        found = workers(self._client)
        if lost := sorted(self._there - found.keys()):
            log.warning("lost %s; workers left: %d", ", ".join(lost), len(found))
        self._there = {*found}
        if found:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > TIMEOUT.get():
            raise InfrastructureError(
                f"no Dask worker has given a sign of life for {TIMEOUT.get():g} s: "
                "start some with `dask worker` if they are yours, with more memory if "
                "they were lost, and run again to resume"
            )
        return found

    def wait_for_one(self) -> dict[str, int]:
        """Wait until there is a worker; returns and raises as `look`."""
        while not (found := self.look()):
            time.sleep(POLL / 10)
        return found


def wait_some(
    futures: Sequence[Future[Any]], look: Look
) -> tuple[list[Future[Any]], list[Future[Any]]]:
    """Wait until at least one future is done; return the done ones and the others.

    Parameters
    ----------
    look
        Called about once a second, such as `Heartbeats.look`.
    """
    # Dask's wait raises an exception at its timeout, which stays in a reference cycle
    # with the futures: workers would keep the results until the client's garbage
    # collector runs.
    looked = began = time.monotonic()
    while True:
        done: list[Future[Any]] = []
        left: list[Future[Any]] = []
        for future in futures:
            (done if future.status in DONE else left).append(future)
        if done or not left:
            return done, left
        now = time.monotonic()
        if now - looked > POLL:
            look()
            looked = time.monotonic()
        # A twentieth of the time so far: short tasks are found at once, long ones cost
        # little.
        time.sleep(min(max((now - began) / 20, 0.001), 0.02))


def wait_all(
    client: Client,
    futures: Sequence[Future[Any]],
    on_progress: Counts,
) -> None:
    """Wait for all futures; results stay on the workers.

    The failure of the first future that failed is raised once those before it are
    done: an error names the first fault of a table.

    Parameters
    ----------
    on_progress
        Called with the numbers of done and of all futures, as they complete.
    """
    look = Heartbeats(client).look
    left = list(futures)
    while left:
        _, left = wait_some(left, look)
        for future in takewhile(lambda each: each.status in DONE, futures):
            raise_failure(future)
        on_progress(len(futures) - len(left), len(futures))


def raise_failure(future: Future[Any]) -> None:
    """Raise the error of a done future, if it failed or was cancelled.

    Dask cancels a future when the scheduler, or data that it needs, is lost.
    """
    if future.status in ("error", "cancelled"):
        future.result(timeout=TIMEOUT.get())


def gather(
    client: Client,
    futures: Sequence[Future[Any]],
    on_progress: Counts = silent,
) -> list[Any]:
    """Wait for all futures as `wait_all` does, and return their results in order."""
    wait_all(client, futures, on_progress)
    return list(watched(lambda: client.gather(futures), Heartbeats(client).look))


def result(client: Client, future: Future[Any]) -> Any:
    """Wait for a future and return its result."""
    return gather(client, [future])[0]


def run_on_workers(client: Client, function: Callable[..., Any]) -> dict[str, Any]:
    """Run a function on each live worker outside of any task; results by address.

    If it fails, or the worker is lost during the call, the result is the exception. A
    parameter `dask_worker` of the function is the worker, as for `Client.run`.
    """
    return watched(
        lambda: dict(client.run(function, on_error="return")), Heartbeats(client).look
    )


def watched(call: Callable[[], T], look: Look) -> T:
    """Make a call to the cluster without a deadline; call `look` while waiting.

    The call runs on a separate thread, which is abandoned if `look` ends the wait.
    """
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()

    def make() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised in the caller
            answer.set_exception(error)

    threading.Thread(target=make, daemon=True, name="waits for Dask").start()
    while not concurrent.futures.wait([answer], POLL).done:
        look()
    return answer.result(timeout=0)
