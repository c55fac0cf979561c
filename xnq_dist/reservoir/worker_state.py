"""One worker's share of the engine ``spmd``: its partitions, states and supersteps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any, TypeVar

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.backend import cpu
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.reservoir.context import Context, ReservoirSpec, load_context
from xnq_dist.reservoir.mailbox import PeerLost
from xnq_dist.reservoir.peers import PATIENCE, GiveUp, Peers, Work
from xnq_dist.reservoir.superstep import first_states, gather, superstep, update
from xnq_dist.reservoir.wire import hold_slot

__all__ = ["WorkerState", "advance_worker", "apply_on_worker"]

R = TypeVar("R")


class WorkerState:
    """Data on a worker between the tasks of one run: partitions, states, routes.

    It never leaves its worker: it is a task's result, which Dask deletes with its
    future. States, shapes (n_owned, d'), are those after superstep `step`, first that
    of the checkpoint, or 1.
    """

    def __init__(
        self,
        run: str,
        graph: Stage,
        manifest: Manifest,
        placement: Sequence[str],
        worker: str,
        threads: int,
        timeout: float,
        spec: ReservoirSpec,
        checkpoint: tuple[int, Stage, Manifest] | None,
    ) -> None:
        self.contexts: dict[int, Context] = {}
        self.states: dict[int, Floats32] = {}
        self.step = 1 if checkpoint is None else checkpoint[0]
        self.threads, self._spec = threads, spec
        for number in [p for p, chosen in enumerate(placement) if chosen == worker]:
            part = load_context(graph, manifest, number, spec, threads, exchange=False)
            if checkpoint is None:
                states = first_states(part.drive, part.recurrent, threads)
            else:
                _, stage, stored = checkpoint
                record = stored.named(f"state-{number:05d}")[0]
                states = np.ascontiguousarray(stage.read_arrays(record)["states"])
            self.contexts[number] = part
            self.states[number] = part.rounded(states)
        partitions = {n: part.partition for n, part in self.contexts.items()}
        self._tiles = self._spec.tiles()
        widths = [columns.stop - columns.start for columns in self._tiles]
        offsets, dtype = manifest.facts["offsets"], self._spec.exchange_dtype
        self.peers = Peers(run, partitions, offsets, placement, widths, dtype, timeout)
        self._posted = self.step - 1
        # States alternate between two arrays: the system must clear new memory first.
        self._next = {n: np.empty_like(before) for n, before in self.states.items()}
        self._wide: dict[int, Floats32] = {}
        if len(widths) > 1:
            max_rows = max(map(len, self.states.values()))
            self._sums = np.empty(max_rows * widths[0], np.float32)
            if dtype != "float32":
                shapes = {n: before.shape for n, before in self.states.items()}
                self._wide = {n: np.empty(s, np.float32) for n, s in shapes.items()}

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("states of a running embedding do not leave their worker")

    def __sizeof__(self) -> int:
        return sum(
            2 * self.states[number].nbytes + context.drive.nbytes
            for number, context in self.contexts.items()
        )

    def advance(self, count: int) -> None:
        """Run `count` supersteps together with all other workers."""
        give_up = hold_slot(PATIENCE)
        if self._posted < self.step:
            self.post(self.step, self.states)
        for _ in range(count):
            self._superstep(give_up)
            self.states, self._next = self._next, self.states
            self.step += 1

    def post(self, step: int, states: Mapping[int, Floats32]) -> None:
        """Send all blocks of the states after a superstep."""
        for tile in range(len(self._tiles)):
            for number in self.contexts:
                self._post(step, tile, number, states[number])
        self._posted = step

    def collect(self, step: int, tile: int, work: Work, give_up: GiveUp) -> None:
        """Call `work` for each partition, as `Peers.collect`, with one tile's rows."""
        generation = self._generation(step, tile)
        # The states to send must not be overwritten before they are sent.
        sent = self._generation(step, 0) - 1
        columns = self._tiles[tile]
        self.peers.collect(generation, sent, self.states, columns, work, give_up)

    def _superstep(self, give_up: GiveUp) -> None:
        """Compute the next states in the array of the previous ones."""
        step, after = self.step, self._next
        follows = step + 1 < self._spec.supersteps

        def run_partition(number: int, pick: Callable[[], Floats32]) -> None:
            context = self.contexts[number]
            before = context.partition, self.states[number], lambda _: pick()
            weights = context.drive, context.recurrent, self._tiles
            superstep(cpu(), *before, *weights, self.threads, after[number])
            if follows:
                self._post(step + 1, 0, number, after[number])

        if len(self._tiles) == 1:
            self.collect(step, 0, run_partition, give_up)
            if follows:
                self._posted = step + 1
            return
        self._tiled(after, give_up)
        if follows:
            self.post(step + 1, after)

    def _tiled(self, after: Mapping[int, Floats32], give_up: GiveUp) -> None:
        wide = self._wide or after
        for tile, columns in enumerate(self._tiles):

            def gather_tile(
                number: int, pick: Callable[[], Floats32], columns: slice = columns
            ) -> None:
                states, width = self.states[number], columns.stop - columns.start
                sums = self._sums[: len(states) * width].reshape(-1, width)
                part = self.contexts[number].partition
                gather(cpu(), part, states, columns, pick(), sums, self.threads)
                wide[number][:, columns] = sums

            self.collect(self.step, tile, gather_tile, give_up)
        for number, context in self.contexts.items():
            self.peers.check()
            began = time.perf_counter()
            update(cpu(), wide[number], context.drive, context.recurrent, self.threads)
            if self._wide:
                after[number][...] = wide[number]
            self.peers.clock.computing += time.perf_counter() - began

    def _generation(self, step: int, tile: int) -> int:
        return step * len(self._tiles) + tile

    def _post(self, step: int, tile: int, number: int, states: Floats32) -> None:
        generation = self._generation(step, tile)
        self.peers.post(generation, number, states, self._tiles[tile])


def advance_worker(state: WorkerState, step: int, count: int) -> dict[str, float]:
    """Run supersteps ``step + 1`` to ``step + count`` of a worker; return its clock.

    Raises `PeerLost` also if the state is not after superstep `step`, because Dask has
    made it again.
    """
    if state.step != step:
        raise PeerLost("", f"is after superstep {state.step}, not {step}")
    before = replace(state.peers.clock)
    state.advance(count)
    return {
        name: value - getattr(before, name)
        for name, value in asdict(state.peers.clock).items()
    }


def apply_on_worker(
    state: WorkerState, function: Callable[[int, Floats32], R]
) -> list[tuple[int, R]]:
    """Numbers of the partitions and (small) results of a function of their states."""

    def one(number: int) -> tuple[int, R]:
        states = state.states[number]
        result: Any = function(number, states)
        if isinstance(result, np.ndarray) and np.may_share_memory(result, states):
            result = result.copy()  # later supersteps overwrite the states
        return number, result

    with ThreadPoolExecutor(state.threads) as pool:
        return list(pool.map(one, state.states))
