"""Sends blocks between workers as Dask's messages, like distributed's own shuffle.

A `Receiver` is a plugin of every worker: it answers the messages ``xnq_blocks`` and
``xnq_alive``, and puts blocks into the mailbox of their run. A `Wire`
is a run's sending end on one worker. Messages go over Dask's connections (TCP, TLS,
within a process); no other port is opened. What they use of ``distributed`` beside
its documented interface: a worker's ``handlers``, ``rpc``, ``loop`` and
``state.tasks``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from distributed import WorkerPlugin, get_worker, secede
from distributed.protocol.serialize import to_serialize

from xnq_dist.reservoir.mailbox import POLL, Abandoned, Block, Mailbox, PeerLost

__all__ = ["Outgoing", "Receiver", "Wire", "hold_slot"]

log = logging.getLogger(__name__)

MESSAGE = 16 << 20
"""Bytes from which on a message takes no further block."""


@dataclass(frozen=True, eq=False)
class Outgoing:
    """A block to be sent to another worker."""

    worker: str
    generation: int
    owner: int
    rows: Callable[[], Block]
    """Makes the block, shape (n, w); called when it is about to be sent."""
    sent: Future[None] = field(default_factory=Future)


class Receiver(WorkerPlugin):
    """Answers the messages of all runs on one worker; unknown runs are refused."""

    name = "xnq-dist"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Install the handlers."""
        self.runs: dict[str, Mailbox] = {}
        self._loop: asyncio.AbstractEventLoop = worker.loop.asyncio_loop
        self._news = asyncio.Event()
        for answer in (self.xnq_blocks, self.xnq_alive):
            worker.handlers[answer.__name__] = answer

    def open(self, run: str, mailbox: Mailbox) -> None:
        """Accept a run's blocks."""
        mailbox.on_reach = self._wake
        self.runs[run] = mailbox

    def close(self, run: str) -> None:
        """Refuse a run's blocks from now on."""
        self.runs.pop(run, None)
        self._wake()

    async def xnq_blocks(
        self, run: str, generation: int, owners: Sequence[int], blocks: Sequence[Block]
    ) -> None:
        """Put one generation's blocks of some owners into the mailbox.

        Answers once there is room for the generation; until then the sender sends this
        worker no others.
        """
        while not self._mailbox(run).admits(generation):
            self._news.clear()
            await self._news.wait()
        for owner, block in zip(owners, blocks, strict=True):
            self._mailbox(run).put(generation, owner, block)

    async def xnq_alive(self, run: str) -> bool:
        """Whether the run is open."""
        return run in self.runs

    def _mailbox(self, run: str) -> Mailbox:
        if run not in self.runs:
            raise ConnectionError("it no longer holds states of this embedding")
        return self.runs[run]

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            log.debug("the worker's loop ended before its runs")


class Wire:
    """Sends blocks of one run from this worker and fills its mailbox.

    Made in a task; then used by tasks on the same worker, one at a time, and closed
    when blocks are no longer needed. The unique name `run` is the same on all workers;
    a worker that does not answer for `timeout` seconds is lost.
    """

    def __init__(self, run: str, mailbox: Mailbox, timeout: float) -> None:
        self._worker: Any = get_worker()
        loop: Any = self._worker.loop
        self._loop: asyncio.AbstractEventLoop = loop.asyncio_loop
        self._run, self._timeout = run, timeout
        self._sending: list[Outgoing] = []
        # These two are used by the loop's thread only.
        self._queues: dict[str, deque[Outgoing]] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        receiver: Any = self._worker.plugins[Receiver.name]
        self._receiver: Receiver = receiver
        self._receiver.open(run, mailbox)

    def send(self, block: Outgoing) -> None:
        """Send a block, in the background."""
        self._sending.append(block)
        self._loop.call_soon_threadsafe(self._enqueue, block)

    def flush(self, generation: int) -> None:
        """Wait until all blocks up to a generation are sent, else raise `PeerLost`."""
        for block in [each for each in self._sending if each.generation <= generation]:
            while not wait([block.sent], POLL).done:
                self.look([block.worker])
            self._sending.remove(block)
            _raise_failure(block)

    def look(self, workers: Sequence[str]) -> None:
        """Raise `Abandoned` if the task was released, `PeerLost` for a lost worker."""
        self.check()
        for worker in workers:
            asked = asyncio.run_coroutine_threadsafe(self._ask(worker), self._loop)
            while not wait([asked], POLL).done:
                self.check()  # the driver may have lost the worker before
            try:
                known = asked.result(0)
            except (OSError, TimeoutError) as error:
                why = f"has not answered for {self._timeout:g} s ({error})"
                log.warning("worker %s %s: these supersteps are stopped", worker, why)
                raise PeerLost(worker, why) from error
            if not known:
                raise PeerLost(worker, "no longer holds states of this embedding")
        for block in self._sending:
            if block.sent.done():
                _raise_failure(block)

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
        self._receiver.close(self._run)
        try:
            self._loop.call_soon_threadsafe(self._stop)
        except RuntimeError:
            log.debug("the worker's loop ended before its connections")

    def _stop(self) -> None:
        for pump in self._pumps.values():
            pump.cancel()

    async def _ask(self, worker: str) -> bool:
        asking = self._worker.rpc(worker).xnq_alive(run=self._run)
        return bool(await asyncio.wait_for(asking, self._timeout))

    def _enqueue(self, block: Outgoing) -> None:
        self._queues.setdefault(block.worker, deque()).append(block)
        pump = self._pumps.get(block.worker)
        if pump is None or pump.done():
            sending = self._pump(block.worker)
            self._pumps[block.worker] = self._loop.create_task(sending)

    async def _pump(self, worker: str) -> None:
        """Send what is queued for a worker, one message at a time, in order."""
        queue, peer = self._queues[worker], self._worker.rpc(worker)
        while queue:
            generation, message = queue[0].generation, []
            try:
                blocks, size = [], 0
                while queue and queue[0].generation == generation and size < MESSAGE:
                    message.append(queue.popleft())
                    make = message[-1].rows
                    blocks.append(await self._loop.run_in_executor(None, make))
                    size += blocks[-1].nbytes
                await peer.xnq_blocks(
                    run=self._run,
                    generation=generation,
                    owners=[each.owner for each in message],
                    blocks=[to_serialize(block) for block in blocks],
                )
            except Exception as error:  # the task that waits for the block raises it
                for each in (*message, *queue):
                    each.sent.set_exception(error)
                queue.clear()
                return
            for each in message:
                each.sent.set_result(None)


def _raise_failure(block: Outgoing) -> None:
    """Raise what kept a block from being sent; its sending has ended."""
    error = block.sent.exception()
    if isinstance(error, OSError | TimeoutError):
        raise PeerLost(block.worker, f"accepts no blocks: {error}") from error
    if error is not None:
        raise error


def hold_slot(seconds: float) -> Callable[[float], None]:
    """A function that releases the task's thread once the task has waited too long.

    Otherwise two runs on the same workers could wait for each other forever, each with
    a thread that the other's task needs. It is called with the seconds waited.
    """
    seceded = False

    def give_up(waited: float) -> None:
        nonlocal seceded
        if not seceded and waited >= seconds:
            seceded = True
            secede()

    return give_up
