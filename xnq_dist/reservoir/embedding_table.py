"""The embedding table: one file of a partition's rows, with the user's node ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from xnq_dist.core import cluster
from xnq_dist.core.arrays import Floats32
from xnq_dist.core.inputs import embeddings_inputs, set_scales
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.core.waiting import gather
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.descriptors import Descriptors
from xnq_dist.reservoir.volume import GROUP

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["WriteEmbeddings", "embed_rows"]


@dataclass(frozen=True)
class WriteEmbeddings:
    """Writes a partition's final states as one file of the embedding table."""

    graph: Stage
    manifest: Manifest
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
        ids = load_nodes(self.graph, self.manifest, number, ["node_id"])["node_id"]
        tables = (
            _table(ids.slice(at * rows, rows), block) for at, block in enumerate(blocks)
        )
        with self.attempt.table_writer(f"part-{number:05d}", "embeddings") as writer:
            for table in ahead(tables):
                writer.write(table)
        return writer.record


def _table(ids: pa.ChunkedArray, rows: np.ndarray) -> pa.Table:
    flat = rows.astype(np.float32, copy=False).reshape(-1)
    vectors = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    return pa.table({"node_id": ids, "embedding": vectors})


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
    write = WriteEmbeddings(graph, manifest, attempt)
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
    write: WriteEmbeddings,
    number: int,
) -> tuple[FileRecord, int]:
    vectors = make(write.graph, write.manifest, number)
    return write(number, vectors), vectors.shape[1]
