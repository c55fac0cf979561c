"""The edge table on a GPU: cuDF reads it and looks ids up.

The pairs are the same as those that Arrow reads, so a graph has the same bits with
either. Rows that cuDF cannot read, or that look invalid, are read again by
Arrow, which decides and writes the error message. cuDF reads Parquet files on local
disks, Arrow all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.types as pt

from xnq_dist.core.backend import GpuBackend, choose, data_frames, gpu_facts
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import DoesNotFitError, SettingsError
from xnq_dist.core.settings import ColumnSettings, InputSettings, Settings
from xnq_dist.core.sizes import human, parse_bytes
from xnq_dist.graph.edges import (
    Pairs,
    PairsOf,
    arrow_pairs,
    batch_pairs,
    batch_rows,
    columns_read,
)
from xnq_dist.graph.formats import format_of
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Table

__all__ = ["edge_pairs", "ingest_limit", "planned_bytes", "uses_cudf", "wants_cudf"]

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
MAX_ROWS = 2**30
"""Maximum rows of a piece: cuDF counts rows in 31 bits."""

Lookup = Callable[[Any], Any]
"""Maps a column of ids to an int32 array of canonical indices, -1 for unknown ids."""


def wants_cudf(settings: Settings) -> bool:
    """Whether cuDF reads the edges if it is installed: on a cluster of GPUs."""
    return CLUSTERS.record_of(settings.cluster.kind).gpu


def ingest_limit(settings: Settings) -> int:
    """Bytes of device memory that reading edges may use; 0: the CPU reads them.

    If `cluster.device_memory` is set, a plan can be made on a machine without a GPU.
    """
    if not wants_cudf(settings):
        return 0
    limit = settings.cluster.device_memory
    if limit != "auto":
        return parse_bytes(limit)
    facts = gpu_facts()
    if facts.devices and facts.packages.get("cudf"):
        return int(facts.memory * DEVICE_SHARE)
    return 0


def ingest_bytes(nodes: int, edges: int, text: float, memory: int) -> int:
    """Upper bound of the device memory, in bytes, while edges are read and sorted.

    `text`: mean bytes of a string id; 0: ids are integers. `memory`: `input.memory` in
    bytes.
    """
    row = ROW + COPIES * (2 * (text or 8) + 8)
    return int(_id_bytes(nodes, nodes * text) + min(memory, edges * row))


def min_bytes(nodes: int, text: float, memory: int) -> int:
    """Bytes of device memory below which edges are not read on the device."""
    return int(_id_bytes(nodes, nodes * text) + min(memory, MIN_MEMORY))


def planned_bytes(
    nodes: int, edges: int, text: float, memory: int, limit: int
) -> tuple[int, int]:
    """`ingest_bytes` within a limit (0 if the CPU will read), and `min_bytes`."""
    if not limit:
        return 0, 0
    minimum = min_bytes(nodes, text, memory)
    # With less memory, edges are read in more pieces, down to the minimum.
    planned = min(ingest_bytes(nodes, edges, text, memory), limit)
    return (planned if minimum <= limit else 0), minimum


def uses_cudf(settings: Settings) -> bool:
    """Whether cuDF will read the edges; logs the reason if a GPU cluster lacks it."""
    if not wants_cudf(settings):
        return False
    try:
        data_frames()
    except SettingsError as error:
        log.warning("edges are read on the CPU: %s", error)
        return False
    return True


def edge_pairs(settings: Settings, ids: NodeIds) -> PairsOf:
    """What reads the edge table: `CudfPairs` or `arrow_pairs`.

    With cuDF, `ids` are kept on the device while edges are read.
    """
    if not uses_cudf(settings):
        return arrow_pairs
    backend = cast(GpuBackend, choose("gpu"))
    free = int(backend.free_bytes() * DEVICE_SHARE)
    limit = settings.cluster.device_memory
    if limit != "auto":
        free = min(free, parse_bytes(limit))
    held = lookup_bytes(ids)
    memory = settings.input.memory_bytes
    if free - held >= min(memory, MIN_MEMORY):
        return CudfPairs(min(memory, free - held), backend, data_frames())
    why = (
        f"reading edges on the GPU needs {human(held + min(memory, MIN_MEMORY))} of "
        f"its memory ({human(held)} for the ids of {len(ids):,} nodes), but "
        f"{human(free)} may be used"
    )
    log.warning("edges are read on the CPU: %s", why)
    return arrow_pairs


def lookup_bytes(ids: NodeIds) -> int:
    """Bytes of device memory for looking ids up."""
    if ids.type == "int64":
        return 0 if ids.consecutive else int(_id_bytes(len(ids), 0))
    return int(_id_bytes(len(ids), ids.values.nbytes))


def _id_bytes(count: int, strings: float) -> float:
    """Bytes of ids on the device; `strings`: bytes of their text, 0 for integers."""
    # The strings, their indices, and a hash table of rows at most half full.
    return strings + (4 + 16) * count if strings else 8 * count


@dataclass(frozen=True)
class _Piece:
    """Row groups of a file that fit in the device's memory together."""

    file: str
    groups: tuple[int, ...]
    first: int
    rows: int


@dataclass(frozen=True)
class CudfPairs:
    """Yields pairs, as `edges.PairsOf`: cuDF reads edges and looks ids up."""

    memory: int
    """Bytes of device memory in addition to the ids."""
    backend: GpuBackend
    frames: ModuleType
    """The package cuDF."""

    def __call__(
        self, table: Table, ids: NodeIds, columns: ColumnSettings, rules: InputSettings
    ) -> Iterator[Pairs]:
        """Yield the pairs of all rows of the table."""
        names = columns_read(table, columns)
        try:
            lookup = self._lookup(ids)
            for file in table.files:
                single_file = replace(table, files=(file,))
                pieces = self._pieces(single_file, ids, columns, names)
                if pieces is None:
                    yield from arrow_pairs(single_file, ids, columns, rules)
                    continue
                for piece in pieces:
                    pairs = self._piece_pairs(piece, lookup, columns, rules, names)
                    if pairs is None:
                        yield from _by_arrow(
                            single_file, piece, ids, columns, rules, names
                        )
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

    def _lookup(self, ids: NodeIds) -> Lookup:
        xp = self.backend.xp
        count = len(ids)
        if ids.type == "string":
            table = pa.table(
                {"id": ids.values, "index": np.arange(count, dtype=np.int32)}
            )
            index = self.frames.DataFrame.from_arrow(table)

            def by_join(column: Any) -> Any:
                frame = column.to_frame(name="id").reset_index(drop=True)
                # A join does not keep the order of rows.
                frame["row"] = xp.arange(len(frame))
                merged = frame.merge(index, on="id", how="left").sort_values("row")
                return merged["index"].fillna(-1).astype("int32").values

            return by_join
        numbers = ids.values.to_numpy()
        if ids.consecutive:
            low, high = int(numbers[0]), int(numbers[-1])

            def by_subtraction(column: Any) -> Any:
                keys = column.astype("int64").values
                known = (keys >= low) & (keys <= high)
                # A difference that would overflow belongs to an unknown id.
                return xp.where(known, keys - low, -1).astype(np.int32)

            return by_subtraction
        ordered = self.backend.to_device(numbers)

        def by_search(column: Any) -> Any:
            keys = column.astype("int64").values
            at = xp.minimum(xp.searchsorted(ordered, keys), count - 1)
            return xp.where(ordered[at] == keys, at, -1).astype(np.int32)

        return by_search

    def _pieces(
        self,
        single_file: Table,
        ids: NodeIds,
        columns: ColumnSettings,
        names: list[str],
    ) -> list[_Piece] | None:
        """Pieces of one file; None if Arrow must read it."""
        (file,) = single_file.files
        local = isinstance(single_file.filesystem, pafs.LocalFileSystem)
        in_folders = single_file.in_folders.get(file)
        if not local or in_folders or format_of(file).name != "parquet":
            return None
        kinds = single_file.schemas[file]
        ends = kinds[columns.src], kinds[columns.dst]
        weights = kinds[columns.weight] if columns.weight in names else pa.float64()
        if not all(_is_id(kind, ids) for kind in ends) or not _is_weight(weights):
            return None
        metadata = pq.read_metadata(file)
        text = ids.values.nbytes / len(ids) if ids.type == "string" else 0.0
        pieces: list[_Piece] = []
        groups: list[int] = []
        first, rows, need = single_file.first, 0, 0
        for number in single_file.groups or range(metadata.num_row_groups):
            group = metadata.row_group(number)
            pages = sum(
                group.column(at).total_uncompressed_size
                for at in range(metadata.num_columns)
                if group.column(at).path_in_schema in names
            )
            # Dictionary pages underestimate a column: use the mean size of node ids.
            more = COPIES * pages + int((ROW + COPIES * 2 * text) * group.num_rows)
            if more > self.memory // 2 or group.num_rows > MAX_ROWS:
                return None
            if groups and (need + more > self.memory // 2 or rows > MAX_ROWS // 2):
                pieces.append(_Piece(file, tuple(groups), first, rows))
                first, groups, rows, need = first + rows, [], 0, 0
            groups.append(number)
            rows += group.num_rows
            need += more
        if rows:
            pieces.append(_Piece(file, tuple(groups), first, rows))
        return pieces

    def _piece_pairs(
        self,
        piece: _Piece,
        lookup: Lookup,
        columns: ColumnSettings,
        rules: InputSettings,
        names: list[str],
    ) -> Pairs | None:
        """The pairs of a piece; None if cuDF cannot read it or a value is invalid."""
        try:
            frame = self.frames.read_parquet(
                piece.file,
                columns=names,
                row_groups=[list(piece.groups)],
                use_pandas_metadata=False,
            )
        except (RuntimeError, ValueError, TypeError, OverflowError, OSError) as error:
            log.warning("%s is read by Arrow: cuDF failed (%s)", piece.file, error)
            return None
        ends = []
        for name in (columns.src, columns.dst):
            if bool(frame[name].isna().any()):
                return None
            index = lookup(frame[name])
            if rules.unknown_nodes == "error" and bool((index < 0).any()):
                return None
            ends.append(index)
        weight = None
        if columns.weight in names:
            column = frame[columns.weight]
            if bool(column.isna().any()):
                return None
            weight = column.astype("float64").values + 0.0
            if not bool(((weight >= 0) & (weight <= np.finfo(np.float32).max)).all()):
                return None
        source, target = (self.backend.to_host(index) for index in ends)
        host = None if weight is None else self.backend.to_host(weight)
        return Pairs(source, target, host)


def _by_arrow(
    single_file: Table,
    piece: _Piece,
    ids: NodeIds,
    columns: ColumnSettings,
    rules: InputSettings,
    names: list[str],
) -> Iterator[Pairs]:
    """The pairs of a piece, read with Arrow, which raises the error of a faulty row."""
    last = piece.first + piece.rows
    with closing(single_file.batches(names, batch_rows(rules))) as batches:
        for batch in batches:
            end = batch.first + batch.rows.num_rows
            if end <= piece.first:
                continue
            # Check the complete batch: the message names the same fault as on the CPU.
            pairs = batch_pairs(batch, ids, columns, rules, names)
            part = slice(max(piece.first - batch.first, 0), last - batch.first)
            weight = None if pairs.weight is None else pairs.weight[part]
            yield Pairs(pairs.source[part], pairs.target[part], weight)
            if end >= last:
                return


def _is_id(kind: pa.DataType, ids: NodeIds) -> bool:
    if ids.type == "string":
        return bool(pt.is_string(kind) or pt.is_large_string(kind))
    return bool(pt.is_integer(kind) and not pt.is_uint64(kind))


def _is_weight(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_float32(kind) or pt.is_float64(kind))
