"""Bytes over a connection between workers, and the two ends of a run's connections.

Imports nothing of Dask: connections are given.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from xnq_dist.graph.arrays import Bytes
from xnq_dist.reservoir.mailbox import AHEAD, Mailbox

__all__ = ["HEAD", "Inbox", "Messages", "Pipe", "PipeOutbox", "Stream"]

MOST = 64 << 20
"""Bytes read at a time."""

HEAD = struct.Struct("<qq")
"""Generation and owner, before a block's bytes."""
_REACHED = struct.Struct("<q")


class Pipe(Protocol):
    """Bytes both ways over a connection. All fail with `OSError`."""

    def write(self, data: memoryview) -> Awaitable[None]:
        """Send, in order; done when the memory may be used again."""

    async def read_into(self, out: memoryview) -> None:
        """Fill with the next bytes."""


class Stream:
    """On the byte stream of TCP or TLS."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: memoryview) -> Awaitable[None]:
        """Send, in order; done when the kernel has it."""
        sent: Awaitable[None] = self._stream.write(data)
        return sent

    async def read_into(self, out: memoryview) -> None:
        """Fill with the next bytes."""
        for first in range(0, len(out), MOST):
            await self._stream.read_into(out[first : first + MOST])


class Messages:
    """In messages, for protocols that are no byte streams, such as within a process.

    `packed` has Dask send an array's memory apart from the message.
    """

    def __init__(self, comm: Any, packed: Callable[[Any], Any]) -> None:
        self._comm = comm
        self._packed = packed
        self._turn = asyncio.Lock()
        self._left = memoryview(b"")

    def write(self, data: memoryview) -> Awaitable[None]:
        """Send, in order; the memory may be used again at once."""
        # A copy: within a process the other side gets the memory itself.
        return asyncio.ensure_future(self._send(np.array(data)))

    async def _send(self, part: Bytes) -> None:
        async with self._turn:
            await self._comm.write({"part": self._packed(part)})

    async def read_into(self, out: memoryview) -> None:
        """Fill with the next bytes, wherever messages end."""
        at = 0
        while at < len(out):
            if not self._left:
                message = await self._comm.read()
                self._left = memoryview(message["part"]).cast("B")
            count = min(len(out) - at, len(self._left))
            out[at : at + count] = self._left[:count]
            at, self._left = at + count, self._left[count:]


@dataclass
class Inbox:
    """What a worker takes in of one run."""

    mailbox: Mailbox
    senders: dict[Any, Pipe] = field(default_factory=dict)
    """By connection."""
    lost: str = ""
    """Why a sender's connection ended."""

    def tell(self, generation: int) -> None:
        """Let senders know what is read."""
        for comm in list(self.senders):
            self.tell_one(comm, generation)

    def tell_one(self, comm: Any, generation: int) -> None:
        """Let one of them know."""
        try:
            told = self.senders[comm].write(memoryview(_REACHED.pack(generation)))
        except OSError as error:  # its reader ends too
            self.lost = self.lost or str(error)
        else:
            asyncio.ensure_future(told).add_done_callback(_seen)


@dataclass
class PipeOutbox:
    """The way to one worker."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One block at a time, in the order of sending."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    pipe: Pipe | None = None
    comm: Any = None
    listening: asyncio.Task[None] | None = None
    reached: int | None = None
    """Generation that the other side reads."""
    broken: str = ""

    async def listen(self) -> None:
        """Hear what the other side has reached, until the connection ends."""
        said = memoryview(bytearray(_REACHED.size))
        try:
            while self.pipe is not None:
                await self.pipe.read_into(said)
                (self.reached,) = _REACHED.unpack(said)
                self.news.set()
        except OSError as error:
            self.broken = str(error) or type(error).__name__
            self.news.set()

    async def admitted(self, generation: int) -> None:
        """Wait until the other side has memory for a generation."""
        while self.reached is None or generation > self.reached + AHEAD:
            if self.broken:
                raise ConnectionError(f"it holds no states any more ({self.broken})")
            self.news.clear()
            await self.news.wait()


def _seen(told: asyncio.Future[None]) -> None:
    """A failure to tell shows where the same connection is read."""
    if not told.cancelled():
        told.exception()
