"""Halo blocks that a worker has received and not yet read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

__all__ = ["AHEAD", "POLL", "Abandoned", "Block", "Mailbox", "PeerLost"]

AHEAD = 1
"""Generations that a sender may be ahead of the reader; both are in memory."""
POLL = 0.5
"""Seconds between two checks whether peers and the task are still alive."""

Block = NDArray[np.floating]


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


class Mailbox:
    """Blocks by generation and owner; senders fill it, the reader waits and reads.

    A generation is one superstep, or one round of sums.

    Parameters
    ----------
    arrivals
        Rows of the block from each owner in every generation.
    width
        Columns of every block.
    """

    def __init__(self, arrivals: Mapping[int, int], width: int) -> None:
        self._arrivals, self._width = dict(arrivals), width
        self._blocks: dict[int, dict[int, Block]] = {}
        self._changed = threading.Condition()
        self.generation = 0
        """The generation that is being read, or was read last."""
        self.on_reach: Callable[[], object] = lambda: None
        """Called when the reader starts a generation."""

    def put(self, generation: int, owner: int, block: Block) -> None:
        """Keep a block until it is read; a `ConnectionError` if it is not expected."""
        with self._changed:
            expected = (self._arrivals.get(owner), self._width) == block.shape
            there = self._blocks.setdefault(generation, {})
            if not expected or owner in there or not self.admits(generation):
                raise ConnectionError(
                    f"unexpected block of partition {owner}, generation {generation}: "
                    f"generation {self.generation} is being read"
                )
            there[owner] = block
            self._changed.notify_all()

    def admits(self, generation: int) -> bool:
        """Whether a generation may be sent: it is not too far ahead of the reader."""
        return generation <= self.generation + AHEAD

    def reach(self, generation: int) -> None:
        """Start reading a generation; blocks of earlier ones are discarded."""
        with self._changed:
            self.generation = generation
            for old in [each for each in self._blocks if each < generation]:
                del self._blocks[old]
        self.on_reach()

    def wait(self, generation: int, seen: int, seconds: float) -> list[int]:
        """Owners whose block is there, in the order of arrival, without the first.

        Waits until there are more than the first `seen`; empty if none comes in time.
        """
        with self._changed:

            def arrived() -> list[int]:
                return list(islice(self._blocks.get(generation, {}), seen, None))

            return self._changed.wait_for(arrived, seconds)

    def missing(self, generation: int, owners: Collection[int]) -> list[int]:
        """The owners whose block is not there."""
        with self._changed:
            there = self._blocks.get(generation, {})
            return [owner for owner in owners if owner not in there]

    def read(self, generation: int, owner: int) -> Block:
        """A block, shape (rows, w), valid until a later generation is reached."""
        with self._changed:
            return self._blocks[generation][owner]
