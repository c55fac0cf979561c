"""Rounds of neighbour sums on Dask, one halo exchange each."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt, FileRecord, Manifest
from xnq_dist.reservoir.exchange import Exchange, on_workers
from xnq_dist.reservoir.sums import Start, Step, Sums

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["only_sums", "propagate"]


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


def _write(attempt: Attempt, stem: str, number: int, values: Floats32) -> FileRecord:
    return attempt.write_arrays(f"{stem}-{number:05d}", values=values)


def only_sums(number: int, turn: int, values: Floats32, sums: Floats32) -> Floats32:
    """A step that returns the sums."""
    return sums
