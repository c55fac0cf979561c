"""The embedding table: one file of a partition's rows, with the user's node ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.descriptors import Descriptors
from xnq_dist.reservoir.volume import GROUP

__all__ = ["WriteEmbeddings"]


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


def _table(ids: pa.ChunkedArray, rows: np.ndarray) -> pa.Table:
    flat = rows.astype(np.float32, copy=False).reshape(-1)
    # Values that are never null are read in three quarters of the time.
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), rows.shape[1])
    vectors = pa.FixedSizeListArray.from_arrays(flat, type=kind)
    return pa.table({"node_id": ids, "embedding": vectors})
