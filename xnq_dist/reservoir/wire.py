"""Sends blocks between workers over Dask's connections, with its non-public interface.

The non-public parts of ``distributed`` used here: a worker's ``handlers`` (coroutines
by message name), ``rpc`` (connections to other workers), ``loop`` and ``state.tasks``,
and the byte stream of a TCP or TLS connection, ``stream``, which is tornado's public
``IOStream``. Dask opens the connections, so TLS and all protocols are supported and no
other port is opened.

Each worker has one connection to each worker that it sends to. The sender sends blocks,
each a head (generation, owner) and the rows' bytes; the receiver sends back the
generations it has reached, which limit how far a sender may be ahead. On a byte stream
the kernel copies between sockets and reused memory. Dask's messages would allocate new
memory for each message, whose first access takes longer than the transfer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bytes, Ints
from xnq_dist.reservoir.mailbox import Mailbox
from xnq_dist.reservoir.pipes import HEAD, Inbox, Messages, Pipe, PipeOutbox, Stream

__all__ = ["Abandoned", "Outgoing", "PeerLost", "Wire", "hold_slot"]

log = logging.getLogger(__name__)

CHUNK = 1 << 20
"""Bytes copied and written at a time: they are still in a core's cache when the kernel
copies them."""
PARALLEL_BLOCKS = 4
"""Maximum number of blocks sent at a time, each to another worker."""
POLL = 0.5
"""Seconds between two checks whether peers and the task are still alive."""


@dataclass(frozen=True)
class Outgoing:
    """A block to be sent to another worker."""

    worker: str
    generation: int
    owner: int
    rows: Ints
    """Rows of the owner's states, in the order of the block."""
    copy_rows: Callable[[Ints, NDArray[np.floating]], None]
    """``copy_rows(rows, out)`` writes the values of a few rows to `out`, shape (n, w);
    called later, in the loop's thread."""
    width: int
    dtype: np.dtype[Any]


class PeerLost(Exception):  # noqa: N818 - an event, which the driver handles
    """A worker that should send or receive does not answer."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker = worker
        self.reason = reason

    def __str__(self) -> str:
        return f"worker {self.worker} {self.reason}"


class Abandoned(Exception):  # noqa: N818 - an event, which the driver handles
    """The result of the running task is no longer needed."""


_mailboxes: dict[tuple[str, str], Inbox] = {}
"""Inboxes by (worker, run); removed together with the run's states."""


class Wire:
    """Sends blocks of one run from this worker and fills its mailbox.

    Made in a task; then used by tasks on the same worker, one at a time, and closed
    when blocks are no longer needed. The unique name `run` is the same on all workers;
    a worker that does not answer for `timeout` seconds is lost.
    """

    def __init__(self, run: str, mailbox: Mailbox, timeout: float) -> None:
        from distributed import get_worker

        self._worker: Any = get_worker()
        loop: Any = self._worker.loop
        self._loop: asyncio.AbstractEventLoop = loop.asyncio_loop
        self._run = run
        self._timeout = timeout
        self._sending: dict[Future[None], tuple[int, str]] = {}
        # These three are used by the loop's thread only.
        self._parallel = asyncio.Semaphore(PARALLEL_BLOCKS)
        self._spare: list[Bytes] = []
        self._outboxes: dict[str, PipeOutbox] = {}
        self._inbox = Inbox(mailbox)
        mailbox.on_reach = self._reached
        _mailboxes[self._worker.address, run] = self._inbox
        _answer_messages(self._worker)

    def send(self, block: Outgoing) -> None:
        """Send a block, in the background."""
        sent = asyncio.run_coroutine_threadsafe(self._deliver(block), self._loop)
        self._sending[sent] = (block.generation, block.worker)

    def flush(self, generation: int, look: Callable[[Sequence[str]], None]) -> None:
        """Wait until all blocks up to a generation are sent, else raise `PeerLost`.

        `look` is called twice a second with the worker that is waited for.
        """
        for sent, (number, worker) in list(self._sending.items()):
            while number <= generation and not sent.done():
                if not wait([sent], POLL).done:
                    look([worker])
            if sent.done():
                del self._sending[sent]
                if sent.cancelled():
                    raise PeerLost(worker, "accepts no blocks: sending was cancelled")
                error = sent.exception()
                if isinstance(error, OSError | TimeoutError):
                    raise PeerLost(worker, f"accepts no blocks: {error}") from error
                if error is not None:
                    raise error

    def look(self, workers: Sequence[str]) -> None:
        """Raise `Abandoned` if the task was released, `PeerLost` for a lost worker."""
        self.check()
        for worker in workers:
            asked = asyncio.run_coroutine_threadsafe(self._ask(worker), self._loop)
            try:
                known = asked.result(self._timeout + POLL)
            except (OSError, TimeoutError) as error:
                why = f"has not answered for {self._timeout:g} s ({error})"
                log.warning("worker %s %s: these supersteps are stopped", worker, why)
                raise PeerLost(worker, why) from error
            if not known:
                raise PeerLost(worker, "no longer holds states of this embedding")
        if self._inbox.lost:
            worker = workers[0] if workers else ""
            raise PeerLost(worker, f"or another stopped sending: {self._inbox.lost}")

    def check(self) -> None:
        """Raise `Abandoned` if the running task's future was released.

        Dask cannot end a thread: a released task runs until it checks this itself.
        """
        key = self._worker.get_current_task()
        task = self._worker.state.tasks.get(key)
        if task is None or task.state in ("cancelled", "released", "forgotten"):
            raise Abandoned(f"the future of {key} was released")

    def close(self) -> None:
        """Stop sending and receiving."""
        _mailboxes.pop((self._worker.address, self._run), None)
        try:
            self._loop.call_soon_threadsafe(self._hang_up)
        except RuntimeError:
            log.debug("the worker's loop ended before its connections")

    def _hang_up(self) -> None:
        for sent in self._sending:
            sent.cancel()
        self._sending.clear()
        for worker, outbox in self._outboxes.items():
            if outbox.listening is not None:
                outbox.listening.cancel()
            if outbox.comm is not None:
                outbox.comm.abort()
                self._worker.rpc.reuse(worker, outbox.comm)
        for comm in list(self._inbox.senders):
            comm.abort()

    def _reached(self, generation: int) -> None:
        self._loop.call_soon_threadsafe(self._inbox.tell, generation)

    async def _ask(self, worker: str) -> bool:
        asking = self._worker.rpc(worker).xnq_alive(run=self._run)
        return bool(await asyncio.wait_for(asking, self._timeout))

    async def _deliver(self, block: Outgoing) -> None:
        outbox = self._outboxes.setdefault(block.worker, PipeOutbox())
        async with outbox.turn:
            pipe = outbox.pipe or await self._open(block.worker, outbox)
            await outbox.admitted(block.generation)
            # The receiver has admitted the block, so this cannot cause a deadlock.
            async with self._parallel:
                head = HEAD.pack(block.generation, block.owner)
                await pipe.write(memoryview(head))
                await self._pour(pipe, block)

    async def _open(self, worker: str, outbox: PipeOutbox) -> Pipe:
        outbox.comm = await self._worker.rpc.connect(worker)
        await outbox.comm.write({"op": "xnq_blocks", "run": self._run, "reply": False})
        outbox.pipe = _pipe(outbox.comm)
        outbox.listening = asyncio.ensure_future(outbox.listen())
        return outbox.pipe

    async def _pour(self, pipe: Pipe, block: Outgoing) -> None:
        """Copy a chunk of rows while the kernel takes the previous one."""
        row = block.width * block.dtype.itemsize
        step = max(1, CHUNK // row)
        buffers = [self._buffer(step * row) for _ in range(2)]
        sent: list[Awaitable[None] | None] = [None, None]
        for number, first in enumerate(range(0, len(block.rows), step)):
            some, at = block.rows[first : first + step], number % 2
            if (before := sent[at]) is not None:
                await before
            part = buffers[at][: len(some) * row]
            block.copy_rows(some, part.view(block.dtype).reshape(-1, block.width))
            sent[at] = pipe.write(part.data)
        for last in sent:
            if last is not None:
                await last
        # Not after a failure: the connection may still use the buffers.
        self._spare += buffers

    def _buffer(self, size: int) -> Bytes:
        if self._spare and len(self._spare[-1]) >= size:
            return self._spare.pop()
        return np.empty(max(size, CHUNK), np.uint8)


def _pipe(comm: Any) -> Pipe:
    from distributed.protocol.serialize import to_serialize

    stream = getattr(comm, "stream", None)
    return Messages(comm, to_serialize) if stream is None else Stream(stream)


def _answer_messages(worker: Any) -> None:
    """Install a worker's handlers that receive blocks; unknown runs are refused."""
    address = worker.address

    async def xnq_blocks(comm: Any, run: str) -> None:
        inbox = _mailboxes.get((address, run))
        if inbox is None:
            comm.abort()
            return
        pipe = inbox.senders[comm] = _pipe(comm)
        try:
            inbox.tell_one(comm, inbox.mailbox.generation)
            head = memoryview(bytearray(HEAD.size))
            while True:
                await pipe.read_into(head)
                generation, owner = HEAD.unpack(head)
                block = inbox.mailbox.block(generation, owner)
                await pipe.read_into(block.reshape(-1).view(np.uint8).data)
                inbox.mailbox.put(generation, owner)
        except OSError as error:
            inbox.lost = str(error) or type(error).__name__
        finally:
            del inbox.senders[comm]
            comm.abort()

    async def xnq_alive(run: str) -> bool:
        return (address, run) in _mailboxes

    worker.handlers.setdefault("xnq_blocks", xnq_blocks)
    worker.handlers.setdefault("xnq_alive", xnq_alive)


def hold_slot(seconds: float) -> Callable[[float], None]:
    """A function that releases the task's thread once the task has waited too long.

    Otherwise two runs on the same workers could wait for each other forever, each with
    a thread that the other's task needs. It is called with the seconds waited.
    """
    from distributed import secede

    seceded = False

    def give_up(waited: float) -> None:
        nonlocal seceded
        if not seceded and waited >= seconds:
            seceded = True
            secede()

    return give_up
