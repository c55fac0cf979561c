"""Sums over neighbours in rounds, with one halo exchange each; sums over all nodes.

The results do not depend on the partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt, FileRecord, Manifest
from xnq_dist.core.waiting import gather, result
from xnq_dist.reservoir.exact_sums import column_peaks, integer_products, restored
from xnq_dist.reservoir.exchange import Exchange, on_workers
from xnq_dist.reservoir.states import Start, Step, Sums

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["AllNodes", "Blocks", "only_sums", "propagate"]

Blocks = Iterator[tuple[Sequence[NDArray[Any]], Floats | None]]
"""Blocks of a partition's rows: L and R, or L alone, which then is R too; and factors
of the rows, None: 1 each."""


def propagate(
    client: Client,
    graph: Manifest,
    start: Start,
    step: Step,
    keep: Collection[int],
    attempt: Attempt,
    stem: str,
    weighted: bool = True,
    backend: str = "cpu",
    progress: Progress = silent,
) -> dict[int, list[FileRecord]]:
    """Run rounds of neighbour sums, with one halo exchange each.

    ``values = start(p)``; then in round t = 1, 2, ... ``values = step(p, t, values,
    sums)``, where row v of ``sums`` is the sum over the edges u -> v of their weight
    times row u of the previous values, in float32 in the order of the original ids: the
    same bits for any partitioning. Columns do not mix, so independent variants can be
    computed together. What a lost worker had is computed again.

    Parameters
    ----------
    graph
        The manifest of the stage.
    start
        Maps a partition's number to the values of its owned rows in local order (that
        of `load_nodes`), float32, shape (n_owned, w).
    step
        Maps partition, round, values and sums, float32 with n_owned rows, to the values
        after the round, float32, of the same shape. Row v of the result must depend on
        rows v alone, and of the arguments only the sums may be changed. `start` and
        `step` are called on workers, possibly more than once: they must be small,
        picklable (frozen dataclasses, partial functions) and pure, and load data from
        files.
    keep
        Rounds to write, where 0 is the start; the largest one is the last.
    attempt, stem
        Writes kept rounds: one file for each round and partition,
        ``<stem>-<round>-<partition>``, with the array ``values``, rows in local order.
    weighted
        False: every edge counts 1, so sums are over distinct in-neighbours.
    backend
        ``cpu`` or ``gpu`` for the sums; both give the same bits.
    progress
        Called after each round.

    Returns
    -------
    dict
        The files of each kept round in partition order.
    """
    last = max(keep)

    def use(exchange: Exchange) -> dict[int, list[FileRecord]]:
        exchange.begin(0, Sums, start, step, weighted, backend, last)
        found = {}
        for turn in range(last + 1):
            if turn:
                exchange.advance(1)
                progress(f"rounds of {stem}", turn, last)
            if turn in keep:
                write = partial(_write, attempt, f"{stem}-{turn:03d}")
                found[turn] = exchange.apply(write)
        return found

    return on_workers(client, graph, use)


def only_sums(number: int, turn: int, values: Floats32, sums: Floats32) -> Floats32:
    """A step that returns the sums."""
    return sums


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


def _write(attempt: Attempt, stem: str, number: int, values: Floats32) -> FileRecord:
    return attempt.write_arrays(f"{stem}-{number:05d}", values=values)


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
