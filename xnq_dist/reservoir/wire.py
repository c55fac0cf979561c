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
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from distributed import WorkerPlugin, get_worker, secede
from distributed.protocol.serialize import to_serialize

from xnq_dist.reservoir.mailbox import POLL, Block, Mailbox, WorkersLost

__all__ = ["Outgoing", "Receiver", "Wire"]

MESSAGE = 16 << 20
"""Bytes from which on a message takes no further block."""
PAUSE = 0.002
"""Seconds between two checks whether there is room for a block that came too early."""


@dataclass(frozen=True, eq=False)
class Outgoing:
    """A block to be sent to another worker."""

    worker: str
    generation: int
    owner: int
    rows: Callable[[], Block]
    """Makes the block, shape (n, w); called when it is about to be sent."""
    sent: Event = field(default_factory=Event)


class Receiver(WorkerPlugin):
    """Answers the messages of all runs on one worker; unknown runs are refused."""

    name = "xnq-dist"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Install the handlers."""
        self.runs: dict[str, Mailbox] = {}
        for answer in (self.xnq_blocks, self.xnq_alive):
            worker.handlers[answer.__name__] = answer

    async def xnq_blocks(
        self, run: str, places: Sequence[tuple[int, int]], blocks: Sequence[Block]
    ) -> None:
        """Put blocks of some generations and owners into the mailbox.

        Answers once there was room for all; until then the sender sends this worker no
        others.
        """
        for (generation, owner), block in zip(places, blocks, strict=True):
            while not self._mailbox(run).admits(generation):
                await asyncio.sleep(PAUSE)
            self._mailbox(run).put(generation, owner, block)

    async def xnq_alive(self, run: str) -> None:
        """Answers if the run is open."""
        self._mailbox(run)

    def _mailbox(self, run: str) -> Mailbox:
        if run not in self.runs:
            raise ConnectionError("it no longer holds states of this embedding")
        return self.runs[run]


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
        self._failure: Exception | None = None
        self._seceded = ""
        # These two are used by the loop's thread only.
        self._queues: dict[str, deque[Outgoing]] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        receiver: Any = self._worker.plugins[Receiver.name]
        self._runs: dict[str, Mailbox] = receiver.runs
        self._runs[run] = mailbox

    def send(self, block: Outgoing) -> None:
        """Send a block, in the background."""
        self._sending.append(block)
        self._loop.call_soon_threadsafe(self._enqueue, block)

    def flush(self, generation: int) -> None:
        """Wait until all blocks up to a generation are sent."""
        for block in [each for each in self._sending if each.generation <= generation]:
            while not block.sent.wait(POLL):
                self.look([block.worker])
            self._sending.remove(block)

    def look(self, workers: Sequence[str]) -> None:
        """Raise `WorkersLost` if one does not answer, or the task was released."""
        self.check()
        for worker in workers:
            asking = self._worker.rpc(worker).xnq_alive(run=self._run)
            limited = asyncio.wait_for(asking, self._timeout)
            asked = asyncio.run_coroutine_threadsafe(limited, self._loop)
            while not wait([asked], POLL).done:
                self.check()  # the driver may have lost the worker before
            try:
                asked.result(0)
            except OSError as error:
                what = f"gave no answer within {self._timeout:g} s: {error}"
                raise WorkersLost(f"worker {worker} {what}", {worker}) from error

    def check(self) -> None:
        """Raise what kept a block from being sent; `WorkersLost` for a released task.

        Dask cannot end a thread: a released task runs until it checks this itself.
        """
        if self._failure:
            raise self._failure
        key = self._worker.get_current_task()
        task = self._worker.state.tasks.get(key)
        if task is None or task.state in ("cancelled", "released", "forgotten"):
            raise WorkersLost(f"the future of {key} was released")

    def give_up_thread(self) -> None:
        """Release the running task's thread to other tasks.

        Otherwise two runs on the same workers could wait for each other forever, each
        with a thread that the other's task needs.
        """
        key = self._worker.get_current_task()
        if key != self._seceded:
            self._seceded = key
            secede()

    def close(self) -> None:
        """Stop sending and receiving."""
        self._runs.pop(self._run, None)
        with suppress(RuntimeError):  # the worker's loop ended before its connections
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        for pump in self._pumps.values():
            pump.cancel()

    def _enqueue(self, block: Outgoing) -> None:
        self._queues.setdefault(block.worker, deque()).append(block)
        pump = self._pumps.get(block.worker)
        if pump is None or pump.done():
            sending = self._pump(block.worker)
            self._pumps[block.worker] = self._loop.create_task(sending)

    async def _pump(self, worker: str) -> None:
        """Send what is queued for a worker, one message at a time, in order."""
        queue, peer = self._queues[worker], self._worker.rpc(worker)
        try:
            while queue:
                message, blocks, size = [], [], 0
                while queue and size < MESSAGE:
                    message.append(queue.popleft())
                    make = message[-1].rows
                    blocks.append(await self._loop.run_in_executor(None, make))
                    size += blocks[-1].nbytes
                await peer.xnq_blocks(
                    run=self._run,
                    places=[(each.generation, each.owner) for each in message],
                    blocks=[to_serialize(block) for block in blocks],
                )
                for each in message:
                    each.sent.set()
        except OSError as error:
            what = f"worker {worker} accepts no blocks: {error}"
            self._failure = WorkersLost(what, {worker})
        except Exception as error:  # the task that waits for the block raises it
            self._failure = error
