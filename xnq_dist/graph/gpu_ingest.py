"""The edge table on a GPU: cuDF reads it and looks ids up.

The pairs are the same as those that Arrow reads, so a graph has the same bits with
either. cuDF reads Parquet files on local disks. Arrow reads the others and what cuDF
cannot read, and it alone decides which row is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.types as pt

from xnq_dist.core.backend import GpuBackend, choose, data_frames
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import DoesNotFitError, SettingsError
from xnq_dist.core.need import human, parse_bytes
from xnq_dist.core.sections import ColumnSettings, InputSettings
from xnq_dist.core.settings import Settings
from xnq_dist.graph.csr import HEAVIEST, Pairs, PairsOf, arrow_pairs
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.profile.headers import names_read
from xnq_dist.graph.tables import Table, is_text_file

__all__ = ["edge_pairs"]

log = logging.getLogger(__name__)

MIN_MEMORY = 256 * 2**20
"""Bytes of a device's memory below which reading on it is not worthwhile."""
DEVICE_SHARE = 0.9
"""Share of the device's free memory that may be used."""
ROW = 96
"""Bytes of a row on the device in addition to its columns: both ends in 64 bits, their
positions among the ids, the results of the look-up, the weight."""
COPIES = 3
"""Copies of a column's pages: compressed, decompressed, and as a column."""
UNREADABLE = (RuntimeError, ValueError, TypeError, OverflowError, OSError)
"""What cuDF raises for a file that it cannot read."""


def edge_pairs(settings: Settings, ids: NodeIds) -> PairsOf:
    """What reads the edge table: `CudfPairs` on a cluster of GPUs, or `arrow_pairs`."""
    if not CLUSTERS[settings.cluster.kind].gpu:
        return arrow_pairs
    try:
        frames = data_frames()
    except SettingsError as error:
        log.warning("edges are read on the CPU: %s", error)
        return arrow_pairs
    backend = cast(GpuBackend, choose("gpu"))
    free = int(backend.free_bytes() * DEVICE_SHARE)
    limit, memory = settings.cluster.device_memory, settings.input.memory_bytes
    if limit != "auto":
        free = min(free, parse_bytes(limit))
    # The ids, their indices, and a hash table that is at most half full.
    held = ids.values.nbytes + (4 + 16) * len(ids)
    least = held + min(memory, MIN_MEMORY)
    if free >= least:
        return CudfPairs(min(memory, free - held), backend, frames)
    log.warning(
        "edges are read on the CPU: reading edges on the GPU needs %s of its memory "
        "(%s for the ids of %s nodes), but %s may be used",
        *(human(least), human(held), f"{len(ids):,}", human(free)),
    )
    return arrow_pairs


@dataclass(frozen=True)
class CudfPairs:
    """Yields pairs, as `csr.PairsOf`: cuDF reads edges and looks ids up."""

    memory: int
    """Bytes of device memory in addition to the ids."""
    backend: GpuBackend
    frames: ModuleType
    """The package cuDF."""

    def __call__(
        self, table: Table, ids: NodeIds, columns: ColumnSettings, rules: InputSettings
    ) -> Iterator[Pairs]:
        """Yield the pairs of all rows of the table."""
        named = ids, columns, rules
        size = ids.values.nbytes / len(ids)
        rows = int(self.memory // 2 / (ROW + COPIES * (2 * size + 8)))
        numbers = np.arange(len(ids), dtype=np.int32)
        try:
            index = self.frames.DataFrame.from_arrow(
                pa.table({"id": ids.values, "index": numbers})
            )
            for share in table.shares(rows):
                pairs = None
                if _is_readable(share, *named) and share.n_rows <= 2 * rows:
                    pairs = self._read(share, index, columns, rules)
                if pairs is None:
                    # Also raises the error of the first row that is invalid.
                    yield from arrow_pairs(share, *named)
                else:
                    yield pairs
        except MemoryError as error:
            raise DoesNotFitError(
                f"the GPU's memory was not enough for reading the {table.what} "
                f"{table.path} in pieces of {human(self.memory // 2)} ({error}): set a "
                "smaller input.memory, or cluster.kind = local"
            ) from error
        finally:
            # Workers use the device later.
            self.backend.release()

    def _read(
        self, share: Table, index: Any, columns: ColumnSettings, rules: InputSettings
    ) -> Pairs | None:
        """The pairs of some row groups of one file.

        None if cuDF cannot read them, or a value is invalid.
        """
        try:
            frame = self.frames.read_parquet(
                share.files[0],
                columns=names_read("edges", columns, share),
                row_groups=[list(share.groups or ())],
                use_pandas_metadata=False,
            )
        except UNREADABLE as error:
            log.warning("%s is read by Arrow: cuDF failed (%s)", share.files[0], error)
            return None
        if bool(frame.isna().any().any()):
            return None
        ends = [self._find(frame[name], index) for name in (columns.src, columns.dst)]
        if rules.unknown_nodes == "error" and any(bool((e < 0).any()) for e in ends):
            return None
        source, target = (self.backend.to_host(end) for end in ends)
        if columns.weight not in frame.columns:
            return source, target, np.ones(len(source))
        weight = frame[columns.weight].astype("float64").values + 0.0
        if not bool(((weight >= 0) & (weight <= HEAVIEST)).all()):
            return None
        return source, target, self.backend.to_host(weight)

    def _find(self, ids: Any, index: Any) -> Any:
        """The canonical index of each id, int32, -1 if unknown."""
        kind = index["id"].dtype
        frame = ids.astype(kind).to_frame(name="id").reset_index(drop=True)
        # A join does not keep the order of rows.
        frame["row"] = self.backend.xp.arange(len(frame))
        merged = frame.merge(index, on="id", how="left").sort_values("row")
        return merged["index"].fillna(-1).astype("int32").values


def _is_readable(
    share: Table, ids: NodeIds, columns: ColumnSettings, rules: InputSettings
) -> bool:
    """Whether cuDF reads a share as Arrow does."""
    (file,) = share.files
    if is_text_file(file):
        return False
    there = share.schemas[file]
    weight = there.get(str(columns.weight), pa.float64())
    whole = pt.is_integer(weight) or pt.is_float32(weight) or pt.is_float64(weight)
    return (
        isinstance(share.filesystem, pafs.LocalFileSystem)
        and all(_is_id(there[name], ids) for name in (columns.src, columns.dst))
        and bool(whole)
    )


def _is_id(kind: pa.DataType, ids: NodeIds) -> bool:
    if ids.type == "string":
        return bool(pt.is_string(kind) or pt.is_large_string(kind))
    return bool(pt.is_integer(kind) and not pt.is_uint64(kind))
