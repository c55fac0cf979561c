"""One worker's share of the engine ``spmd``: its partitions, states and supersteps."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.backend import cpu
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.reservoir.context import Context, ReservoirSpec, load_context
from xnq_dist.reservoir.mailbox import Mailbox
from xnq_dist.reservoir.routes import find_routes, pick_rows
from xnq_dist.reservoir.superstep import first_states, gather, superstep, update
from xnq_dist.reservoir.wire import POLL, Outgoing, PeerLost, Wire, hold_slot

__all__ = ["Clock", "WorkerState", "advance_worker", "apply_on_worker"]

R = TypeVar("R")
Work = Callable[[int, Callable[[], Floats32]], None]
GiveUp = Callable[[float], None]

PATIENCE = 2.0
"""Seconds that a task waits for blocks before it releases its thread to other tasks."""


@dataclass
class Clock:
    """Seconds that a worker spent on each activity, and bytes that it received."""

    computing: float = 0.0
    picking: float = 0.0
    waiting: float = 0.0
    received: int = 0


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
        spec: ReservoirSpec,
        placement: Sequence[str],
        worker: str,
        threads: int,
        timeout: float,
        checkpoint: tuple[int, Stage, Manifest] | None,
    ) -> None:
        self.contexts: dict[int, Context] = {}
        self.states: dict[int, Floats32] = {}
        self.step = 1 if checkpoint is None else checkpoint[0]
        self.clock = Clock()
        self._placement, self._threads, self._spec = placement, threads, spec
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
        self.routes = find_routes(partitions, manifest.facts["offsets"], placement)
        self._tiles = self._spec.tiles()
        widths = [columns.stop - columns.start for columns in self._tiles]
        self._mailbox = Mailbox(self.routes.arrivals, widths, self._spec.exchange_dtype)
        self._wire = Wire(run, self._mailbox, timeout)
        self._remote = {
            number: [owner for owner in picks if owner in self.routes.arrivals]
            for number, picks in self.routes.picks.items()
        }
        self._posted = self.step - 1
        rows = max(part.n_halo for part in partitions.values())
        dtype = next(iter(self.states.values())).dtype
        self._halo_rows = np.empty(rows * widths[0], dtype)
        # States alternate between two arrays: the system must clear new memory first.
        self._next = {n: np.empty_like(before) for n, before in self.states.items()}
        self._wide: dict[int, Floats32] = {}
        if len(widths) > 1:
            max_rows = max(map(len, self.states.values()))
            self._sums = np.empty(max_rows * widths[0], np.float32)
            if dtype != np.float32:
                shapes = {n: before.shape for n, before in self.states.items()}
                self._wide = {n: np.empty(s, np.float32) for n, s in shapes.items()}
        weakref.finalize(self, self._wire.close).atexit = False

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
        """Call ``work(partition, pick)`` for each partition once its blocks arrived.

        ``pick()`` returns the halo rows' states in local order, shape (n_halo, w), in
        memory that is reused for the next partition. `give_up` is called with the
        seconds waited, twice a second.
        """
        generation = self._generation(step, tile)
        self._mailbox.reach(generation)
        # The states to send must not be overwritten before they are sent.
        self._wire.flush(self._generation(step, 0) - 1, self._wire.look)
        left = list(self.contexts)
        while left:
            self._wire.check()
            began = time.perf_counter()
            at = self._wait(generation, left, give_up)
            self.clock.waiting += time.perf_counter() - began
            number = left.pop(at)
            before, began = self.clock.picking, time.perf_counter()
            work(number, partial(self._pick, generation, tile, number))
            spent = time.perf_counter() - began
            self.clock.computing += spent - (self.clock.picking - before)
        self.clock.received = self._mailbox.received

    def _superstep(self, give_up: GiveUp) -> None:
        """Compute the next states in the array of the previous ones."""
        step, after = self.step, self._next
        follows = step + 1 < self._spec.supersteps

        def run_partition(number: int, pick: Callable[[], Floats32]) -> None:
            context = self.contexts[number]
            superstep(
                cpu(),
                context.partition,
                self.states[number],
                lambda _: pick(),
                context.drive,
                context.recurrent,
                self._tiles,
                self._threads,
                after[number],
            )
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
                gather(cpu(), part, states, columns, pick(), sums, self._threads)
                wide[number][:, columns] = sums

            self.collect(self.step, tile, gather_tile, give_up)
        for number, context in self.contexts.items():
            self._wire.check()
            began = time.perf_counter()
            update(cpu(), wide[number], context.drive, context.recurrent, self._threads)
            if self._wide:
                after[number][...] = wide[number]
            self.clock.computing += time.perf_counter() - began

    def _generation(self, step: int, tile: int) -> int:
        return step * len(self._tiles) + tile

    def _post(self, step: int, tile: int, number: int, states: Floats32) -> None:
        columns, dtype = self._tiles[tile], np.dtype(self._spec.exchange_dtype)
        generation, width = self._generation(step, tile), columns.stop - columns.start

        # Refers to the states, not to self: a block being sent must not keep the run.
        def copy_rows(rows: Ints, out: NDArray[np.floating]) -> None:
            pick_rows(rows, states, columns, out)

        for worker, rows in self.routes.sends[number].items():
            self._wire.send(
                Outgoing(worker, generation, number, rows, copy_rows, width, dtype)
            )

    def _wait(self, generation: int, left: Sequence[int], give_up: GiveUp) -> int:
        """Position in `left` of a partition whose blocks have arrived."""
        remote = [self._remote[number] for number in left]
        began = time.monotonic()
        while (at := self._mailbox.wait(generation, remote, POLL)) is None:
            give_up(time.monotonic() - began)
            owners = {owner for owners in remote for owner in owners}
            missing = self._mailbox.missing(generation, owners)
            self._wire.look(sorted({self._placement[owner] for owner in missing}))
        return at

    def _pick(self, generation: int, tile: int, number: int) -> Floats32:
        began = time.perf_counter()
        columns = self._tiles[tile]
        width = columns.stop - columns.start
        picks = self.routes.picks[number]
        rows = self.contexts[number].partition.n_halo
        halo = self._halo_rows[: rows * width].reshape(rows, width)
        at = 0
        for owner, places in picks.items():
            part = halo[at : at + len(places)]
            if owner in self.contexts:
                pick_rows(places, self.states[owner], columns, part)
            else:
                block = self._mailbox.read(generation, owner)
                pick_rows(places, block, slice(0, width), part)
            at += len(places)
        self.clock.picking += time.perf_counter() - began
        return halo


def advance_worker(state: WorkerState, step: int, count: int) -> dict[str, float]:
    """Run supersteps ``step + 1`` to ``step + count`` of a worker; return its clock.

    Raises `PeerLost` also if the state is not after superstep `step`, because Dask has
    made it again.
    """
    if state.step != step:
        raise PeerLost("", f"is after superstep {state.step}, not {step}")
    before = replace(state.clock)
    state.advance(count)
    return {
        name: value - getattr(before, name)
        for name, value in asdict(state.clock).items()
    }


def apply_on_worker(
    function: Callable[[int, Floats32], R], number: int, state: WorkerState
) -> R:
    """The (small) result of a function of one partition's states."""
    states = state.states[number]
    result: Any = function(number, states)
    if isinstance(result, np.ndarray) and np.may_share_memory(result, states):
        result = result.copy()  # later supersteps overwrite the states
    return result  # type: ignore[no-any-return]
