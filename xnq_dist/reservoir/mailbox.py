"""Halo blocks that a worker has received and not yet read."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["AHEAD", "POLL", "Block", "Mailbox", "WorkersLost"]

AHEAD = 1
"""Generations that a sender may be ahead of the reader; both are in memory."""
POLL = 0.5
"""Seconds between two checks whether peers and the task are still alive."""

Block = NDArray[np.floating]


class WorkersLost(Exception):  # noqa: N818 - an event, which the driver handles
    """A worker that held states was lost, or does not answer."""

    def __init__(self, message: str, suspects: Collection[str] = ()) -> None:
        super().__init__(message)
        self.suspects = frozenset(suspects)
        """Workers to avoid, although the scheduler may still list them."""


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
        self._arrivals, self._width = arrivals, width
        self._blocks: defaultdict[int, dict[int, Block]] = defaultdict(dict)
        self._changed = threading.Condition()
        self.generation = 0
        """The generation that is being read, or was read last."""

    def put(self, generation: int, owner: int, block: Block) -> None:
        """Keep a block until it is read; a `ConnectionError` if it is not expected."""
        with self._changed:
            expected = (self._arrivals.get(owner), self._width) == block.shape
            there = self._blocks[generation]
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

    def owners(self, seen: int, seconds: float) -> set[int]:
        """Owners whose block of the generation that is read is there.

        Waits until there are more than `seen`, for some seconds.
        """
        with self._changed:
            there = self._blocks[self.generation]
            self._changed.wait_for(lambda: len(there) > seen, seconds)
            return set(there)

    def read(self, owner: int) -> Block:
        """A block, shape (rows, w), valid until a later generation is reached."""
        with self._changed:
            return self._blocks[self.generation][owner]
