"""Waiting for a Dask cluster: the one place where this package waits for workers.

No wait here is without an end, and none limits how long work may take. While a wait
lasts it looks at the cluster once a second; it ends when the scheduler does not answer,
or a worker gives no sign of life, for `cluster.timeout` seconds (`TIMEOUT`).

A worker's sign of life is a new heartbeat in the scheduler's record. A worker process
sends one about every half second, whatever its tasks do, as long as they let go of
Python's global interpreter lock from time to time. Python code does, and so do the
kernels of this package, NumPy, SciPy, scikit-learn and Arrow; one foreign call that
holds the lock for the complete timeout looks like a stopped process.
"""

from __future__ import annotations

import concurrent.futures
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from xnq_dist.core.errors import ConnectionLostError, InfrastructureError

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = [
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
"""Called about once a second while a wait lasts; ends the wait by an exception."""

TIMEOUT: ContextVar[float] = ContextVar("TIMEOUT", default=60.0)
"""Seconds without a sign of life that end a wait; `cluster.connect` sets it."""

POLL = 1.0
"""Seconds between two looks at the cluster."""

QUICKEST, SLOWEST, PATIENCE = 0.001, 0.02, 0.05
"""Seconds between two looks at the futures, least and most, and their share of the
time waited so far."""

CONFIRM = 2.0
"""Seconds after which a silent worker is looked at again: a machine that was asleep
wakes up together with its workers."""

RESTART, RETURN = 10.0, 30.0
"""Seconds that a silent worker's supervisor (Dask's nanny) has to end it, and that new
workers have to join when no other worker is left."""

DONE = ("finished", "error", "cancelled")
"""A future in any other state is under way, again where its worker is gone."""


def worker_records(client: Client) -> dict[str, Any]:
    """The scheduler's record of each worker, by address, asked now.

    `Client.scheduler_info` is not enough: its answer is kept in the client, whose own
    clock may have replaced it by one without any workers (distributed 2026.8). On a
    busy machine all workers then seem to be lost.

    Raises
    ------
    ConnectionLostError
        When the scheduler does not answer within the timeout.
    """
    limit = TIMEOUT.get()
    try:
        if client.scheduler is None:
            raise ConnectionError("the client is closed")
        found = client.sync(
            client.scheduler.identity, n_workers=-1, callback_timeout=limit
        )
    except OSError as error:
        raise _scheduler_lost(str(error) or type(error).__name__) from error
    records: dict[str, Any] = found["workers"]
    return records


class Heartbeats:
    """The workers that give signs of life, observed from look to look.

    Parameters
    ----------
    timeout
        Seconds without a heartbeat after which a worker is given up; None: `TIMEOUT`.
    """

    def __init__(self, client: Client, timeout: float | None = None) -> None:
        self._client = client
        self._timeout = TIMEOUT.get() if timeout is None else timeout
        self._heard: dict[str, tuple[float, float]] = {}
        """The last heartbeat by the scheduler's clock, and when we saw it by ours."""
        self._last = time.monotonic()
        """When there was any heartbeat, by our clock."""
        self._removed = -math.inf

    def look(self, needed: Collection[str] | None = None) -> dict[str, int]:
        """Threads of every worker that gives signs of life, by address, in order.

        A silent worker is taken off the cluster: other workers do its tasks again.

        Parameters
        ----------
        needed
            Workers that are waited for; silence of others is ignored. None: all.

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
        now = time.monotonic()
        end = max(self._last + self._timeout, self._removed + RETURN)
        alive = sorted(set(records) - silent)
        if not alive and now > end:
            raise InfrastructureError(
                "no Dask worker has given a sign of life for "
                f"{now - self._last:.0f} s: start workers again if they are yours, and "
                "run again to resume"
            )
        return {address: int(records[address]["nthreads"]) for address in alive}

    def _ask(
        self, needed: Collection[str] | None
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """All records, and the needed workers without a heartbeat for the timeout."""
        records = worker_records(self._client)
        now = time.monotonic()
        for address, record in records.items():
            before = self._heard.get(address)
            if before is None or before[0] != record["last_seen"]:
                self._heard[address] = record["last_seen"], now
                self._last = now
        silent = frozenset(
            address
            for address in records
            if (needed is None or address in needed)
            and now - self._heard[address][1] > self._timeout
        )
        return records, silent

    def _remove(self, silent: Collection[str]) -> None:
        names = sorted(silent)
        log.warning(
            "no sign of life from %s for %g s: taken off the cluster, other workers do "
            "the work again",
            ", ".join(names),
            self._timeout,
        )
        # As the scheduler does by itself after `distributed.scheduler.worker-ttl`: a
        # nanny starts the worker anew, one without a nanny is let go.
        restart: Any = self._client.scheduler
        limit = 2 * RESTART
        try:
            self._client.sync(
                restart.restart_workers,
                workers=names,
                timeout=RESTART,
                wait_for_workers=False,
                on_error="return",
                stimulus_id=f"xnq-dist-silent-{time.time()}",
                callback_timeout=limit,
            )
        except OSError as error:
            raise _scheduler_lost(str(error) or type(error).__name__) from error
        self._removed = time.monotonic()


def first_worker(client: Client) -> dict[str, int]:
    """Wait for a worker to join; threads by address, empty when time is up."""
    end = time.monotonic() + TIMEOUT.get()
    while True:
        found = {a: int(r["nthreads"]) for a, r in worker_records(client).items()}
        if found or time.monotonic() > end:
            return found
        time.sleep(POLL / 10)


def wait_some(
    futures: Sequence[Future[Any]], look: Look
) -> tuple[list[Future[Any]], list[Future[Any]]]:
    """Wait until at least one future is done, in any way; those done, and the others.

    Parameters
    ----------
    look
        Called now and then, such as `Heartbeats.look`.
    """
    # Dask's own wait reports by an exception that time is up, and leaves it in a
    # reference cycle with the futures: workers would keep the results until the
    # client's garbage collector runs.
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
        time.sleep(min(max((now - began) * PATIENCE, QUICKEST), SLOWEST))


def wait_all(
    client: Client,
    futures: Sequence[Future[Any]],
    on_progress: Callable[[int, int], object] | None = None,
) -> None:
    """Wait for all futures; the first failure is raised, results stay where they are.

    Parameters
    ----------
    on_progress
        Called with the number of futures done, and of all, as they complete.
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
    """Raise what a future that is done has failed with, if it has.

    Raises
    ------
    ConnectionLostError
        When it was cancelled: the scheduler, or data that it needs, is lost.
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
    """Wait for all futures and bring their results here, in order."""
    wait_all(client, futures)
    return list(watched(lambda: client.gather(futures), Heartbeats(client).look))


def result(client: Client, future: Future[Any]) -> Any:
    """Wait for a future and bring its result here."""
    return gather(client, [future])[0]


def run_on_workers(client: Client, function: Callable[..., Any]) -> dict[str, Any]:
    """What a function returns on each live worker, by address, outside of any task.

    An exception where it fails, or where the worker is lost meanwhile. A parameter
    `dask_worker` of the function is the worker, as for `Client.run`.
    """
    from distributed.comm.core import CommClosedError

    beats = Heartbeats(client)
    there = list(beats.look())
    try:
        return watched(
            lambda: dict(client.run(function, workers=there, on_error="return")),
            beats.look,
        )
    except CommClosedError as error:  # those of workers are in the answer
        raise _scheduler_lost(str(error)) from error


def watched(call: Callable[[], T], look: Look) -> T:
    """Make a call to the cluster that has no deadline, and look meanwhile.

    The call is made on a thread of its own, which is left behind where `look` ends the
    wait.
    """
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()

    def make() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # whatever it is, it is raised in the caller
            answer.set_exception(error)

    threading.Thread(target=make, daemon=True, name="waits for Dask").start()
    while not concurrent.futures.wait([answer], POLL).done:
        look()
    return answer.result(timeout=0)


def _scheduler_lost(reason: str) -> ConnectionLostError:
    return ConnectionLostError(
        f"the Dask scheduler was lost ({reason}): start it again if it is yours, and "
        "run again to resume"
    )
