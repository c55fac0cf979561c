"""Rounds of sums over neighbours, and products over all nodes, of values in files.

The results do not depend on the partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.store import Attempt, FileRecord, Manifest
from xnq_dist.core.waiting import gather, result
from xnq_dist.reservoir.exact_sums import column_peaks, integer_products, restored

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["AllNodes", "Blocks"]

Blocks = Iterator[tuple[Sequence[NDArray[Any]], Floats | None]]
"""Blocks of a partition's rows: L and R, or L alone, which then is R too; and factors
of the rows, None: 1 each."""


@dataclass(frozen=True)
class AllNodes:
    """The nodes of the stage ``graph`` on the workers, and a folder for values."""

    client: Client
    graph: Manifest
    attempt: Attempt
    """Writes and reads the files."""
    rounds: Callable[..., dict[int, list[FileRecord]]]
    """`propagate` on these nodes: start, step, kept rounds, attempt and stem."""
    threads: int
    """Threads of a partition's task."""

    def products(self, blocks: Callable[[int], Blocks]) -> Floats:
        """``L.T @ R`` over all nodes; ``blocks(number)`` is called on a worker."""

        def each(task: Any, *more: Any) -> list[Any]:
            return [
                self.client.submit(
                    task, blocks, number, self.threads, *more, pure=False
                )
                for number in range(int(self.graph.facts["partitions"]))
            ]

        peaks = np.max(gather(self.client, each(_peaks)), axis=0)
        total, *others = each(_rounded_products, peaks)
        for other in others:  # added on the workers, to save the client's memory
            total = self.client.submit(np.add, total, other, pure=False)
        return restored(result(self.client, total), peaks[0], peaks[-1])


def _peaks(blocks: Callable[[int], Blocks], number: int, threads: int) -> Floats:
    """Largest absolute values of the columns of each side, (sides, w)."""
    found = [
        [column_peaks(values, factors, threads) for values in sides]
        for sides, factors in blocks(number)
    ]
    return np.asarray(np.max(found, axis=0))


def _rounded_products(
    blocks: Callable[[int], Blocks], number: int, threads: int, peaks: Floats
) -> Ints:
    total = np.zeros((peaks.shape[1],) * 2, np.int64)
    for (values, *others), factors in blocks(number):
        right = others[0] if others else None
        total += integer_products(values, peaks[0], right, peaks[-1], factors, threads)
    return total
