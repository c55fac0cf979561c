"""Blocks from worker to worker by Dask's own connections: all that is not public.

What it uses of ``distributed`` beside the public interface: a worker's ``handlers``
(name -> coroutine for messages of that name), its ``rpc`` (pooled connections to other
workers), its ``loop`` and its ``state.tasks``. Connections are Dask's own, so TLS and
any protocol are respected and no port is opened. Nothing of Dask is imported outside
this module and ``exchange``.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.reservoir.mailbox import Mailbox

__all__ = ["Abandoned", "PeerLost", "Wire", "hold_slot"]

log = logging.getLogger(__name__)

CHUNK = 16 << 20
"""Bytes of a message. Measured: processor time of a transfer is 1.3 times that of a
plain socket with 16 MiB, 1.9 times with 4 MiB, 4 times with 1 MiB."""
LANES = 4
"""Blocks on their way at a time."""
KEPT = 256 << 20
"""Bytes of freed message buffers that the C library keeps for the next messages."""
POLL = 0.5
"""Seconds between two looks at whether peers and the task still live."""
HELD = 0.002
"""Seconds between two looks at whether a sender may go on."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_mailboxes: weakref.WeakValueDictionary[tuple[str, str], Mailbox] = (
    weakref.WeakValueDictionary()
)
"""(worker, run) -> its mailbox; gone with the run's states."""


class PeerLost(Exception):  # noqa: N818 - an event, not a fault of anybody
    """A worker that was to send or receive does not answer."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker = worker
        self.reason = reason

    def __str__(self) -> str:
        return f"worker {self.worker} {self.reason}"


class Abandoned(Exception):  # noqa: N818 - an event, not a fault of anybody
    """Nobody wants the running task's answer any more."""


class Wire:
    """Sends blocks of one run from this worker and fills its mailbox.

    Made inside a task; then used by tasks on the same worker, one at a time.

    Parameters
    ----------
    run
        Name of the run, the same on all its workers and used once.
    mailbox
        Where blocks from other workers go.
    timeout
        Seconds after which a worker that does not answer is taken for lost.
    """

    def __init__(self, run: str, mailbox: Mailbox, timeout: float) -> None:
        from distributed import get_worker

        self._worker: Any = get_worker()
        loop: Any = self._worker.loop
        self._loop: asyncio.AbstractEventLoop = loop.asyncio_loop
        self._run = run
        self._timeout = timeout
        # In the order of sending: no block waits for one of a later generation.
        self._lanes = asyncio.Semaphore(LANES)
        self._sending: dict[Future[None], tuple[int, str]] = {}
        self._cutters = ThreadPoolExecutor(1, thread_name_prefix="xnq-cut")
        _mailboxes[self._worker.address, run] = mailbox
        _answer_messages(self._worker)
        _keep_buffers()

    def send(
        self,
        worker: str,
        generation: int,
        owner: int,
        rows: NDArray[np.int64],
        cut: Callable[[NDArray[np.int64]], NDArray[np.floating]],
        row_bytes: int,
    ) -> None:
        """Send a block, in the background.

        Parameters
        ----------
        rows
            Rows of the owner's states, the block's in order.
        cut
            From some of these rows to their values; called chunk by chunk, later, in
            another thread.
        row_bytes
            Bytes of one row's values.
        """
        order = self._deliver(worker, generation, owner, rows, cut, row_bytes)
        sent = asyncio.run_coroutine_threadsafe(order, self._loop)
        self._sending[sent] = (generation, worker)

    def flush(self, generation: int, look: Callable[[Sequence[str]], None]) -> None:
        """Wait until all blocks up to a generation have arrived.

        Parameters
        ----------
        look
            Called with the workers waited for whenever it takes long.

        Raises
        ------
        PeerLost
            When one cannot be delivered.
        """
        for sent, (number, worker) in list(self._sending.items()):
            while number <= generation and not sent.done():
                if not wait([sent], POLL).done:
                    look([worker])
            if sent.done():
                del self._sending[sent]
                if sent.cancelled():
                    raise PeerLost(worker, "takes no blocks: sending was cancelled")
                error = sent.exception()
                if isinstance(error, OSError | TimeoutError):
                    raise PeerLost(worker, f"takes no blocks: {error}") from error
                if error is not None:
                    raise error

    def look(self, workers: Sequence[str]) -> None:
        """See that the task is still wanted and that workers answer for this run.

        Raises
        ------
        Abandoned, PeerLost
        """
        check_wanted(self._worker)
        for worker in workers:
            asked = asyncio.run_coroutine_threadsafe(self._ask(worker), self._loop)
            try:
                known = asked.result()
            except (OSError, TimeoutError) as error:
                why = f"has not answered for {self._timeout:g} s ({error})"
                log.warning("worker %s %s: giving the supersteps up", worker, why)
                raise PeerLost(worker, why) from error
            if not known:
                raise PeerLost(worker, "no longer holds states of this embedding")

    def check(self) -> None:
        """See that the running task is still wanted.

        Raises
        ------
        Abandoned
        """
        check_wanted(self._worker)

    def close(self) -> None:
        """Stop sending."""
        for sent in self._sending:
            sent.cancel()
        self._sending.clear()
        self._cutters.shutdown(wait=False)

    async def _ask(self, worker: str) -> bool:
        asking = self._worker.rpc(worker).xnq_alive(run=self._run)
        return bool(await asyncio.wait_for(asking, self._timeout))

    async def _deliver(
        self,
        worker: str,
        generation: int,
        owner: int,
        rows: NDArray[np.int64],
        cut: Callable[[NDArray[np.int64]], NDArray[np.floating]],
        row_bytes: int,
    ) -> None:
        from distributed.protocol.serialize import to_serialize

        peer = self._worker.rpc(worker)
        step = max(1, CHUNK // max(1, row_bytes))
        async with self._lanes:
            for first in range(0, len(rows), step):
                chunk = await self._loop.run_in_executor(
                    self._cutters, cut, rows[first : first + step]
                )
                taken = await peer.xnq_receive(
                    run=self._run,
                    generation=generation,
                    owner=owner,
                    first=first,
                    rows=to_serialize(chunk),
                )
                if not taken:
                    raise ConnectionError("it holds no states of this embedding")


def _keep_buffers() -> None:
    """Let freed message buffers serve the next messages.

    Dask allocates one for each message, and glibc asks the system for every piece
    above 128 KiB anew: first touches of its pages then take longer than the transfer.
    Larger arrays, states among them, still go back to the system when freed. Left as
    it is where the environment says something of it, or there is no glibc.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, CHUNK + CHUNK // 4)
        mallopt(_M_TRIM_THRESHOLD, KEPT)


def _answer_messages(worker: Any) -> None:
    """Have a worker take blocks in; messages of unknown runs are refused."""
    address = worker.address

    async def xnq_receive(
        run: str, generation: int, owner: int, first: int, rows: NDArray[np.floating]
    ) -> bool:
        mailbox = _mailboxes.get((address, run))
        if mailbox is None:
            return False
        mailbox.put(generation, owner, first, rows)
        del rows
        # The answer is held back while the sender is too far ahead: it waits for it.
        while not mailbox.admits(generation):
            del mailbox
            await asyncio.sleep(HELD)
            mailbox = _mailboxes.get((address, run))
            if mailbox is None:
                return False
        return True

    async def xnq_alive(run: str) -> bool:
        return (address, run) in _mailboxes

    worker.handlers.setdefault("xnq_receive", xnq_receive)
    worker.handlers.setdefault("xnq_alive", xnq_alive)


def check_wanted(worker: Any) -> None:
    """See that the running task is still wanted.

    Dask cannot end a thread: a released task runs on until it looks for itself.

    Raises
    ------
    Abandoned
        When nobody holds its future any more.
    """
    key = worker.get_current_task()
    task = worker.state.tasks.get(key)
    if task is None or task.state in ("cancelled", "released", "forgotten"):
        raise Abandoned(f"{key} is not wanted any more")


def hold_slot(seconds: float) -> Callable[[float], None]:
    """A function that gives the task's thread back to others once it waited too long.

    Two runs on the same workers could otherwise wait for each other for ever: each
    holds a thread that the other's task needs.

    Parameters
    ----------
    seconds
        Waiting time after which the slot is given up; called with seconds waited.
    """
    from distributed import secede

    given = False

    def give_up(waited: float) -> None:
        nonlocal given
        if not given and waited >= seconds:
            given = True
            secede()

    return give_up
