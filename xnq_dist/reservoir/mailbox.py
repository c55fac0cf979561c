"""Halo blocks that have arrived at a worker and wait to be read."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mailbox"]

AHEAD = 1
"""Generations that a sender may be ahead of the reader: those two are in memory."""


class Mailbox:
    """Blocks by generation and owner; one side puts, the other waits and reads.

    A generation is one column tile of one superstep. Chunks of a block may come in
    any order; a block is whole when all its rows are there.

    Parameters
    ----------
    arrivals
        Rows of the block that comes from each owner in every generation.
    """

    def __init__(self, arrivals: Mapping[int, int]) -> None:
        self._arrivals = dict(arrivals)
        self._chunks: dict[tuple[int, int], dict[int, NDArray[np.floating]]] = {}
        self._news = threading.Condition()
        self._generation = 0
        self.received = 0
        """Bytes of all blocks so far."""

    def put(
        self, generation: int, owner: int, first: int, rows: NDArray[np.floating]
    ) -> None:
        """Take in a chunk whose first row is row `first` of the block."""
        with self._news:
            if generation >= self._generation:
                self._chunks.setdefault((generation, owner), {})[first] = rows
                self.received += rows.nbytes
            self._news.notify_all()

    def admits(self, generation: int) -> bool:
        """Whether a sender may go on; not: it is too far ahead of the reader."""
        return generation <= self._generation + AHEAD

    def reach(self, generation: int) -> None:
        """The reader begins with a generation; earlier ones are forgotten."""
        with self._news:
            self._generation = generation
            for key in [key for key in self._chunks if key[0] < generation]:
                del self._chunks[key]

    def wait(
        self, generation: int, wanted: Collection[Collection[int]], seconds: float
    ) -> int | None:
        """Wait until all blocks of one of several sets of owners are whole.

        Returns
        -------
        int or None
            Position of the first such set; None when there is none after so long.
        """
        with self._news:

            def first() -> int | None:
                for position, owners in enumerate(wanted):
                    if all(self._whole(generation, owner) for owner in owners):
                        return position
                return None

            self._news.wait_for(lambda: first() is not None, seconds)
            return first()

    def missing(self, generation: int, owners: Collection[int]) -> list[int]:
        """Owners whose block is not whole."""
        with self._news:
            return [owner for owner in owners if not self._whole(generation, owner)]

    def read(
        self, generation: int, owner: int
    ) -> list[tuple[int, NDArray[np.floating]]]:
        """A whole block in pieces, ascending: number of the first row, rows."""
        with self._news:
            return sorted(
                self._chunks[generation, owner].items(), key=lambda item: item[0]
            )

    def _whole(self, generation: int, owner: int) -> bool:
        chunks = self._chunks.get((generation, owner), {})
        return sum(map(len, chunks.values())) == self._arrivals[owner]
