"""Rounds of neighbour sums on Dask, one halo exchange each, with either engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.cluster import threads_each
from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.core.waiting import TIMEOUT, Heartbeats, wait_all
from xnq_dist.core.waiting import gather as gather_results
from xnq_dist.graph.layout import halo_sizes, load_partition, node_index
from xnq_dist.reservoir.context import halo_picks, pick_halo
from xnq_dist.reservoir.exchange import again_if_lost
from xnq_dist.reservoir.spmd import LongTasks
from xnq_dist.reservoir.volume import choose_engine
from xnq_dist.reservoir.worker_sums import (
    COLUMNS,
    Publish,
    Rounds,
    Start,
    Step,
    SumsState,
    round_of_sums,
)

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["COLUMNS", "load_values", "only_sums", "propagate"]


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
    engine: str = "auto",
) -> dict[int, list[FileRecord]]:
    """Run rounds of neighbour sums, with one halo exchange each.

    ``values = start(p)``; then in round t = 1..rounds ``values = step(p, t, values,
    sums)``, where row v of ``sums`` is the sum over the edges u -> v of their weight
    times row u of the previous values, in float32 in the order of the original ids: the
    same bits for any partitioning. Columns do not mix, so independent variants can be
    computed together. What a lost worker had is computed again.

    Parameters
    ----------
    graph, manifest
        The stage ``graph``.
    start
        Maps a partition's number to the values of its owned rows in local order (that
        of `load_nodes`), float32, shape (n_owned, w).
    step
        Maps partition, round, values and sums, float32 with n_owned rows, to the values
        after the round, float32, of the same shape. Row v of the result must depend on
        rows v alone, and of the arguments only the sums may be changed. `start`, `step`
        and `publish` are called on workers, possibly more than once: they must be
        small, picklable (frozen dataclasses) and pure, and load data from files.
    rounds
        Number of rounds.
    attempt, stem
        Writes kept rounds: one file for each round and partition,
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
    engine
        ``tasks``: two tasks for each partition and round, on any worker, which read the
        partition; ``spmd``: one task for each worker and round, which keeps them in
        memory; ``auto``: as for the supersteps. All give the same bits.

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
    last = max(kept, default=0)
    work = Rounds(start, step, attempt, stem, publish, weighted, backend)
    parts = int(manifest.facts["partitions"])
    if choose_engine(engine, parts) == "tasks":
        return _by_tasks(client, graph, manifest, work, last, kept, progress)
    beats = Heartbeats(client)

    def once(suspects: frozenset[str]) -> dict[int, list[FileRecord]]:
        with closing(
            LongSums(client, graph, manifest, work, suspects, beats, TIMEOUT.get())
        ) as sums:
            return sums.run(last, kept, progress)

    return again_if_lost(beats, once)


class LongSums(LongTasks):
    """Engine ``spmd`` for rounds of sums."""

    _spec: Rounds

    def run(
        self, last: int, kept: Collection[int], progress: Progress
    ) -> dict[int, list[FileRecord]]:
        """Run all rounds; the files of each kept one in partition order."""
        self._open(SumsState, self._spec)
        found = {}
        for turn in range(last + 1):
            made = self._everywhere(round_of_sums, turn, turn in kept)
            if turn in kept:
                files = dict(pair for pairs in made for pair in pairs)
                found[turn] = [files[number] for number in sorted(files)]
            if turn:
                progress(f"rounds of {self._spec.stem}", turn, last)
        return found


def _by_tasks(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    work: Rounds,
    last: int,
    kept: Collection[int],
    progress: Progress,
) -> dict[int, list[FileRecord]]:
    """Run all rounds with two tasks for each partition, which Dask repeats if lost."""
    owners = [np.flatnonzero(rows).tolist() for rows in halo_sizes(graph, manifest).T]

    def submit(task: Callable[..., Any], *args: Any) -> Future[Any]:
        return client.submit(task, *args, pure=False)

    where = work, graph, manifest
    values = [submit(work.first, number) for number in range(len(owners))]
    threads = threads_each(client, len(owners))
    files: dict[int, list[Future[Any]]] = {}
    for turn in range(last + 1):
        before = values
        if turn:
            blocks = [submit(_boundary, *where, *pair) for pair in enumerate(values)]
            values = [
                submit(
                    *(_next, *where, p, turn, values[p]),
                    *({o: blocks[o] for o in each}, threads),
                )
                for p, each in enumerate(owners)
            ]
            del blocks
        if turn in kept:
            pairs = enumerate(values)
            files[turn] = [submit(work.write, p, turn, made) for p, made in pairs]
        # Wait for a round after submitting the next one, which depends on it.
        wait_all(client, before)
        if turn > 1:
            progress(f"rounds of {work.stem}", turn - 1, last)
        del before
    wait_all(client, values)
    if last:
        progress(f"rounds of {work.stem}", last, last)
    return {turn: gather_results(client, tasks) for turn, tasks in files.items()}


def only_sums(number: int, turn: int, values: Floats32, sums: Floats32) -> Floats32:
    """A step that returns the sums."""
    return sums


def _boundary(
    work: Rounds, graph: Stage, manifest: Manifest, number: int, values: Floats32
) -> Floats32:
    """The rows that other partitions read, ascending."""
    rows = load_partition(graph, manifest, number).boundary_rows
    return work.published(values[rows])


def _next(
    work: Rounds,
    graph: Stage,
    manifest: Manifest,
    number: int,
    turn: int,
    values: Floats32,
    blocks: Mapping[int, Floats32],
    threads: int,
) -> Floats32:
    partition, published = work.load(graph, manifest, number), work.published(values)
    picks = halo_picks(graph, manifest, partition)
    halo = pick_halo(picks, blocks, published.shape[1])
    return work.after(partition, turn, values, published, halo, threads)


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
