"""Rounds of neighbour sums on Dask: one halo exchange each, free to run on any worker.

A few columns are cheap to move, so nothing is pinned, and inputs are loaded inside
tasks: Dask recovers from a lost worker by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.core.waiting import gather, wait_all
from xnq_dist.reservoir.rounds import (
    Publish,
    Start,
    Step,
    boundary_values,
    first_values,
    next_values,
    sum_neighbours,
    write_values,
)

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["neighbour_sums", "propagate"]

Array = NDArray[np.float32]


def neighbour_sums(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    values: Start,
    attempt: Attempt,
    stem: str,
    backend: str = "cpu",
) -> list[FileRecord]:
    """Weighted sums of in-neighbours' values, by one halo exchange.

    Parameters
    ----------
    values
        From a partition's number to values of its owned rows, shape (n_owned, w);
        called on a worker.
    attempt, stem
        Where the sums go: one npz file a partition, ``<stem>-<partition>``, with the
        array ``sums``, shape (n_owned, w), rows in local order.
    backend
        ``cpu`` or ``gpu``: who adds up; the same bits.

    Returns
    -------
    list
        The files, in partition order.
    """
    parts = range(len(manifest.facts["edges"]))
    loaded = [client.submit(first_values, values, p, pure=False) for p in parts]
    blocks = _submit_blocks(client, graph, manifest, loaded)
    files = [
        client.submit(
            _write_sums,
            graph,
            manifest,
            p,
            loaded[p],
            blocks[p],
            attempt,
            stem,
            backend,
            pure=False,
        )
        for p in parts
    ]
    return gather(client, files)


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
    """Rounds of neighbour sums, one halo exchange each, all rows at the same time.

    ``values = start(p)``; then in round t = 1..rounds ``values = step(p, t, values,
    sums)``, where row v of ``sums`` is the sum over the edges u -> v of their weight
    times row u of the values before, added up in float32 in the order of the original
    ids: the same bits however the graph is cut. Columns do not mix, so independent
    variants go side by side. Tasks are free to run on any worker, again after a loss.

    Parameters
    ----------
    graph, manifest
        The stage ``graph``.
    start
        From a partition's number to values of its owned rows in local order (the
        order of `load_nodes`), float32, shape (n_owned, w).
    step
        From partition, round, values and sums, float32 with n_owned rows, to the
        values after the round, float32, n_owned rows and any width. Row v of the
        answer must depend on rows v alone, and the arguments must not be changed.
        `start`, `step` and `publish` are called on workers, once a task and maybe
        again: small, picklable (frozen dataclasses), pure, loading what they need
        from files.
    rounds
        How many.
    attempt, stem
        Where kept rounds go: one npz file a round and partition,
        ``<stem>-<round>-<partition>``, with the array ``values``, rows in local order.
    keep
        Rounds to write, 0 is the start; the last alone when None.
    publish
        What neighbours see of values, row by row; the values themselves when None.
    weighted
        Not: every edge counts 1, so sums are over distinct in-neighbours.
    backend
        ``cpu`` or ``gpu``: who adds up; the same bits.
    progress
        Told of each round.

    Returns
    -------
    dict
        Kept round -> its files in partition order; `rounds.load_values` reads them.

    Raises
    ------
    SettingsError
        When `rounds` is negative or a round to keep is not one of 0..rounds.
    """
    kept = {rounds} if keep is None else set(keep)
    if rounds < 0 or not kept <= set(range(rounds + 1)):
        raise SettingsError(
            f"rounds {sorted(kept)} cannot be kept of rounds 0 to {rounds}: "
            "ask for rounds that are there"
        )
    parts = range(len(manifest.facts["edges"]))
    values = [client.submit(first_values, start, p, pure=False) for p in parts]
    files: dict[int, list[Future[Any]]] = {}
    last = max(kept, default=0)
    for turn in range(last + 1):
        before = values
        if turn:
            blocks = _submit_blocks(client, graph, manifest, values, publish)
            values = [
                client.submit(
                    next_values,
                    graph,
                    manifest,
                    step,
                    p,
                    turn,
                    values[p],
                    blocks[p],
                    publish,
                    weighted,
                    backend,
                    pure=False,
                )
                for p in parts
            ]
        if turn in kept:
            files[turn] = [
                client.submit(
                    write_values, attempt, stem, p, turn, values[p], pure=False
                )
                for p in parts
            ]
        # A round is waited for while the next one, which needs it, is under way.
        wait_all(client, before)
        if turn > 1:
            progress(f"rounds of {stem}", turn - 1, last)
        del before
    wait_all(client, values)
    if last:
        progress(f"rounds of {stem}", last, last)
    return {turn: gather(client, found) for turn, found in files.items()}


def _submit_blocks(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    values: Sequence[Future[Any]],
    publish: Publish | None = None,
) -> list[dict[int, Future[Any]]]:
    """For every reader the boundary blocks of the owners of its halo."""
    sizes = manifest.facts["halo_sizes"]
    parts = range(len(values))
    blocks = [
        client.submit(
            boundary_values, graph, manifest, p, values[p], publish, pure=False
        )
        for p in parts
    ]
    return [{o: blocks[o] for o in parts if sizes[o][p]} for p in parts]


def _write_sums(
    graph: Stage,
    manifest: Manifest,
    number: int,
    values: Array,
    blocks: Mapping[int, Array],
    attempt: Attempt,
    stem: str,
    backend: str,
) -> FileRecord:
    sums = sum_neighbours(graph, manifest, number, values, blocks, backend=backend)
    return attempt.write_arrays(f"{stem}-{number:05d}", sums=sums)
