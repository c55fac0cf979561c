"""Byte streams between workers, and both ends of a run's connections.

This module does not import Dask: callers pass the connections.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from xnq_dist.core.arrays import Bytes
from xnq_dist.reservoir.mailbox import AHEAD, Mailbox

__all__ = ["HEAD", "Inbox", "Messages", "Pipe", "PipeOutbox", "Stream"]

MAX_READ = 64 << 20
"""Maximum bytes read at a time."""

HEAD = struct.Struct("<qq")
"""Generation and owner, before a block's bytes."""
_REACHED = struct.Struct("<q")


class Pipe(Protocol):
    """Sends and receives bytes over a connection; all methods may raise `OSError`."""

    def write(self, data: memoryview) -> Awaitable[None]:
        """Send, in order; completes when the memory may be reused."""

    async def read_into(self, out: memoryview) -> None:
        """Fill with the next bytes."""


class Stream:
    """A pipe over the byte stream of TCP or TLS."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: memoryview) -> Awaitable[None]:
        """Send, in order; completes when the kernel has the bytes."""
        sent: Awaitable[None] = self._stream.write(data)
        return sent

    async def read_into(self, out: memoryview) -> None:
        """Fill with the next bytes."""
        for first in range(0, len(out), MAX_READ):
            await self._stream.read_into(out[first : first + MAX_READ])


class Messages:
    """A pipe over messages, for protocols without byte streams, such as in-process.

    `packed` wraps an array so that Dask sends its memory apart from the message.
    """

    def __init__(self, comm: Any, packed: Callable[[Any], Any]) -> None:
        self._comm = comm
        self._packed = packed
        self._turn = asyncio.Lock()
        self._left = memoryview(b"")

    def write(self, data: memoryview) -> Awaitable[None]:
        """Send, in order; the memory may be reused at once."""
        # Copy: within a process the receiver gets the memory itself.
        return asyncio.ensure_future(self._send(np.array(data)))

    async def _send(self, part: Bytes) -> None:
        async with self._turn:
            await self._comm.write({"part": self._packed(part)})

    async def read_into(self, out: memoryview) -> None:
        """Fill with the next bytes, across messages."""
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
    """The receiving end of one run on a worker."""

    mailbox: Mailbox
    senders: dict[Any, Pipe] = field(default_factory=dict)
    """Pipes of the senders by connection."""
    lost: str = ""
    """Why a sender's connection ended."""

    def tell(self, generation: int) -> None:
        """Send all senders the generation that is being read."""
        for comm in list(self.senders):
            self.tell_one(comm, generation)

    def tell_one(self, comm: Any, generation: int) -> None:
        """Send one sender the generation that is being read."""
        try:
            sent = self.senders[comm].write(memoryview(_REACHED.pack(generation)))
        except OSError as error:  # the coroutine that reads the connection fails too
            self.lost = self.lost or str(error)
        else:
            asyncio.ensure_future(sent).add_done_callback(_ignore_failure)


@dataclass
class PipeOutbox:
    """The sending end to one worker."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lets one block at a time through, in the order of sending."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    pipe: Pipe | None = None
    comm: Any = None
    listening: asyncio.Task[None] | None = None
    reached: int | None = None
    """Generation that the receiver is reading."""
    broken: str = ""
    """Why the connection ended."""

    async def listen(self) -> None:
        """Note the generations that the receiver reads, until the connection ends."""
        message = memoryview(bytearray(_REACHED.size))
        try:
            while self.pipe is not None:
                await self.pipe.read_into(message)
                (self.reached,) = _REACHED.unpack(message)
                self.news.set()
        except OSError as error:
            self.broken = str(error) or type(error).__name__
            self.news.set()

    async def admitted(self, generation: int) -> None:
        """Wait until the receiver has memory for a generation."""
        while self.reached is None or generation > self.reached + AHEAD:
            if self.broken:
                raise ConnectionError(f"it no longer holds states ({self.broken})")
            self.news.clear()
            await self.news.wait()


def _ignore_failure(sent: asyncio.Future[None]) -> None:
    """Retrieve the exception; the coroutine that reads the connection reports it."""
    if not sent.cancelled():
        sent.exception()
