"""The edge table by cuDF: read, looked up and sorted on a GPU, as `edges` has it read.

What goes to the sort are the pairs that Arrow would give, so that a graph has the same
bits whoever reads it. Rows that cuDF cannot read or finds at fault are read again by
Arrow, which refuses them in a sentence or has the last word. Parquet files on local
disks are read by cuDF, all others by Arrow; both are sorted on the GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import DoesNotFitError, SettingsError
from xnq_dist.core.settings_sections import ColumnSettings, InputSettings
from xnq_dist.core.sizes import human, parse_bytes
from xnq_dist.graph.arrays import Ints
from xnq_dist.graph.edges import (
    EdgeEngine,
    Pairs,
    batch_pairs,
    batch_rows,
    columns_read,
)
from xnq_dist.graph.formats import format_of
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.sort import Keys, KeySort
from xnq_dist.graph.tables import Table

__all__ = ["edge_engine", "ingest_limit", "planned_bytes", "uses_cudf", "wants_cudf"]

log = logging.getLogger(__name__)

LEAST = 256 * 2**20
"""Bytes of a device's memory below which reading on it does not pay."""
DEVICE_SHARE = 0.9
"""Of the memory that is free on the device."""
ROW = 96
"""Bytes that a row takes on the device besides its columns: both ends
in 64 bits, their places among the ids, what was found there, the weight."""
COPIES = 3
"""Of a column's pages: compressed, plain, and as a column."""
MOST_ROWS = 2**30
"""Of a piece: cuDF counts rows in 31 bits."""

Lookup = Callable[[Any], Any]
"""From a column of ids to an array of canonical indices, -1 unknown, int32."""


def wants_cudf(settings: Settings) -> bool:
    """Whether cuDF would read the edges if it is there."""
    engine = settings.input.engine
    on_gpus = CLUSTERS.record_of(settings.cluster.kind).gpu
    return engine == "cudf" or (engine == "auto" and on_gpus)


def ingest_limit(settings: Settings) -> int:
    """Bytes of a device's memory that reading edges may plan with; 0: CPUs read them.

    With `cluster.device_memory` given, a plan can be made on a machine without a GPU.

    Raises
    ------
    SettingsError
        When `input.engine` is ``cudf`` and the package or a device is missing.
    """
    if not wants_cudf(settings):
        return 0
    limit = settings.cluster.device_memory
    if limit != "auto":
        return parse_bytes(limit)
    facts = gpu_facts()
    if facts.devices and facts.packages.get("cudf"):
        return int(facts.memory * DEVICE_SHARE)
    if settings.input.engine == "cudf":
        data_frames()
    return 0


def ingest_bytes(nodes: int, edges: int, text: float, memory: int) -> int:
    """Peak bytes of a device's memory while edges are read and sorted, at most.

    `text`: mean bytes of an id that is a string; 0: ids are integers. `memory`:
    `input.memory` in bytes.
    """
    row = ROW + COPIES * (2 * (text or 8) + 8)
    return int(_held(nodes, nodes * text) + min(memory, edges * row))


def least_bytes(nodes: int, text: float, memory: int) -> int:
    """Bytes of a device's memory below which edges are not read on it."""
    return int(_held(nodes, nodes * text) + min(memory, LEAST))


def planned_bytes(
    nodes: int, edges: int, text: float, memory: int, limit: int
) -> tuple[int, int]:
    """`ingest_bytes` within a limit, 0 where a CPU will read, and `least_bytes`."""
    if not limit:
        return 0, 0
    least = least_bytes(nodes, text, memory)
    # More pieces where there is less, down to what does not pay.
    most = min(ingest_bytes(nodes, edges, text, memory), limit)
    return (most if least <= limit else 0), least


def uses_cudf(settings: Settings) -> bool:
    """Whether cuDF is to read the edges; logs why not on a cluster of GPUs."""
    if not wants_cudf(settings):
        return False
    try:
        data_frames()
    except SettingsError as error:
        if settings.input.engine == "cudf":
            raise
        log.warning("edges are read on the CPU: %s", error)
        return False
    return True


def edge_engine(settings: Settings, ids: NodeIds) -> EdgeEngine:
    """The edge reader: as set, or cuDF's on a cluster of GPUs that has it.

    `ids` are kept on the device while edges are read.

    Raises
    ------
    SettingsError
        When `input.engine` is ``cudf`` and the package or a device is missing.
    DoesNotFitError
        When it is ``cudf`` and the device's memory is not enough.
    """
    here = EdgeEngine(settings.input.memory_bytes)
    if not uses_cudf(settings):
        return here
    backend = cast(GpuBackend, choose("gpu"))
    free = int(backend.free_bytes() * DEVICE_SHARE)
    limit = settings.cluster.device_memory
    if limit != "auto":
        free = min(free, parse_bytes(limit))
    held = lookup_bytes(ids)
    wanted = settings.input.memory_bytes
    if free - held >= min(wanted, LEAST):
        return CudfEngine(min(wanted, free - held), backend, data_frames())
    why = (
        f"reading edges on the GPU needs {human(held + min(wanted, LEAST))} of its "
        f"memory, {human(held)} of it for the ids of {len(ids):,} nodes, but "
        f"{human(free)} may be used"
    )
    if settings.input.engine == "cudf":
        raise DoesNotFitError(f"{why}: set input.engine = cpu")
    log.warning("edges are read on the CPU: %s", why)
    return here


def lookup_bytes(ids: NodeIds) -> int:
    """Bytes of a device's memory that looking ids up takes, whatever is looked up."""
    if ids.type == "int64":
        return 0 if ids.consecutive else int(_held(len(ids), 0))
    return int(_held(len(ids), ids.values.nbytes))


def _held(count: int, strings: float) -> float:
    """Bytes of so many ids on the device; of their strings, 0: they are integers."""
    # The strings, their indices, and a hash table of rows at most half full.
    return strings + (4 + 16) * count if strings else 8 * count


@dataclass(frozen=True)
class DeviceSort(KeySort):
    """CuPy's sort of keys that are on the host; they cross twice."""

    backend: GpuBackend

    def sort(self, keys: Keys) -> None:
        """In place."""
        if len(keys):
            moved = self.backend.to_device(keys)
            keys[:] = self.backend.to_host(self.backend.xp.sort(moved))

    def argsort(self, keys: Keys) -> Ints:
        """The order that sorts them."""
        order = self.backend.xp.argsort(self.backend.to_device(keys))
        return self.backend.to_host(order).astype(np.int64, copy=False)


@dataclass(frozen=True)
class _Piece:
    """Row groups of a file that the device's memory takes at once."""

    file: str
    groups: tuple[int, ...]
    first: int
    rows: int


@dataclass(frozen=True)
class CudfEngine(EdgeEngine):
    """cuDF reads and looks up, CuPy sorts.

    `memory` is also that of the device, next to the ids.
    """

    backend: GpuBackend
    frames: ModuleType
    """The package cuDF."""

    @property
    def sorting(self) -> KeySort:
        """Who sorts what fits the memory."""
        return DeviceSort(self.backend)

    def close(self) -> None:
        """Give the device's memory back: workers will want it."""
        self.backend.release()

    def pairs(
        self, table: Table, ids: NodeIds, columns: ColumnSettings, rules: InputSettings
    ) -> Iterator[Pairs]:
        """All rows of the table, some at a time."""
        wanted = columns_read(table, columns)
        try:
            lookup = self._lookup(ids)
            for file in table.files:
                alone = replace(table, files=(file,))
                pieces = self._pieces(alone, ids, columns, wanted)
                if pieces is None:
                    here = EdgeEngine(self.memory)
                    yield from here.pairs(alone, ids, columns, rules)
                    continue
                for piece in pieces:
                    found = self._found(piece, lookup, columns, rules, wanted)
                    if found is None:
                        yield from _by_arrow(alone, piece, ids, columns, rules, wanted)
                    else:
                        yield found
        except MemoryError as error:
            raise DoesNotFitError(
                f"the GPU's memory was not enough for reading the {table.what} "
                f"{table.path} in pieces of {human(self.memory // 2)} ({error}): set a "
                "smaller input.memory, or input.engine = cpu"
            ) from error
        self.backend.release()

    def _lookup(self, ids: NodeIds) -> Lookup:
        xp = self.backend.xp
        count = len(ids)
        if ids.type == "string":
            table = pa.table(
                {"id": ids.values, "index": np.arange(count, dtype=np.int32)}
            )
            index = self.frames.DataFrame.from_arrow(table)

            def joined(column: Any) -> Any:
                given = column.to_frame(name="id").reset_index(drop=True)
                # A join keeps no order.
                given["row"] = xp.arange(len(given))
                found = given.merge(index, on="id", how="left").sort_values("row")
                return found["index"].fillna(-1).astype("int32").values

            return joined
        numbers = ids.values.to_numpy()
        if ids.consecutive:
            low, high = int(numbers[0]), int(numbers[-1])

            def subtracted(column: Any) -> Any:
                keys = column.astype("int64").values
                known = (keys >= low) & (keys <= high)
                # A difference that would overflow belongs to an unknown id.
                return xp.where(known, keys - low, -1).astype(np.int32)

            return subtracted
        ordered = self.backend.to_device(numbers)

        def sought(column: Any) -> Any:
            keys = column.astype("int64").values
            at = xp.minimum(xp.searchsorted(ordered, keys), count - 1)
            return xp.where(ordered[at] == keys, at, -1).astype(np.int32)

        return sought

    def _pieces(
        self, alone: Table, ids: NodeIds, columns: ColumnSettings, wanted: list[str]
    ) -> list[_Piece] | None:
        """Pieces of one file; None when it is Arrow's to read."""
        (file,) = alone.files
        local = isinstance(alone.filesystem, pafs.LocalFileSystem)
        if not local or format_of(file).name != "parquet":
            return None
        kinds = alone.schemas[file]
        ends = kinds[columns.src], kinds[columns.dst]
        weights = kinds[columns.weight] if columns.weight in wanted else pa.float64()
        if not all(_is_id(kind, ids) for kind in ends) or not _is_weight(weights):
            return None
        metadata = pq.read_metadata(file)
        text = ids.values.nbytes / len(ids) if ids.type == "string" else 0.0
        pieces: list[_Piece] = []
        groups: list[int] = []
        first = rows = need = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            pages = sum(
                group.column(at).total_uncompressed_size
                for at in range(metadata.num_columns)
                if group.column(at).path_in_schema in wanted
            )
            # Pages of few values say little of a column's size: ids are the nodes'.
            more = COPIES * pages + int((ROW + COPIES * 2 * text) * group.num_rows)
            if more > self.memory // 2 or group.num_rows > MOST_ROWS:
                return None
            if groups and (need + more > self.memory // 2 or rows > MOST_ROWS // 2):
                pieces.append(_Piece(file, tuple(groups), first, rows))
                first, groups, rows, need = first + rows, [], 0, 0
            groups.append(number)
            rows += group.num_rows
            need += more
        if rows:
            pieces.append(_Piece(file, tuple(groups), first, rows))
        return pieces

    def _found(
        self,
        piece: _Piece,
        lookup: Lookup,
        columns: ColumnSettings,
        rules: InputSettings,
        wanted: list[str],
    ) -> Pairs | None:
        """The pairs of a piece; None when something about it is at fault."""
        try:
            frame = self.frames.read_parquet(
                piece.file,
                columns=wanted,
                row_groups=[list(piece.groups)],
                use_pandas_metadata=False,
            )
        except (RuntimeError, ValueError, TypeError, OverflowError, OSError) as error:
            log.warning("%s is read by Arrow: cuDF does not (%s)", piece.file, error)
            return None
        ends = []
        for name in (columns.src, columns.dst):
            if bool(frame[name].isna().any()):
                return None
            found = lookup(frame[name])
            if rules.unknown_nodes == "error" and bool((found < 0).any()):
                return None
            ends.append(found)
        weight = None
        if columns.weight in wanted:
            column = frame[columns.weight]
            if bool(column.isna().any()):
                return None
            weight = column.astype("float64").values + 0.0
            if not bool(((weight >= 0) & (weight <= np.finfo(np.float32).max)).all()):
                return None
        source, target = (self.backend.to_host(found) for found in ends)
        host = None if weight is None else self.backend.to_host(weight)
        return Pairs(source, target, host)


def _by_arrow(
    alone: Table,
    piece: _Piece,
    ids: NodeIds,
    columns: ColumnSettings,
    rules: InputSettings,
    wanted: list[str],
) -> Iterator[Pairs]:
    """The pairs of a piece, or the refusal that Arrow's batches of the file lead to."""
    last = piece.first + piece.rows
    with (
        ThreadPoolExecutor(2) as pool,
        closing(alone.batches(wanted, batch_rows(rules))) as batches,
    ):
        for batch in batches:
            end = batch.first + batch.rows.num_rows
            if end <= piece.first:
                continue
            # The batch as a whole: of several faults the same one is named.
            found = batch_pairs(batch, ids, columns, rules, wanted, pool)
            part = slice(max(piece.first - batch.first, 0), last - batch.first)
            weight = None if found.weight is None else found.weight[part]
            yield Pairs(found.source[part], found.target[part], weight)
            if end >= last:
                return


def _is_id(kind: pa.DataType, ids: NodeIds) -> bool:
    if ids.type == "string":
        return bool(pt.is_string(kind) or pt.is_large_string(kind))
    return bool(pt.is_integer(kind) and not pt.is_uint64(kind))


def _is_weight(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_float32(kind) or pt.is_float64(kind))
