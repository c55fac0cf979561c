"""Buffers of halo blocks that a worker has received and not yet read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

__all__ = ["AHEAD", "Mailbox"]

AHEAD = 1
"""Generations that a sender may be ahead of the reader; both are in memory."""

Block = NDArray[np.floating]


class Mailbox:
    """Blocks by generation and owner; senders fill them, the reader waits and reads.

    A generation is one column tile of one superstep. The memory of blocks is allocated
    once and reused every second generation, because the first access to new memory
    would take longer than the transfer.

    Parameters
    ----------
    arrivals
        Rows of the block from each owner in every generation.
    widths
        Columns of each tile.
    dtype
        Type of exchanged values.
    """

    def __init__(
        self, arrivals: Mapping[int, int], widths: Sequence[int], dtype: str
    ) -> None:
        self._arrivals = dict(arrivals)
        self._widths = list(widths)
        self._memory: list[dict[int, Block]] = [
            {
                owner: np.empty(rows * max(widths), dtype)
                for owner, rows in arrivals.items()
            }
            for _ in range(1 + AHEAD)
        ]
        self._complete: dict[int, dict[int, None]] = {}
        self._changed = threading.Condition()
        self.generation = 0
        """The generation that is being read, or was read last."""
        self.received = 0
        """Bytes of all received blocks."""
        self.on_reach: Callable[[int], object] = lambda _: None
        """Called when the reader starts a generation."""

    def block(self, generation: int, owner: int) -> Block:
        """Memory to fill with a block; a `ConnectionError` if it is not expected."""
        with self._changed:
            expected = owner in self._arrivals and self.admits(generation)
            if not expected or owner in self._complete.get(generation, ()):
                raise ConnectionError(
                    f"unexpected block of partition {owner}, generation {generation}: "
                    f"generation {self.generation} is being read"
                )
            return self.read(generation, owner)

    def put(self, generation: int, owner: int) -> None:
        """Mark a block as complete."""
        with self._changed:
            self._complete.setdefault(generation, {})[owner] = None
            self.received += self.read(generation, owner).nbytes
            self._changed.notify_all()

    def admits(self, generation: int) -> bool:
        """Whether a generation may be sent: it is not too far ahead of the reader."""
        return generation <= self.generation + AHEAD

    def reach(self, generation: int) -> None:
        """Start reading a generation; blocks of earlier ones are discarded."""
        with self._changed:
            self.generation = generation
            for old in [each for each in self._complete if each < generation]:
                del self._complete[old]
        self.on_reach(generation)

    def wait(self, generation: int, seen: int, seconds: float) -> list[int]:
        """Owners whose block is complete, in the order of arrival, without the first.

        Waits until there are more than the first `seen`; empty if none comes in time.
        """
        with self._changed:

            def arrived() -> list[int]:
                complete = self._complete.get(generation, {})
                return list(islice(complete, seen, None))

            return self._changed.wait_for(arrived, seconds)

    def missing(self, generation: int, owners: Collection[int]) -> list[int]:
        """The owners whose block is not complete."""
        with self._changed:
            complete = self._complete.get(generation, {})
            return [owner for owner in owners if owner not in complete]

    def read(self, generation: int, owner: int) -> Block:
        """A block, shape (rows, w), valid until a later generation is reached."""
        rows = self._arrivals[owner]
        width = self._widths[generation % len(self._widths)]
        memory = self._memory[generation % len(self._memory)][owner]
        return memory[: rows * width].reshape(rows, width)
