"""A partition's data on a worker during supersteps, and bytes exchanged by the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.backend import Backend, Precision, choose, cpu
from xnq_dist.core.store import Manifest, Stage
from xnq_dist.graph.halo import Partition, distinct
from xnq_dist.graph.layout import file_stem, load_nodes, load_partition
from xnq_dist.reservoir import device
from xnq_dist.reservoir.drive import Drive, FeatureDrive, drive_width
from xnq_dist.reservoir.superstep import column_tiles
from xnq_dist.reservoir.weights import (
    BlockDiagonal,
    Recurrent,
    Weights,
    block_seed,
    draw_weights,
    units_of_blocks,
)

__all__ = [
    "Context",
    "ReservoirSpec",
    "combine_recurrent",
    "draw_all",
    "exchanged_bytes",
    "feature_matrix",
    "halo_picks",
    "load_context",
    "needed_rows",
    "pick_halo",
    "place",
    "place_on",
]


@dataclass(frozen=True)
class Block:
    """Parameters of one of several independent reservoirs that differ between them."""

    seed: int
    units: int
    recurrent_scale: float
    radius: float


@dataclass(frozen=True)
class ReservoirSpec:
    """All parameters, besides the graph, that the states depend on."""

    seed: int
    dim: int
    supersteps: int
    matrix: str
    nonzeros: int
    recurrent_scale: float | tuple[float, ...]
    """Several values: as many independent reservoirs, which share the units."""
    input_scale: float
    bias_scale: float
    rho: float
    """Spectral radius of the adjacency matrix."""
    radius: float | tuple[float, ...]
    """Spectral radius of the recurrent matrix before scaling, for each reservoir."""
    exchange_dtype: str
    tile: int | None
    """Columns exchanged at a time; does not change the states."""
    backend: str = "cpu"
    """``cpu`` or ``gpu``; ``auto`` until the workers' backends are known."""
    precision: Precision = "float32"
    """Precision of states and products on a GPU."""
    blocks_on_device: bool = False
    """Whether boundary blocks are sent from device to device, not through the host."""

    @property
    def resident(self) -> bool:
        """Whether states stay on a GPU; with tiles they stay on the host."""
        return self.backend == "gpu" and len(self.tiles()) == 1

    @property
    def wire_bytes(self) -> int:
        """Bytes of an exchanged value; half-precision states are not converted."""
        half = self.resident and self.precision in ("float16", "bfloat16")
        return 2 if half else np.dtype(self.exchange_dtype).itemsize

    def tiles(self) -> tuple[slice, ...]:
        """Column tiles."""
        return column_tiles(self.dim, self.tile)

    def blocks(self) -> tuple[Block, ...]:
        """The independent reservoirs, one for each recurrent scale.

        Each has its own seed and equals the single reservoir with that seed.
        """
        scales, radii = self.recurrent_scale, self.radius
        scales = scales if isinstance(scales, tuple) else (scales,)
        radii = radii if isinstance(radii, tuple) else (radii,)
        units = units_of_blocks(self.dim, len(scales))
        return tuple(
            Block(block_seed(self.seed, number), units[number], scale, radius)
            for number, (scale, radius) in enumerate(zip(scales, radii, strict=True))
        )


@dataclass(frozen=True)
class Context:
    """One partition on a worker: topology, input drive, weights, exchange lists."""

    partition: Partition
    drive: Drive
    """W_in x + b, shape (n_owned, d'); stored for a GPU."""
    recurrent: device.RecurrentWeights
    boundary: Ints
    """Owned rows that any other partition needs, ascending."""
    picks: Mapping[int, Ints]
    """Rows of each owner's boundary block that are this partition's halo, in order."""
    spec: ReservoirSpec
    backend: Backend = field(default_factory=cpu)
    """Backend of topology and weights; of states and drive too, unless in tiles."""

    def on(self, backend: Backend) -> Context:
        """The context with its arrays in the backend's memory."""
        if not backend.on_device or isinstance(self.recurrent, device.DeviceWeights):
            return self
        move = backend.to_device if self.spec.resident else np.asarray
        return replace(
            self,
            partition=device.move_partition(backend, self.partition),
            drive=move(self.drive),
            recurrent=device.move_weights(backend, self.recurrent),
            boundary=move(self.boundary),
            picks={owner: move(rows) for owner, rows in self.picks.items()},
            backend=backend,
        )

    def place(self, states: Floats32) -> Any:
        """Move states of a checkpoint to the memory that supersteps use."""
        if not self.spec.resident:
            return states
        encoded = device.encode(states, self.backend.state_dtype)
        return self.backend.to_device(encoded)

    def on_host(self, states: Any) -> Floats32:
        """The states as float32 in the host's memory."""
        if not self.spec.resident:
            return states  # type: ignore[no-any-return]
        return device.decode(self.backend.to_host(states))

    def publish(self, states: Floats32, columns: slice) -> NDArray[np.floating]:
        """The boundary block of one column tile, in exchange precision."""
        block = states[self.boundary, columns]
        if states.dtype == np.float32:  # half-precision states are not converted
            block = block.astype(self.spec.exchange_dtype, copy=False)
        if self.spec.resident and not self.spec.blocks_on_device:
            return self.backend.to_host(block)
        return block

    def receive(
        self, blocks: Mapping[int, NDArray[np.floating]], width: int
    ) -> Floats32:
        """Halo rows in local order from the owners' boundary blocks."""
        if not self.spec.resident:
            return pick_halo(self.picks, blocks, width)
        halo = self.backend.empty(
            (sum(map(len, self.picks.values())), width), self.backend.state_dtype
        )
        at = 0
        for owner, rows in self.picks.items():
            block = self.backend.to_device(blocks[owner])
            halo[at : at + len(rows)] = block[rows]
            at += len(rows)
        return halo  # type: ignore[no-any-return]

    def rounded(self, states: Floats32) -> Floats32:
        """States rounded to exchange precision, in which a CPU also stores them.

        Owned rows are rounded too, so that results do not depend on the partitioning. A
        device stores states in its own precision.
        """
        if not self.backend.on_device:
            return states.astype(self.spec.exchange_dtype, copy=False)
        if self.spec.exchange_dtype == "float32" or states.dtype != np.float32:
            return states
        return states.astype(self.spec.exchange_dtype).astype(np.float32)


def load_context(
    graph: Stage,
    manifest: Manifest,
    number: int,
    spec: ReservoirSpec,
    threads: int,
    exchange: bool = True,
) -> Context:
    """Read a partition and compute its input drive, and `picks` if `exchange`."""
    partition = load_partition(graph, manifest, number)
    features = feature_matrix(graph, manifest, number)
    drawn = draw_all(spec, features.shape[1])
    recurrent = combine_recurrent(drawn)
    backend = choose(spec.backend, spec.precision)
    made = FeatureDrive.of(features, drawn)
    stored = backend.on_device or drive_width(features.shape[1], spec.dim) == spec.dim
    drive: Drive = made.stored(threads) if stored else made
    picks = halo_picks(graph, manifest, partition) if exchange else {}
    boundary = partition.boundary_rows.astype(np.int64)
    context = Context(partition, drive, recurrent, boundary, picks, spec)
    return context.on(backend)


def draw_all(spec: ReservoirSpec, features: int) -> list[Weights]:
    """Weights of each of the independent reservoirs."""
    return [
        draw_weights(
            block.seed,
            block.units,
            features,
            matrix=spec.matrix,
            nonzeros=min(spec.nonzeros, block.units),
            recurrent_scale=block.recurrent_scale,
            input_scale=spec.input_scale,
            bias_scale=spec.bias_scale,
            rho=spec.rho,
            radius=block.radius,
        )
        for block in spec.blocks()
    ]


def combine_recurrent(drawn: Sequence[Weights]) -> Recurrent | BlockDiagonal:
    """The recurrent matrix, block-diagonal for several reservoirs."""
    if len(drawn) == 1:
        return drawn[0].recurrent
    return BlockDiagonal(tuple(weights.recurrent for weights in drawn))


def halo_picks(
    graph: Stage, manifest: Manifest, partition: Partition
) -> dict[int, Ints]:
    """Rows of each owner's boundary block that are the partition's halo, in order."""
    offsets = manifest.facts["offsets"]
    picks = {}
    for owner in range(len(offsets) - 1):
        rows = partition.halo[
            partition.halo_offsets[owner] : partition.halo_offsets[owner + 1]
        ]
        if len(rows):
            published = _boundary(graph, manifest, owner)
            picks[owner] = np.searchsorted(published, rows - offsets[owner])
    return picks


def pick_halo(
    picks: Mapping[int, Ints], blocks: Mapping[int, NDArray[np.floating]], width: int
) -> Floats32:
    """Halo rows in local order from the owners' boundary blocks, shape (n_halo, w).

    They have the precision of the blocks, which is that of the states. A single block
    that is needed completely, as with two partitions, is not copied.
    """
    if len(picks) == 1:
        ((owner, rows),) = picks.items()
        if len(rows) == len(blocks[owner]):  # both ascend
            # "W": for read-only arrays kernels would be compiled once more.
            return np.require(blocks[owner], requirements=["C", "W"])
    kinds = {block.dtype for block in blocks.values()}
    halo = np.empty(
        (sum(map(len, picks.values())), width), kinds.pop() if kinds else np.float32
    )
    at = 0
    for owner, rows in picks.items():
        # Rows are in range; mode="clip" avoids the second copy of mode="raise".
        some = halo[at : at + len(rows)]
        np.take(blocks[owner], rows, axis=0, out=some, mode="clip")
        at += len(rows)
    return halo


def _boundary(graph: Stage, manifest: Manifest, owner: int) -> Ints:
    """Boundary rows of another partition; only this array of its file is read."""
    record = manifest.named(file_stem("adjacency", owner) + "-")[0]
    rows = graph.read_arrays(record, ["send_rows"])["send_rows"]
    return distinct(rows)


def feature_matrix(graph: Stage, manifest: Manifest, number: int) -> Floats32:
    """Features of a partition's owned rows, float32, shape (n_owned, F)."""
    column = load_nodes(graph, manifest, number, ["features"])["features"]
    width = column.type.list_size
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values.reshape(-1, width), dtype=np.float32)


def place(edges: Sequence[int], workers: Sequence[str]) -> list[str]:
    """A worker for every partition: by falling number of edges, to the least loaded."""
    load = dict.fromkeys(sorted(workers), 0)
    chosen = [""] * len(edges)
    for number in sorted(range(len(edges)), key=lambda p: (-edges[p], p)):
        worker = min(load, key=lambda w: (load[w], w))
        chosen[number] = worker
        load[worker] += edges[number] + 1
    return chosen


def place_on(edges: Sequence[int], workers: int) -> Ints:
    """Number of the worker of each partition, shape (P,), chosen by `place`."""
    chosen = place(edges, [f"{number:06d}" for number in range(workers)])
    return np.array([int(worker) for worker in chosen], np.int64)


def needed_rows(graph: Stage, manifest: Manifest, workers: int) -> list[list[int]]:
    """Rows of each owner that each other worker needs, shape (P, workers).

    Counted from the send lists in the partitions' files, because several partitions of
    a worker may need the same row.
    """
    at = place_on(manifest.facts["edges"], workers)
    found = []
    for owner in range(len(at)):
        record = manifest.named(file_stem("adjacency", owner) + "-")[0]
        lists = graph.read_arrays(record, ["send_rows", "send_offsets"])
        reader = np.repeat(np.arange(len(at)), np.diff(lists["send_offsets"]))
        pairs = distinct(lists["send_rows"].astype(np.int64) * workers + at[reader])
        counts = np.bincount(pairs % workers, minlength=workers)
        counts[at[owner]] = 0
        found.append(counts.tolist())
    return found


def exchanged_bytes(
    halo_sizes: Ints,
    boundary_rows: Sequence[int],
    placement: Sequence[str],
    row_bytes: int,
) -> int:
    """Bytes exchanged between workers in one superstep.

    A boundary block is sent once to every other worker with a partition that reads it.
    `halo_sizes`: halo rows per (owner, reader); `row_bytes`: d' times the bytes of an
    exchanged value.
    """
    total = 0
    for owner, sizes in enumerate(halo_sizes):
        readers = {placement[q] for q in np.flatnonzero(sizes).tolist()}
        total += len(readers - {placement[owner]}) * boundary_rows[owner] * row_bytes
    return total
