"""The embedding driver: reservoirs, together or in turn, descriptors, the table.

The table has one file of each partition's rows, with the user's node ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from xnq_dist.core import cluster, limits, products
from xnq_dist.core.arrays import Floats32
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.records import METHODS
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES, scales_of
from xnq_dist.core.store import Attempt, FileRecord, Manifest, RunDirectory, Stage
from xnq_dist.core.threads import ahead
from xnq_dist.core.waiting import gather, run_on_workers
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.context import ReservoirSpec, number_of_supersteps
from xnq_dist.reservoir.descriptors import Descriptors, describe_nodes
from xnq_dist.reservoir.message_passing import Checkpoints, run_reservoir
from xnq_dist.reservoir.needs import supersteps_of
from xnq_dist.reservoir.volume import GROUP, size_on
from xnq_dist.reservoir.weights import (
    Reservoir,
    block_seed,
    recurrent_factor,
    units_of_blocks,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["make_embeddings", "reservoir_spec"]


def make_embeddings(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Make the stage ``embeddings``; resume from a checkpoint.

    Scales are as set, or as chosen by the stage ``select``.

    Independent reservoirs run one after the other if they do not fit together in the
    memory of the workers; this gives the same bits.
    """
    graph = run.complete("graph")
    settings = cluster.settle(client, settings)
    made = run.manifests()
    recurrent_scale, input_scale = scales_of(made, settings)
    inputs = STAGES["embeddings"].made_from(made, {}, settings)
    current = run.reuse("embeddings", inputs)
    if current is not None:
        return current
    spec = reservoir_spec(settings, graph.facts, recurrent_scale, input_scale)
    steps = supersteps_of(size_on(client, settings, graph), settings)
    attempt = run.stage("embeddings").begin()
    described, blocks = None, [spec.dim]
    if METHODS[settings.method].second_stage:
        where = attempt.child("descriptors")
        described = describe_nodes(
            client, graph, settings.seed, where, settings.backend, progress
        )
        blocks += described.widths
        # Arrays of other sizes follow.
        run_on_workers(client, limits.release)
    write = WriteEmbeddings(graph, attempt, described)
    checkpoints = Checkpoints(
        run.stage("checkpoints"), inputs, steps.every, settings.checkpoint.grace
    )
    supersteps = partial(run_reservoir, client, graph)
    if steps.turns > 1:
        states = _run_in_turn(supersteps, spec, checkpoints, progress)
        jobs = zip(*states, strict=True)
        tasks = [
            client.submit(write.stored, number, files, spec.dim, pure=False)
            for number, files in enumerate(jobs)
        ]
        files = gather(client, tasks)
    else:
        files = supersteps(spec, write, checkpoints, partial(progress, "supersteps"))
    run_on_workers(client, limits.release)
    if described:
        described.where.delete_folder()
    facts = {
        **asdict(spec),
        "dim": spec.dim,
        "recurrent_scale": recurrent_scale,
        "input_scale": input_scale,
        "blocks": [width for width in blocks if width],
        "n_nodes": sum(record.rows for record in files),
        "units_at_once": steps.units,
        "products": "CUDA" if spec.backend == "gpu" else products.FORM,
    }
    committed = attempt.commit(files, inputs, facts)
    checkpoints.stage.delete_folder()
    return committed


def reservoir_spec(
    settings: Settings,
    facts: Mapping[str, Any],
    recurrent_scale: float | Sequence[float],
    input_scale: float,
    dim: int | None = None,
) -> ReservoirSpec:
    """The specification of a reservoir on the graph with these facts.

    Several recurrent scales give as many independent reservoirs that share the units.
    `dim` None: ``reservoir.dim``.
    """
    # Without cycles, rho is 0: scales are used unchanged.
    matrix, rho = settings.reservoir.matrix, facts["rho"] or 1.0
    scales = recurrent_scale
    if isinstance(scales, float):
        scales = (scales,)
    units = units_of_blocks(dim or settings.reservoir.dim, len(scales))
    parts = []
    for number, (scale, size) in enumerate(zip(scales, units, strict=True)):
        drawn = block_seed(settings.seed, number), size, matrix
        factor = recurrent_factor(*drawn, scale / rho)
        parts.append(Reservoir(*drawn, factor, input_scale))
    return ReservoirSpec(
        tuple(parts),
        number_of_supersteps(settings, facts.get("effective_diameter")),
        settings.exchange.dtype,
        settings.backend,
    )


@dataclass(frozen=True)
class WriteEmbeddings:
    """Writes a partition's final states as one file of the embedding table."""

    graph: Manifest
    attempt: Attempt
    descriptors: Descriptors | None = None
    """Further columns of xnq+."""

    def __call__(self, number: int, states: Floats32) -> FileRecord:
        """Write states in memory, shape (n_owned, d')."""
        rows = self._rows(states.shape[1])
        firsts = range(0, max(1, len(states)), rows)
        blocks = (states[first : first + rows] for first in firsts)
        return self._write(number, blocks, rows)

    def stored(
        self, number: int, files: Sequence[tuple[Stage, FileRecord]], units: int
    ) -> FileRecord:
        """Write the states of several reservoirs, of d' = `units`, from their files."""
        rows = self._rows(units)
        parts = [stage.row_blocks(file, "states", rows) for stage, file in files]
        joined = (np.concatenate(some, axis=1) for some in zip(*parts, strict=True))
        return self._write(number, joined, rows)

    def _rows(self, units: int) -> int:
        described = sum(self.descriptors.widths) if self.descriptors else 0
        return max(1, GROUP // (4 * (units + described)))

    def _write(
        self, number: int, blocks: Iterable[np.ndarray], rows: int
    ) -> FileRecord:
        """Write blocks of rows, at least one: an empty partition's file has columns."""
        if self.descriptors is not None:
            more = self.descriptors.blocks(number, rows)
            pairs = zip(blocks, more, strict=True)
            blocks = (np.concatenate(pair, axis=1) for pair in pairs)
        ids = load_nodes(self.graph, number, ["node_id"])["node_id"]
        tables = (
            _table(ids.slice(at * rows, rows), block) for at, block in enumerate(blocks)
        )
        with self.attempt.table_writer(f"part-{number:05d}", "embeddings") as writer:
            for table in ahead(tables):
                writer.write(table)
        return writer.record


def _run_in_turn(
    run: Callable[..., list[FileRecord]],
    spec: ReservoirSpec,
    checkpoints: Checkpoints,
    progress: Progress,
) -> list[list[tuple[Stage, FileRecord]]]:
    """Run one reservoir after the other; the files of their states by partition.

    The final states of each stay in its last checkpoint until the table, which has all
    of them in every row, is written.
    """
    states = []
    for turn, part in enumerate(spec.parts):
        name = f"supersteps, reservoir {turn + 1} of {len(spec.parts)}"
        kept = replace(checkpoints, prefix=f"reservoir-{turn}-step-")
        shown = partial(progress, name)
        files = run(replace(spec, parts=(part,)), None, kept, shown)
        where = kept.at(spec.supersteps)
        states.append([(where, record) for record in files])
    return states


def _table(ids: pa.ChunkedArray, rows: np.ndarray) -> pa.Table:
    flat = rows.astype(np.float32, copy=False).reshape(-1)
    # Values that are never null are read in three quarters of the time.
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), rows.shape[1])
    vectors = pa.FixedSizeListArray.from_arrays(flat, type=kind)
    return pa.table({"node_id": ids, "embedding": vectors})
