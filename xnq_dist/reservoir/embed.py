"""The embedding driver: reservoirs, together or in turn, descriptors, the table."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from xnq_dist.core import allocator, cluster, products
from xnq_dist.core.errors import StageError
from xnq_dist.core.inputs import embeddings_inputs
from xnq_dist.core.method_records import method_of
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import FileRecord, Manifest, RunDirectory, Stage, fingerprint
from xnq_dist.core.waiting import gather, run_on_workers
from xnq_dist.reservoir.checkpoint import Checkpoints, checkpoint_interval
from xnq_dist.reservoir.context import ReservoirSpec
from xnq_dist.reservoir.descriptors import describe_nodes
from xnq_dist.reservoir.embedding_table import WriteEmbeddings
from xnq_dist.reservoir.length import with_length
from xnq_dist.reservoir.needs import supersteps_of
from xnq_dist.reservoir.sizes import size_on
from xnq_dist.reservoir.supersteps import run_reservoir
from xnq_dist.reservoir.weights import (
    BIAS_SCALE,
    NONZEROS,
    block_seed,
    draw_recurrent,
    recurrent_radius,
    units_of_blocks,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["embed_scaled", "reservoir_spec"]


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
    units = reservoir.dim if dim is None else dim
    nonzeros = min(NONZEROS, units)
    count = len(recurrent_scale) if isinstance(recurrent_scale, tuple) else 1
    radii = []
    for number, size in enumerate(units_of_blocks(units, count)):
        seed = block_seed(settings.seed, number)
        drawn = draw_recurrent(seed, size, reservoir.matrix, min(nonzeros, size))
        radii.append(recurrent_radius(drawn, seed))
    return ReservoirSpec(
        seed=settings.seed,
        dim=units,
        supersteps=int(reservoir.supersteps),  # set by `with_length`
        matrix=reservoir.matrix,
        nonzeros=nonzeros,
        recurrent_scale=recurrent_scale,
        input_scale=input_scale,
        bias_scale=BIAS_SCALE,
        rho=rho,
        radius=tuple(radii) if isinstance(recurrent_scale, tuple) else radii[0],
        exchange_dtype=settings.exchange.dtype,
        backend="cpu" if settings.exchange.on_cpus else settings.backend,
    )


def embed_scaled(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    recurrent_scale: float | tuple[float, ...],
    input_scale: float,
    progress: Progress = silent,
) -> Manifest:
    """Make the stage ``embeddings`` with these scales; resume from a checkpoint.

    Independent reservoirs run one after the other if they do not fit together in the
    memory of the workers; this gives the same bits.
    """
    graph, manifest = run.stage("graph"), run.complete("graph", "run prepare first")
    settings = cluster.settle(client, settings)
    inputs = embeddings_inputs(manifest, settings, recurrent_scale, input_scale)
    current = run.reuse("embeddings", inputs)
    if current is not None:
        return current
    began = time.perf_counter()
    settings = _with_scales(with_length(settings, manifest.facts), recurrent_scale)
    rho = manifest.facts["rho"]
    spec = reservoir_spec(settings, rho, recurrent_scale, input_scale)
    size = size_on(client, settings, graph, manifest)
    steps = supersteps_of(size, settings)
    stage = run.stage("embeddings")
    attempt = stage.begin()
    described, blocks = None, [spec.dim]
    if method_of(settings.method).descriptors:
        shared = client, graph, manifest, settings.seed, attempt
        described = describe_nodes(*shared, settings.backend, progress)
        blocks += [described.widths.features, described.widths.spectrum]
        # Arrays of other sizes follow.
        run_on_workers(client, allocator.release)
    write = WriteEmbeddings(graph, manifest, attempt, described)
    checkpoints = Checkpoints(run.stage("checkpoints"), inputs)
    work = _Work(client, graph, manifest, settings, checkpoints, progress)
    if steps.turns > 1:
        files = work.in_turn(spec, write)
    else:
        files = work.run(spec, write, checkpoints, progress)
    run_on_workers(client, allocator.release)
    rows = sum(record.rows for record in files)
    if rows != size.nodes:
        raise StageError(
            f"embeddings have {rows} rows for {size.nodes} nodes: internal error, "
            "please report it"
        )
    for record in described.files if described else ():
        attempt.folder.delete(record.name)
    facts = {
        **asdict(spec),
        "blocks": [width for width in blocks if width],
        "n_nodes": rows,
        "checkpoint_every": work.every(spec),
        "units_at_once": steps.units,
        "products": "CUDA" if spec.backend == "gpu" else products.FORM,
        "exchanged_bytes_per_superstep": steps.moves.moved * steps.units * steps.wire,
    }
    seconds = time.perf_counter() - began
    committed = stage.commit(
        attempt, files, fingerprint(inputs), inputs, facts, seconds
    )
    checkpoints.remove()
    return committed


def _with_scales(settings: Settings, scales: float | tuple[float, ...]) -> Settings:
    reservoir = settings.reservoir.model_copy(update={"recurrent_scale": scales})
    return settings.model_copy(update={"reservoir": reservoir})


@dataclass(frozen=True)
class _Work:
    """Runs the reservoirs of one embedding and writes its table."""

    client: Client
    graph: Stage
    manifest: Manifest
    settings: Settings
    checkpoints: Checkpoints
    progress: Progress

    def in_turn(self, spec: ReservoirSpec, write: WriteEmbeddings) -> list[FileRecord]:
        """Run one reservoir after the other; the files of the table.

        The final states of each stay in its last checkpoint until the table, which has
        all of them in every row, is written.
        """
        count = len(spec.blocks())
        last = [self._final(spec.single(turn), turn, count) for turn in range(count)]
        tasks = []
        for number in range(int(self.manifest.facts["partitions"])):
            name = f"state-{number:05d}"
            files = [(stage, manifest.named(name)[0]) for stage, manifest in last]
            given = number, files, spec.dim
            tasks.append(self.client.submit(write.stored, *given, pure=False))
        return list(gather(self.client, tasks))

    def _final(
        self, spec: ReservoirSpec, turn: int, count: int
    ) -> tuple[Stage, Manifest]:
        """The last checkpoint of one reservoir, which is run if it is not there."""
        kept, end = replace(self.checkpoints, reservoir=turn), spec.supersteps
        latest = kept.latest()
        if latest is None or latest[0] != end:

            def progress(what: str, done: int, total: int) -> None:
                self.progress(f"{what}, reservoir {turn + 1} of {count}", done, total)

            self.run(spec, None, kept, progress)
            latest = kept.latest()
        if latest is None:
            raise StageError(f"reservoir {turn + 1} has no states: run again to resume")
        return latest[1:]

    def run(
        self,
        spec: ReservoirSpec,
        finish: WriteEmbeddings | None,
        checkpoints: Checkpoints,
        progress: Progress,
    ) -> list[FileRecord]:
        """Run reservoirs together; results of `finish` for their final states."""
        settings = self.settings
        return run_reservoir(
            self.client,
            self.graph,
            self.manifest,
            spec,
            finish,
            checkpoints,
            self.every(spec),
            settings.cluster.timeout,
            progress,
            settings.checkpoint.grace,
        )

    def every(self, spec: ReservoirSpec) -> int:
        """Supersteps between two checkpoints."""
        facts = self.manifest.facts
        return checkpoint_interval(
            self.settings.checkpoint.every,
            facts["n_nodes"],
            facts["n_edges"],
            spec.dim,
            spec.blocks()[0].units if spec.matrix == "dense" else spec.nonzeros,
            spec.supersteps,
        )
