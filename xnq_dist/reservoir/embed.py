"""The embedding driver: supersteps, checkpoints, recovery, the embedding table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from xnq_dist.core import allocator, cluster, products
from xnq_dist.core.arrays import Floats32
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.inputs import embeddings_inputs, set_scales
from xnq_dist.core.leftovers import owned_name
from xnq_dist.core.method_records import method_of
from xnq_dist.core.need import PartitionCounts
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import (
    STATES,
    Attempt,
    FileRecord,
    Folder,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.core.waiting import Heartbeats, gather, run_on_workers
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.layout import halo_sizes, load_nodes
from xnq_dist.reservoir.checkpoint import Checkpoints, checkpoint_interval, write_states
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.descriptors import Descriptors, describe_nodes
from xnq_dist.reservoir.disk_engine import DiskExchange
from xnq_dist.reservoir.exchange import TasksExchange, again_if_lost
from xnq_dist.reservoir.length import with_length
from xnq_dist.reservoir.spmd import SpmdExchange
from xnq_dist.reservoir.state_files import StateFiles
from xnq_dist.reservoir.volume import (
    GROUP,
    choose_engine,
    sums_columns,
    tile_memory,
    volume,
)
from xnq_dist.reservoir.weights import (
    block_seed,
    draw_recurrent,
    recurrent_radius,
    units_of_blocks,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "embed_rows",
    "embed_scaled",
    "reservoir_spec",
    "run_reservoir",
    "state_files",
]

log = logging.getLogger(__name__)

Engine = DiskExchange | SpmdExchange | TasksExchange
R = TypeVar("R")


def reservoir_spec(
    settings: Settings,
    rho: float,
    recurrent_scale: float | tuple[float, ...],
    input_scale: float,
    dim: int | None = None,
) -> ReservoirSpec:
    """The specification of a reservoir, with the computed radius of its matrix.

    `rho` is the spectral radius of the adjacency matrix. Several recurrent scales give
    as many independent reservoirs that share the units. `dim` None: ``reservoir.dim``.
    """
    reservoir = settings.reservoir
    if reservoir.supersteps == "auto":
        raise StageError(
            "the number of supersteps is not set: internal error, please report it"
        )
    units = reservoir.dim if dim is None else dim
    nonzeros = min(reservoir.nonzeros, units)
    count = len(recurrent_scale) if isinstance(recurrent_scale, tuple) else 1
    radii = []
    for number, size in enumerate(units_of_blocks(units, count)):
        seed = block_seed(settings.seed, number)
        drawn = draw_recurrent(seed, size, reservoir.matrix, min(nonzeros, size))
        radii.append(recurrent_radius(drawn, seed))
    return ReservoirSpec(
        seed=settings.seed,
        dim=units,
        supersteps=reservoir.supersteps,
        matrix=reservoir.matrix,
        nonzeros=nonzeros,
        recurrent_scale=recurrent_scale,
        input_scale=input_scale,
        bias_scale=reservoir.bias_scale,
        rho=rho,
        radius=tuple(radii) if isinstance(recurrent_scale, tuple) else radii[0],
        exchange_dtype=settings.exchange.dtype,
        tile=reservoir.tile,
        backend="cpu" if settings.exchange.on_cpus else settings.backend,
        precision=reservoir.precision,
    )


@dataclass(frozen=True)
class Traffic:
    """Placement and exchanged bytes of the supersteps."""

    engine: str
    placement: tuple[str, ...]
    """Worker of each partition."""
    bytes_per_superstep: int
    """Bytes exchanged between workers in one superstep."""
    disk_bytes: int
    """Bytes of states read and written in one superstep; 0: in memory."""


def state_files(
    settings: Settings, folder: Folder, client: Client
) -> StateFiles | None:
    """Files for the states of a run; None: states stay in memory.

    Raises
    ------
    SettingsError
        When the run directory is on an object store and `scratch` is not set.
    """
    if settings.exchange.states != "disk":
        return None
    if settings.scratch is not None:
        where = Path(settings.scratch).expanduser().absolute() / owned_name("states")
    elif folder.is_local:
        where = Path(folder.path(STATES))
    else:
        raise SettingsError(
            f"exchange.states = disk needs a local folder, which {folder.uri} is not: "
            "set scratch to one that all workers can access"
        )
    threads = max(cluster.workers(client).values(), default=1)
    memory = tile_memory(cluster.smallest_memory(client), threads)
    return StateFiles(str(where), memory)


def run_reservoir(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    spec: ReservoirSpec,
    finish: Callable[[int, Floats32], R],
    checkpoints: Checkpoints | None = None,
    every: int | None = None,
    timeout: float = 60.0,
    progress: Progress = silent,
    engine: str = "auto",
    files: StateFiles | None = None,
    grace: float = 0.0,
) -> tuple[list[R], Traffic]:
    """Run all supersteps and apply `finish` to each partition's final states.

    If a worker is lost, the supersteps since the last checkpoint are done again, with
    the same bits.

    Parameters
    ----------
    finish
        Maps partition number and states, shape (n_owned, d'), to a small result; called
        on the worker that has the states.
    checkpoints
        Writes and resumes checkpoints; None: no checkpoints.
    every
        Supersteps between two checkpoints; None: no checkpoints.
    timeout
        Seconds without a sign of life after which a worker is lost; also the maximum
        wait for a new worker if all are lost.
    engine
        ``tasks``, ``spmd`` or ``auto``, with the same bits.
    files
        Files of states for the engine ``tasks``, with the same bits; None: in memory.
    grace
        Seconds to write a checkpoint when a signal ends the run.

    Returns
    -------
    tuple
        The results in partition order, and the traffic.

    Raises
    ------
    DoesNotFitError
        When workers are lost repeatedly without a checkpoint in between.
    ClusterError
        When the scheduler is lost, or no worker gives a sign of life.
    """
    spec = _settled(client, spec)
    beats = Heartbeats(client, timeout)
    parts = int(manifest.facts["partitions"])
    on_tasks = spec.backend == "gpu" or files is not None
    engine = choose_engine(engine, parts, on_tasks)

    def opened(suspects: frozenset[str]) -> Engine:
        shared = client, graph, manifest, spec
        if files is not None:
            return DiskExchange(*shared, files, suspects, beats)
        if engine == "spmd":
            return SpmdExchange(*shared, suspects, beats, timeout)
        return TasksExchange(*shared, suspects, beats)

    def once(suspects: frozenset[str]) -> tuple[list[R], Traffic]:
        with closing(opened(suspects)) as used:
            try:
                results = _drive(used, spec, finish, checkpoints, every, progress)
            except BaseException as ended:
                asked = not isinstance(ended, Exception)  # by a signal or an alarm
                if asked and checkpoints and grace and (every or 0) < spec.supersteps:
                    _write_last(used, checkpoints, max(1, reached()), grace)
                raise
            exchanged, disk = used.bytes_per_superstep, 0
            if isinstance(used, DiskExchange):
                disk = used.disk_bytes_per_superstep
            return results, Traffic(engine, tuple(used.placement), exchanged, disk)

    def reached() -> int:
        latest = checkpoints.latest() if checkpoints else None
        return latest[0] if latest else 0

    with nullcontext() if files is None else files.made():
        return again_if_lost(beats, once, reached)


def _settled(client: Client, spec: ReservoirSpec) -> ReservoirSpec:
    """The specification with the backend of all workers."""
    if spec.backend == "cpu":
        return spec
    return replace(
        spec,
        backend=cluster.settle_backend(client, spec.backend),
        blocks_on_device=client.scheduler_info()["address"].startswith("ucx"),
    )


def _drive(
    engine: Engine,
    spec: ReservoirSpec,
    finish: Callable[[int, Floats32], R],
    checkpoints: Checkpoints | None,
    every: int | None,
    progress: Progress,
) -> list[R]:
    latest = checkpoints.latest() if checkpoints else None
    if latest:
        log.info("resuming after superstep %d of %d", latest[0], spec.supersteps)
    engine.begin(latest[1:] if latest else None)
    progress("supersteps", engine.step, spec.supersteps)
    stride = 4
    while engine.step < spec.supersteps:
        target = spec.supersteps
        if every is not None:
            target = min(target, (engine.step // every + 1) * every)
        # A few at a time, so that progress is reported.
        count = min(stride, engine.max_stride, target - engine.step)
        began = time.perf_counter()
        engine.advance(count)
        taken = (time.perf_counter() - began) / count
        stride = max(1, round(engine.stride_seconds / max(taken, 1e-6)))
        progress("supersteps", engine.step, spec.supersteps)
        if checkpoints and engine.step == target < spec.supersteps:
            _write_checkpoint(engine, checkpoints)
    return engine.apply(finish)


def _write_checkpoint(engine: Engine, checkpoints: Checkpoints) -> None:
    began = time.perf_counter()
    attempt = checkpoints.begin(engine.step)
    files = engine.apply(partial(write_states, attempt))
    checkpoints.commit(engine.step, attempt, files, time.perf_counter() - began)


def _write_last(
    engine: Engine, checkpoints: Checkpoints, reached: int, grace: float
) -> None:
    """Write a checkpoint of an interrupted run, if it is later than `reached`.

    Takes about `grace` seconds at most; logs the reason if none could be written.
    """
    log.info("interrupted: a checkpoint is written first, within %g s", grace)
    engine.deadline = time.monotonic() + grace
    try:
        engine.complete()
        if engine.step > reached:
            _write_checkpoint(engine, checkpoints)
            log.info("checkpoint after superstep %d written", engine.step)
    except Exception as error:  # the interruption is what ends the run
        log.warning("no checkpoint was written (%s): the last one counts", error)


@dataclass(frozen=True)
class _WriteEmbeddings:
    """Writes a partition's final states as one file of the embedding table."""

    graph: Stage
    manifest: Manifest
    attempt: Attempt
    dtype: str
    descriptors: Descriptors | None = None
    """Further columns of xnq+."""

    def __call__(self, number: int, states: Floats32) -> FileRecord:
        with self.attempt.table_writer(f"part-{number:05d}", "embeddings") as writer:
            for table in ahead(self._tables(number, states)):
                writer.write(table)
        return writer.record

    def _tables(self, number: int, states: Floats32) -> Iterator[pa.Table]:
        """Groups of rows, at least one: an empty partition's file has columns, too."""
        ids = load_nodes(self.graph, self.manifest, number, ["node_id"])["node_id"]
        width, described = states.shape[1], self.descriptors
        if described is not None:
            width += described.widths.total
        step = max(1, GROUP // (4 * width))
        more = None if described is None else described.blocks(number, step)
        for first in range(0, max(1, len(states)), step):
            part = states[first : first + step].astype(self.dtype, copy=False)
            if more is not None:
                columns = next(more).astype(self.dtype, copy=False)
                part = np.concatenate([part, columns], axis=1)
            values = pa.FixedSizeListArray.from_arrays(part.reshape(-1), width)
            rows = ids.slice(first, step)
            yield pa.table({"node_id": rows, "embedding": values})


def embed_rows(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    make: Callable[[Stage, Manifest, int], Floats32],
    progress: Progress = silent,
) -> Manifest:
    """Make the stage ``embeddings`` with a function of a partition, without supersteps.

    Parameters
    ----------
    make
        Maps the stage ``graph``, its manifest and a partition's number to the vectors
        of the partition's nodes in row order, shape (n, d'); called on a worker.

    Raises
    ------
    StageError
        When the graph stage is missing.
    """
    graph, manifest = run.stage("graph"), run.complete("graph", "run prepare first")
    settings = cluster.settle(client, settings)
    inputs = embeddings_inputs(manifest, settings, *set_scales(settings))
    current = run.reuse("embeddings", inputs)
    if current is not None:
        return current
    began = time.perf_counter()
    stage = run.stage("embeddings")
    attempt = stage.begin()
    write = _WriteEmbeddings(graph, manifest, attempt, settings.embeddings.dtype)
    count = int(manifest.facts["partitions"])
    progress("embeddings", 0, count)
    tasks = [
        client.submit(_embed_one, make, write, k, pure=False) for k in range(count)
    ]
    files, widths = zip(*gather(client, tasks), strict=True)
    progress("embeddings", count, count)
    rows = sum(record.rows for record in files)
    facts = {"dim": widths[0], "blocks": [widths[0]], "n_nodes": rows}
    seconds = time.perf_counter() - began
    return stage.commit(attempt, files, fingerprint(inputs), inputs, facts, seconds)


def _embed_one(
    make: Callable[[Stage, Manifest, int], Floats32],
    write: _WriteEmbeddings,
    number: int,
) -> tuple[FileRecord, int]:
    vectors = make(write.graph, write.manifest, number)
    return write(number, vectors), vectors.shape[1]


def embed_scaled(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    recurrent_scale: float | tuple[float, ...],
    input_scale: float,
    progress: Progress = silent,
) -> Manifest:
    """Make the stage ``embeddings`` with these scales; resume from a checkpoint."""
    graph, manifest = run.stage("graph"), run.complete("graph", "run prepare first")
    facts = manifest.facts
    settings = cluster.settle(client, settings)
    inputs = embeddings_inputs(manifest, settings, recurrent_scale, input_scale)
    current = run.reuse("embeddings", inputs)
    if current is not None:
        return current
    began = time.perf_counter()
    settings = with_length(settings, facts)
    spec = reservoir_spec(settings, facts["rho"], recurrent_scale, input_scale)
    checkpoints = Checkpoints(run.stage("checkpoints"), inputs)
    every = checkpoint_interval(
        settings.checkpoint.every,
        facts["n_nodes"],
        facts["n_edges"],
        spec.dim,
        spec.blocks()[0].units if spec.matrix == "dense" else spec.nonzeros,
        spec.supersteps,
    )
    stage = run.stage("embeddings")
    attempt = stage.begin()
    described, blocks = None, [spec.dim]
    if method_of(settings.method).descriptors:
        described = describe_nodes(
            *(client, graph, manifest, settings.seed, attempt),
            _sums_columns(client, graph, manifest, settings.exchange.engine),
            *(settings.backend, progress, settings.exchange.engine),
        )
        blocks += [described.widths.features, described.widths.spectrum]
        # Arrays of other sizes follow.
        run_on_workers(client, allocator.release)
    dtype = settings.embeddings.dtype
    files, traffic = run_reservoir(
        client,
        graph,
        manifest,
        spec,
        _WriteEmbeddings(graph, manifest, attempt, dtype, described),
        checkpoints,
        every,
        settings.cluster.timeout,
        progress,
        settings.exchange.engine,
        state_files(settings, run.folder, client),
        settings.checkpoint.grace,
    )
    run_on_workers(client, allocator.release)
    rows = sum(record.rows for record in files)
    if rows != facts["n_nodes"]:
        raise StageError(
            f"embeddings have {rows} rows for {facts['n_nodes']} nodes: internal "
            "error, please report it"
        )
    for record in described.files if described else ():
        attempt.folder.delete(record.name)
    row_bytes = spec.dim * spec.wire_bytes
    committed = stage.commit(
        attempt,
        files,
        fingerprint(inputs),
        inputs,
        {
            **asdict(spec),
            "blocks": [width for width in blocks if width],
            "n_nodes": rows,
            "checkpoint_every": every,
            "workers": len(set(traffic.placement)),
            "exchange_engine": traffic.engine,
            "products": "cuBLAS" if spec.backend == "gpu" else products.FORM,
            "exchanged_bytes_per_superstep": traffic.bytes_per_superstep,
            "state_file_bytes_per_superstep": traffic.disk_bytes,
            "halo_bytes": [halo * row_bytes for halo in facts["halo"]],
        },
        time.perf_counter() - began,
    )
    checkpoints.remove()
    return committed


def _sums_columns(client: Client, graph: Stage, manifest: Manifest, engine: str) -> int:
    """Columns of sums over neighbours that fit into every worker's memory."""
    facts, threads = manifest.facts, cluster.workers(client)
    known = {name: facts[name] for name in ("owned", "edges", "boundary")}
    counts = PartitionCounts(**known, halo_sizes=halo_sizes(graph, manifest))
    parts = len(counts.edges)
    busy = min(len(threads), parts)
    moves = volume(choose_engine(engine, parts), counts, busy)
    at_once = min(-(-parts // busy), max(threads.values()))
    return sums_columns(moves, at_once, cluster.smallest_memory(client))
