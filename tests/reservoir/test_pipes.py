"""Bytes arrive as they were sent, for any message sizes and reused memory."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from xnq_dist.reservoir.pipes import Messages, PipeOutbox


class QueueComm:
    """A connection within a process: the other side gets what was written itself."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue = asyncio.Queue()

    async def write(self, message):
        await asyncio.sleep(0)
        self.sent.put_nowait(message)

    async def read(self):
        return await self.sent.get()


@pytest.mark.parametrize("parts", [(1, 7, 16), (24,), (3,) * 8])
def test_messages_are_one_stream_of_bytes(parts):
    async def through() -> tuple[bytes, bytes]:
        pipe = Messages(QueueComm(), lambda part: part)
        memory = np.zeros(max(parts), np.uint8)
        sent, at = np.arange(24, dtype=np.uint8), 0
        for count in parts:
            memory[:count] = sent[at : at + count]
            at += count
            await pipe.write(memory[:count].data)
            memory[:] = 255  # used again
        head, rest = bytearray(5), bytearray(19)
        await pipe.read_into(memoryview(head))
        await pipe.read_into(memoryview(rest))
        return bytes(head + rest), sent.tobytes()

    found, expected = asyncio.run(through())
    assert found == expected


def test_messages_not_waited_for_keep_their_order():
    async def through() -> bytes:
        pipe = Messages(QueueComm(), lambda part: part)
        for value in range(20):
            pipe.write(memoryview(bytes([value])))
        found = bytearray(20)
        await pipe.read_into(memoryview(found))
        return bytes(found)

    assert asyncio.run(through()) == bytes(range(20))


def test_a_sender_goes_on_when_the_reader_has_memory_and_ends_when_it_is_gone():
    async def try_it() -> list[bool]:
        outbox = PipeOutbox()
        waiting = asyncio.ensure_future(outbox.admitted(2))
        seen = []
        for reached in (None, 0, 1):
            outbox.reached = reached
            outbox.news.set()
            for _ in range(3):
                await asyncio.sleep(0)
            seen.append(waiting.done())
        outbox.broken = "stream is closed"
        with pytest.raises(ConnectionError, match=r"no longer holds states \(stream"):
            await outbox.admitted(3)
        return seen

    assert asyncio.run(try_it()) == [False, False, True]
