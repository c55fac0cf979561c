"""Rounds of neighbour sums on Dask, one halo exchange each, on any worker.

A few columns are cheap to transfer, so tasks are not pinned to workers. They load
partitions from files in every round, so Dask can recover from a lost worker by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import choose
from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.core.waiting import gather as gather_results
from xnq_dist.core.waiting import wait_all
from xnq_dist.graph.layout import halo_sizes, load_partition, node_index
from xnq_dist.reservoir.context import halo_picks, pick_halo
from xnq_dist.reservoir.device import move_partition
from xnq_dist.reservoir.superstep import column_tiles, gather

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["COLUMNS", "load_values", "only_sums", "propagate"]


COLUMNS = 32
"""Columns that a GPU processes at a time: fewer than a superstep's, so they fit."""

Start = Callable[[int], Floats32]
"""``start(number)``: the values of a partition's owned rows, shape (n_owned, w)."""

Step = Callable[[int, int, Floats32, Floats32], Floats32]
"""``step(number, round, values, sums)``: a partition's values after the round (1, 2,
...), from the previous values and the sums over in-neighbours; one row per node."""

Publish = Callable[[Floats32], Floats32]
"""``publish(values)``: the values to sum over, row by row, (m, w) to (m, any)."""


def propagate(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    start: Start,
    step: Step,
    rounds: int,
    attempt: Attempt,
    stem: str,
    keep: Collection[int] | None = None,
    publish: Publish | None = None,
    weighted: bool = True,
    backend: str = "cpu",
    progress: Progress = silent,
) -> dict[int, list[FileRecord]]:
    """Run rounds of neighbour sums, with one halo exchange each.

    ``values = start(p)``; then in round t = 1..rounds ``values = step(p, t, values,
    sums)``, where row v of ``sums`` is the sum over the edges u -> v of their weight
    times row u of the previous values, in float32 in the order of the original ids: the
    same bits for any partitioning. Columns do not mix, so independent variants can be
    computed together. Tasks run on any worker, and again if a worker is lost.

    Parameters
    ----------
    graph, manifest
        The stage ``graph``.
    start
        Maps a partition's number to the values of its owned rows in local order (that
        of `load_nodes`), float32, shape (n_owned, w).
    step
        Maps partition, round, values and sums, float32 with n_owned rows, to the values
        after the round, float32, with n_owned rows and any width. Row v of the result
        must depend on rows v alone, and the arguments must not be changed. `start`,
        `step` and `publish` are called on workers, possibly more than once: they must
        be small, picklable (frozen dataclasses) and pure, and load data from files.
    rounds
        Number of rounds.
    attempt, stem
        Writes kept rounds: one npz file for each round and partition,
        ``<stem>-<round>-<partition>``, with the array ``values``, rows in local order.
    keep
        Rounds to write, where 0 is the start; None: the last one.
    publish
        Maps values to those that neighbours sum, row by row; None: the identity.
    weighted
        False: every edge counts 1, so sums are over distinct in-neighbours.
    backend
        ``cpu`` or ``gpu`` for the sums; both give the same bits.
    progress
        Called after each round.

    Returns
    -------
    dict
        The files of each kept round in partition order; `load_values` reads them.

    Raises
    ------
    SettingsError
        When `rounds` is negative or `keep` has a round that is not one of 0..rounds.
    """
    kept = {rounds} if keep is None else set(keep)
    if rounds < 0 or not kept <= set(range(rounds + 1)):
        raise SettingsError(
            f"rounds {sorted(kept)} cannot be kept: choose rounds from 0 to {rounds}"
        )
    parts = range(len(manifest.facts["edges"]))
    sizes = halo_sizes(graph, manifest)

    def submit(task: Callable[..., Any], *args: Any) -> Future[Any]:
        return client.submit(task, *args, pure=False)

    values = [submit(_first_values, start, p) for p in parts]
    files: dict[int, list[Future[Any]]] = {}
    last = max(kept, default=0)
    where = graph, manifest
    for turn in range(last + 1):
        before = values
        if turn:
            blocks = [submit(_boundary, *where, p, values[p], publish) for p in parts]
            read = [{o: blocks[o] for o in parts if sizes[o][p]} for p in parts]
            how = step, turn, publish, weighted, backend
            values = [
                submit(_next_values, *where, p, values[p], read[p], *how) for p in parts
            ]
            del blocks, read
        if turn in kept:
            files[turn] = [
                submit(_write, attempt, f"{stem}-{turn:03d}-{p:05d}", values[p])
                for p in parts
            ]
        # Wait for a round after submitting the next one, which depends on it.
        wait_all(client, before)
        if turn > 1:
            progress(f"rounds of {stem}", turn - 1, last)
        del before
    wait_all(client, values)
    if last:
        progress(f"rounds of {stem}", last, last)
    return {turn: gather_results(client, tasks) for turn, tasks in files.items()}


def only_sums(number: int, turn: int, values: Floats32, sums: Floats32) -> Floats32:
    """A step that returns the sums."""
    return sums


def _first_values(start: Start, number: int) -> Floats32:
    return np.ascontiguousarray(start(number), dtype=np.float32)


def _boundary(
    graph: Stage,
    manifest: Manifest,
    number: int,
    values: Floats32,
    publish: Publish | None,
) -> Floats32:
    """The rows that other partitions read, ascending."""
    rows = values[load_partition(graph, manifest, number).boundary_rows]
    return rows if publish is None else publish(rows)


def _next_values(
    graph: Stage,
    manifest: Manifest,
    number: int,
    values: Floats32,
    blocks: Mapping[int, Floats32],
    step: Step,
    turn: int,
    publish: Publish | None,
    weighted: bool,
    backend: str,
) -> Floats32:
    published = values if publish is None else publish(values)
    sums = sum_neighbours(graph, manifest, number, published, blocks, weighted, backend)
    return np.ascontiguousarray(step(number, turn, values, sums), dtype=np.float32)


def _write(attempt: Attempt, stem: str, values: Floats32) -> FileRecord:
    return attempt.write_arrays(stem, values=values)


def sum_neighbours(
    graph: Stage,
    manifest: Manifest,
    number: int,
    values: Floats32,
    blocks: Mapping[int, Floats32],
    weighted: bool = True,
    backend: str = "cpu",
) -> Floats32:
    """Weighted sums of in-neighbours' values, in the order of the original ids.

    `values` are the published values of the owned rows, shape (n_owned, w); `blocks`
    the boundary rows of every owner of halo rows. If not `weighted`, every edge counts
    1. `backend` is ``cpu`` or ``gpu``, with the same bits.
    """
    partition = load_partition(graph, manifest, number)
    if not weighted:
        partition = replace(partition, weights=None)
    if len(values) != partition.n_owned:
        raise StageError(
            f"partition {number} has {partition.n_owned} nodes but {len(values)} rows "
            "of values: internal error, please report it"
        )
    width = values.shape[1]
    halo = pick_halo(halo_picks(graph, manifest, partition), blocks, width)
    sums = np.empty((partition.n_owned, width), dtype=np.float32)
    states = np.ascontiguousarray(values, dtype=np.float32)
    chosen = choose(backend)
    if not chosen.on_device:
        gather(chosen, partition, states, slice(0, width), halo, sums)
        return sums
    moved = move_partition(chosen, partition)
    for columns in column_tiles(width, COLUMNS):
        gather(chosen, moved, states, columns, halo[:, columns], sums[:, columns])
    return sums


def load_values(
    where: Stage, records: Sequence[FileRecord], graph: Stage, manifest: Manifest
) -> Floats32:
    """All values of one round of `propagate`, shape (N, w), in canonical order.

    `where` is the stage whose folder the attempt wrote to; `records` are the round's
    files, in partition order.
    """
    index = node_index(graph, manifest)
    out: Floats32 | None = None
    for rows, record in zip(index, records, strict=True):
        values = where.read_arrays(record)["values"]
        if out is None:
            out = np.empty((sum(map(len, index)), values.shape[1]), np.float32)
        out[rows] = values
    if out is None:
        raise StageError("the stage graph has no partitions: run again to resume")
    return out
