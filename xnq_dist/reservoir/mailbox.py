"""Halo blocks that have arrived at a worker and wait to be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["AHEAD", "Mailbox"]

AHEAD = 1
"""Generations that a sender may be ahead of the reader: those two are in memory."""

Block = NDArray[np.floating]


class Mailbox:
    """Blocks by generation and owner; one side fills, the other waits and reads.

    A generation is one column tile of one superstep. The memory of blocks is allocated
    once and used again every second generation: first touches of fresh memory would
    take longer than the transfer.

    Parameters
    ----------
    arrivals
        Rows of the block that comes from each owner in every generation.
    widths
        Columns of each tile.
    dtype
        Of exchanged values.
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
        self._whole: set[tuple[int, int]] = set()
        self._news = threading.Condition()
        self.generation = 0
        """That is being read, or was last."""
        self.received = 0
        """Bytes of all blocks so far."""
        self.on_reach: Callable[[int], object] = lambda _: None
        """Called when the reader begins with a generation."""

    def block(self, generation: int, owner: int) -> Block:
        """Memory to fill with a block; a `ConnectionError` unless it is due."""
        with self._news:
            due = owner in self._arrivals and self.admits(generation)
            if not due or (generation, owner) in self._whole:
                raise ConnectionError(
                    f"a block of partition {owner}, generation {generation}, came "
                    f"while generation {self.generation} is read"
                )
            return self.read(generation, owner)

    def put(self, generation: int, owner: int) -> None:
        """A block is complete."""
        with self._news:
            self._whole.add((generation, owner))
            self.received += self.read(generation, owner).nbytes
            self._news.notify_all()

    def admits(self, generation: int) -> bool:
        """Whether a sender may go on: it is not too far ahead of the reader."""
        return generation <= self.generation + AHEAD

    def reach(self, generation: int) -> None:
        """The reader begins with a generation; earlier ones are forgotten."""
        with self._news:
            self.generation = generation
            self._whole = {key for key in self._whole if key[0] >= generation}
        self.on_reach(generation)

    def wait(
        self, generation: int, wanted: Collection[Collection[int]], seconds: float
    ) -> int | None:
        """Wait until all blocks of one of several sets of owners are complete.

        Returns the position of the first such set; None when there is none after so
        long.
        """
        with self._news:

            def first() -> int | None:
                for position, owners in enumerate(wanted):
                    if all((generation, owner) in self._whole for owner in owners):
                        return position
                return None

            self._news.wait_for(lambda: first() is not None, seconds)
            return first()

    def missing(self, generation: int, owners: Collection[int]) -> list[int]:
        """Owners whose block is not complete."""
        with self._news:
            return [o for o in owners if (generation, o) not in self._whole]

    def read(self, generation: int, owner: int) -> Block:
        """A block, shape (rows, w), until a later generation is reached."""
        rows = self._arrivals[owner]
        width = self._widths[generation % len(self._widths)]
        memory = self._memory[generation % len(self._memory)][owner]
        return memory[: rows * width].reshape(rows, width)
