"""The embedding driver: supersteps, checkpoints, recovery, the embedding table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist import cluster
from xnq_dist.config import Settings
from xnq_dist.errors import StageError
from xnq_dist.graph.layout import load_nodes
from xnq_dist.progress import Progress, silent
from xnq_dist.reservoir.checkpoint import (
    Checkpoints,
    checkpoint_interval,
    write_states,
)
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.exchange import Exchange, TasksExchange, WorkersLost, recover
from xnq_dist.reservoir.spmd import SpmdExchange
from xnq_dist.reservoir.weights import (
    block_seed,
    draw_recurrent,
    recurrent_radius,
    units_of_blocks,
)
from xnq_dist.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Traffic", "embed_scaled", "reservoir_spec", "run_reservoir"]

log = logging.getLogger(__name__)

Array = NDArray[np.float32]
R = TypeVar("R")

MAX_LOSSES = 3
"""Times that workers may be lost without a checkpoint in between."""


def reservoir_spec(
    settings: Settings,
    rho: float,
    recurrent_scale: float | tuple[float, ...],
    input_scale: float,
    dim: int | None = None,
) -> ReservoirSpec:
    """The specification of a reservoir; the radius of its matrix is computed here.

    Parameters
    ----------
    rho
        Spectral radius of the adjacency matrix.
    recurrent_scale
        Several: that many reservoirs side by side, which share the units.
    dim
        Units; None: ``reservoir.dim``.
    """
    wanted = settings.reservoir
    units = wanted.dim if dim is None else dim
    nonzeros = min(wanted.nonzeros, units)
    count = len(recurrent_scale) if isinstance(recurrent_scale, tuple) else 1
    radii = []
    for number, size in enumerate(units_of_blocks(units, count)):
        seed = block_seed(settings.seed, number)
        drawn = draw_recurrent(seed, size, wanted.matrix, min(nonzeros, size))
        radii.append(recurrent_radius(drawn, seed))
    return ReservoirSpec(
        seed=settings.seed,
        dim=units,
        supersteps=wanted.supersteps,
        matrix=wanted.matrix,
        nonzeros=nonzeros,
        recurrent_scale=recurrent_scale,
        input_scale=input_scale,
        bias_scale=wanted.bias_scale,
        rho=rho,
        radius=tuple(radii) if isinstance(recurrent_scale, tuple) else radii[0],
        exchange_dtype=settings.exchange.dtype,
        tile=wanted.tile,
        # Blocks between workers of the engine `spmd` are NumPy's.
        backend="cpu" if settings.exchange.engine == "spmd" else settings.backend,
        precision=wanted.precision,
    )


@dataclass(frozen=True)
class Traffic:
    """What went where during the supersteps."""

    engine: str
    placement: tuple[str, ...]
    """Worker of each partition."""
    bytes_per_superstep: int
    """Bytes that crossed between workers in one superstep."""


def run_reservoir(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    spec: ReservoirSpec,
    finish: Callable[[int, Array], R],
    checkpoints: Checkpoints | None = None,
    every: int | None = None,
    timeout: float = 60.0,
    progress: Progress = silent,
    engine: str = "tasks",
) -> tuple[list[R], Traffic]:
    """Run all supersteps and apply `finish` to each partition's final states.

    A lost worker costs the supersteps since the last checkpoint and changes no bit.

    Parameters
    ----------
    finish
        From partition number and states, shape (n_owned, d'), to something small;
        it runs where the states are.
    checkpoints
        Where checkpoints go and are resumed from; None: no checkpoints.
    every
        Supersteps between two checkpoints; None: no checkpoints.
    timeout
        Seconds to wait for a worker after all were lost, and for one's answer.
    engine
        ``tasks`` or ``spmd``; changes no bit.

    Returns
    -------
    tuple
        The results in partition order, and what went where.

    Raises
    ------
    StageError
        When workers are lost again and again without a checkpoint in between.
    """
    spec = _settled(client, spec)
    losses = 0
    reached = -1
    suspects: frozenset[str] = frozenset()
    while True:
        try:
            recover(client, timeout)
            moving: Exchange
            if engine == "spmd":
                moving = SpmdExchange(client, graph, manifest, spec, suspects, timeout)
            else:
                moving = TasksExchange(client, graph, manifest, spec, suspects)
            with closing(moving):
                results = _drive(moving, spec, finish, checkpoints, every, progress)
                return results, Traffic(
                    engine, tuple(moving.placement), moving.bytes_per_superstep
                )
        except WorkersLost as event:
            suspects |= event.suspects
            found = checkpoints.latest() if checkpoints else None
            step = found[0] if found else 0
            losses = losses + 1 if step <= reached else 1
            reached = step
            if losses > MAX_LOSSES:
                raise StageError(
                    f"workers were lost {losses} times after superstep {step} "
                    f"({event}): most likely they ran out of memory; use more "
                    "partitions on more workers, a larger cluster.memory_limit, or a "
                    "smaller reservoir.dim"
                ) from event
            log.warning("%s: beginning again after superstep %d", event, step)


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
    engine: Exchange,
    spec: ReservoirSpec,
    finish: Callable[[int, Array], R],
    checkpoints: Checkpoints | None,
    every: int | None,
    progress: Progress,
) -> list[R]:
    found = checkpoints.latest() if checkpoints else None
    step = 1
    if found:
        step = found[0]
        log.info("resuming after superstep %d of %d", step, spec.supersteps)
    engine.begin(found[1:] if found else None)
    progress("supersteps", step, spec.supersteps)
    while step < spec.supersteps:
        target = spec.supersteps
        if every is not None:
            target = min(target, (step // every + 1) * every)
        # Not all at once: progress is seen.
        count = min(engine.stride, target - step)
        engine.advance(count)
        step += count
        progress("supersteps", step, spec.supersteps)
        if checkpoints and step == target and step < spec.supersteps:
            began = time.perf_counter()
            attempt = checkpoints.begin(step)
            files = engine.apply(write_states(attempt))
            checkpoints.commit(step, attempt, files, time.perf_counter() - began)
    return engine.apply(finish)


@dataclass(frozen=True)
class _WriteEmbeddings:
    """Writes a partition's final states as one file of the embedding table."""

    graph: Stage
    manifest: Manifest
    attempt: Attempt
    dtype: str

    def __call__(self, number: int, states: Array) -> FileRecord:
        ids = load_nodes(self.graph, self.manifest, number, ["node_id"])["node_id"]
        values = pa.array(states.astype(self.dtype).ravel())
        table = pa.table(
            {
                "node_id": ids,
                "embedding": pa.FixedSizeListArray.from_arrays(values, states.shape[1]),
            }
        )
        return self.attempt.write_table(f"part-{number:05d}", table, "embeddings")


def embed_scaled(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    recurrent_scale: float | tuple[float, ...],
    input_scale: float,
    progress: Progress = silent,
) -> Manifest:
    """The stage ``embeddings`` for given scales; resumes from a checkpoint.

    Raises
    ------
    StageError
        When the graph stage is missing, or workers are lost again and again.
    """
    graph = run.stage("graph")
    manifest = graph.manifest()
    if manifest is None:
        raise StageError(f"{run.uri} has no whole graph stage: run prepare first")
    facts = manifest.facts
    inputs: dict[str, Any] = {
        "graph": manifest.fingerprint,
        "seed": settings.seed,
        "reservoir": settings.reservoir.model_dump(
            exclude={"tile", "rho", "precision"}
        ),
        "scales": [recurrent_scale, input_scale],
        "exchange_dtype": settings.exchange.dtype,
        "dtype": settings.embeddings.dtype,
    }
    settings = cluster.settle(client, settings)
    if settings.backend == "gpu" and settings.exchange.engine != "spmd":
        # A GPU's products have other bits than a CPU's.
        inputs["backend"] = ["gpu", settings.reservoir.precision]
    whole = run.reuse("embeddings", inputs)
    if whole is not None:
        return whole
    began = time.perf_counter()
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
    files, traffic = run_reservoir(
        client,
        graph,
        manifest,
        spec,
        _WriteEmbeddings(graph, manifest, attempt, settings.embeddings.dtype),
        checkpoints,
        every,
        settings.cluster.timeout,
        progress,
        settings.exchange.engine,
    )
    rows = sum(record.rows for record in files)
    if rows != facts["n_nodes"]:
        raise StageError(f"embeddings have {rows} rows for {facts['n_nodes']} nodes")
    row_bytes = spec.dim * spec.wire_bytes
    committed = stage.commit(
        attempt,
        files,
        fingerprint(inputs),
        inputs,
        {
            **asdict(spec),
            "n_nodes": rows,
            "checkpoint_every": every,
            "workers": len(set(traffic.placement)),
            "exchange_engine": traffic.engine,
            "exchanged_bytes_per_superstep": traffic.bytes_per_superstep,
            "halo_bytes": [halo * row_bytes for halo in facts["halo"]],
        },
        time.perf_counter() - began,
    )
    checkpoints.remove()
    return committed
