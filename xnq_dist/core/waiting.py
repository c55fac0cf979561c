"""Waits for a Dask cluster; this package waits for workers only here.

Every wait ends if the cluster fails, but none limits how long work may take. A wait
checks the cluster once a second; it ends when the scheduler does not answer, or a
worker gives no sign of life, for `cluster.timeout` seconds (`TIMEOUT`).

A worker's sign of life is a new heartbeat in the scheduler's record. A worker process
sends one about every half second while its tasks run, as long as they release Python's
global interpreter lock from time to time. Python code does, and so do the kernels of
this package, NumPy, SciPy, scikit-learn and Arrow. A foreign call that holds the lock
for the complete timeout looks like a stopped process.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from xnq_dist.core.errors import ConnectionLostError, InfrastructureError

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = [
    "LOOKED",
    "TIMEOUT",
    "Heartbeats",
    "first_worker",
    "gather",
    "raise_failure",
    "result",
    "run_on_workers",
    "wait_all",
    "wait_some",
    "watched",
    "worker_records",
]

log = logging.getLogger(__name__)

T = TypeVar("T")
Look = Callable[[], object]
"""Called about once a second during a wait; ends the wait by an exception."""

TIMEOUT: ContextVar[float] = ContextVar("TIMEOUT", default=60.0)
"""Seconds without a sign of life after which a wait ends; set by `cluster.connect`."""

LOOKED: ContextVar[Callable[[str, Mapping[str, Any]], object]] = ContextVar(
    "LOOKED", default=lambda scheduler, records: None
)
"""Called with the scheduler's id and its record of each worker, by address, whenever a
wait checks the cluster."""

POLL = 1.0
"""Seconds between two checks of the cluster."""

CONFIRM = 2.0
"""Seconds after which a silent worker is checked again: after a machine was suspended,
its workers need a moment to send a heartbeat."""

RESTART, RETURN = 10.0, 30.0
"""Seconds for a silent worker's supervisor (Dask's nanny) to end it, and for new
workers to join when no other worker is left."""

DONE = ("finished", "error", "cancelled")
"""A future in any other state is in progress, also if its worker was lost."""


def worker_records(client: Client) -> dict[str, Any]:
    """The scheduler's current record of each worker, by address.

    `Client.scheduler_info` is not enough: the client caches it, and a periodic update
    may have replaced it by a version without any workers (distributed 2026.8). On a
    busy machine all workers then seem to be lost.

    Raises
    ------
    ConnectionLostError
        When the scheduler does not answer within the timeout.
    """
    identity = _asked(client, "identity", TIMEOUT.get(), n_workers=-1)
    records: dict[str, Any] = identity["workers"]
    LOOKED.get()(str(identity["id"]), records)
    return records


def _asked(client: Client, what: str, limit: float, **words: Any) -> Any:
    """The scheduler's answer to a call of its method `what` within `limit` seconds."""
    try:
        if client.scheduler is None:
            raise ConnectionError("the client is closed")
        method = getattr(client.scheduler, what)
        return client.sync(method, callback_timeout=limit, **words)
    except OSError as error:
        raise _scheduler_lost(error) from error


class Heartbeats:
    """Monitors the workers' heartbeats from call to call of `look`.

    Parameters
    ----------
    timeout
        Seconds without a heartbeat after which a worker is lost; None: `TIMEOUT`.
    """

    def __init__(self, client: Client, timeout: float | None = None) -> None:
        self._client = client
        self.timeout = TIMEOUT.get() if timeout is None else timeout
        self._heard: dict[str, tuple[float, float]] = {}
        """Last heartbeat by the scheduler's clock, and its arrival by the local one."""
        self._until = time.monotonic() + self.timeout
        """Local time at which the wait ends if no worker is alive."""

    def look(self, needed: Collection[str] | None = None) -> dict[str, int]:
        """Threads of every worker that is alive, by address, in order.

        A silent worker is removed from the cluster: other workers do its tasks again.

        Parameters
        ----------
        needed
            Workers to check; silence of others is ignored. None: all.

        Raises
        ------
        InfrastructureError
            When the scheduler does not answer, or no worker has given a sign of life,
            for the timeout.
        """
        records, silent = self._ask(needed)
        if silent:
            time.sleep(CONFIRM)
            records, silent = self._ask(needed)
        if silent:
            self._remove(silent)
        alive = sorted(set(records) - silent)
        if not alive and time.monotonic() > self._until:
            raise InfrastructureError(
                f"no Dask worker has given a sign of life for {self.timeout:g} s: "
                "start workers again if they are yours, and run again to resume"
            )
        return {address: int(records[address]["nthreads"]) for address in alive}

    def _ask(self, needed: Collection[str] | None) -> tuple[dict[str, Any], set[str]]:
        """All records, and the needed workers without a heartbeat for the timeout."""
        records = worker_records(self._client)
        now = time.monotonic()
        for address, record in records.items():
            if self._heard.get(address, (None,))[0] != record["last_seen"]:
                self._heard[address] = record["last_seen"], now
                self._until = max(self._until, now + self.timeout)
        checked = set(records) if needed is None else records.keys() & needed
        late = now - self.timeout
        return records, {each for each in checked if self._heard[each][1] < late}

    def _remove(self, silent: Collection[str]) -> None:
        names = sorted(silent)
        log.warning(
            "no sign of life from %s for %g s: removed from the cluster, other workers "
            "do the work again",
            ", ".join(names),
            self.timeout,
        )
        # The scheduler does the same after `distributed.scheduler.worker-ttl`: a nanny
        # starts the worker again; a worker without a nanny is removed.
        _asked(
            self._client,
            "restart_workers",
            2 * RESTART,
            workers=names,
            timeout=RESTART,
            wait_for_workers=False,
            on_error="return",
            stimulus_id=f"xnq-dist-silent-{time.time()}",
        )
        self._until = max(self._until, time.monotonic() + RETURN)


def first_worker(client: Client) -> dict[str, int]:
    """Wait for a worker to join; return threads by address, empty after the timeout."""
    end = time.monotonic() + TIMEOUT.get()
    while not (found := worker_records(client)) and time.monotonic() < end:
        time.sleep(POLL / 10)
    return {address: int(record["nthreads"]) for address, record in found.items()}


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
    on_progress: Callable[[int, int], object] | None = None,
) -> None:
    """Wait for all futures and raise the first failure; results stay on the workers.

    Parameters
    ----------
    on_progress
        Called with the numbers of done and of all futures, as they complete.
    """
    look = Heartbeats(client).look
    left = list(futures)
    while left:
        done, left = wait_some(left, look)
        for future in done:
            raise_failure(future)
        if on_progress is not None:
            on_progress(len(futures) - len(left), len(futures))


def raise_failure(future: Future[Any]) -> None:
    """Raise the error of a done future, if it failed.

    Raises
    ------
    ConnectionLostError
        When it was cancelled: the scheduler, or data that it needs, was lost.
    """
    if future.status == "cancelled":
        raise ConnectionLostError(
            "work on the Dask cluster was cancelled: the scheduler, or data on a "
            "worker, was lost; start them again if they are yours, and run again to "
            "resume"
        )
    if future.status == "error":
        future.result(timeout=TIMEOUT.get())


def gather(client: Client, futures: Sequence[Future[Any]]) -> list[Any]:
    """Wait for all futures and return their results in order."""
    wait_all(client, futures)
    return list(watched(lambda: client.gather(futures), Heartbeats(client).look))


def result(client: Client, future: Future[Any]) -> Any:
    """Wait for a future and return its result."""
    return gather(client, [future])[0]


def run_on_workers(client: Client, function: Callable[..., Any]) -> dict[str, Any]:
    """Run a function on each live worker outside of any task; results by address.

    If it fails, or the worker is lost during the call, the result is the exception. A
    parameter `dask_worker` of the function is the worker, as for `Client.run`.
    """
    beats = Heartbeats(client)
    there = list(beats.look())
    try:
        return watched(
            lambda: dict(client.run(function, workers=there, on_error="return")),
            beats.look,
        )
    except OSError as error:  # the scheduler's; workers' are in the results
        raise _scheduler_lost(error) from error


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


def _scheduler_lost(error: OSError) -> ConnectionLostError:
    return ConnectionLostError(
        f"the Dask scheduler was lost ({str(error) or type(error).__name__}): start it "
        "again if it is yours, and run again to resume"
    )
