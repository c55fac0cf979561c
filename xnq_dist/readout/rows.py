"""Rows of partitions: labelled ones are read, posteriors of all written; no Dask."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.core import schemas
from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.graph.labels import ROLES
from xnq_dist.readout.apply import SavedReadout, posteriors
from xnq_dist.readout.calibration import Calibration

__all__ = [
    "BATCH",
    "FEATURES",
    "GROUPS",
    "KnownLabels",
    "LabelFile",
    "Labelled",
    "Part",
    "assemble",
    "count_used",
    "gather_used",
    "write_posteriors",
    "write_readout",
    "write_scored",
]

FEATURES = "label-features-"
"""Prefix of the readout stage's files with a partition's label features."""
OWN = "_own-"
"""Prefix of the posteriors stage's files with posteriors by models of the own fold;
readers of a folder of Parquet files skip names that begin like that."""
GROUPS = "groups"
"""File of the readout stage with the groups of the graph's nodes."""
BATCH = 1 << 14
"""Rows of an embedding that a task holds at a time."""


R = TypeVar("R")
Score = Callable[[slice, Ints, NDArray[Any]], tuple[Floats32, Bools]]
"""Returns posteriors and out-of-fold flags of rows of a partition, from their slice,
canonical indexes and embeddings."""


@dataclass(frozen=True)
class KnownLabels:
    """Labels of a partition's nodes that replace those of the node table."""

    where: Stage
    record: FileRecord

    def load(self) -> Ints32:
        """Load class codes in local row order, -1 for rows that are in no fit."""
        arrays = self.where.read_arrays(self.record)
        return np.where(arrays["fitted"], arrays["labels"], -1).astype(np.int32)

    def load_weights(self) -> Floats | None:
        """Load weights in local row order; None: every label counts 1."""
        return self.where.read_arrays(self.record).get("weights")


@dataclass(frozen=True)
class LabelFile:
    """Labels and roles of a partition's nodes, in the stage ``labels``."""

    stage: Stage
    record: FileRecord

    def read(self, index: pa.ChunkedArray) -> pa.Table:
        """Read columns ``label`` and ``role``, checked against the nodes' indexes."""
        table = self.stage.read_table(self.record, "node_labels")
        if not table["index"].equals(index):
            raise StageError(
                f"{self.stage.folder.uri_of(self.record.name)} does not have the nodes "
                "of its partition: run again with --overwrite"
            )
        return table.select(["label", "role"])


@dataclass(frozen=True)
class Part:
    """One partition's files."""

    graph: Stage
    nodes: FileRecord
    embeddings: Stage
    rows: FileRecord
    has_roles: bool
    known: KnownLabels | None = None
    """Labels that replace those of the stage ``labels``; roles are then ignored."""
    labels: LabelFile | None = None
    """None: only `known` has labels."""
    threads: int = 1
    """Batches of embeddings that a task processes at a time."""

    def read_nodes(self) -> pa.Table:
        """Read node ids, indexes, labels and roles in local row order."""
        columns = ["node_id", "index"]
        nodes = self.graph.read_table(self.nodes, "graph_nodes", columns)
        if self.labels is None:
            label = pa.nulls(len(nodes), pa.int32())
            role = pa.nulls(len(nodes), pa.string())
            return nodes.append_column("label", label).append_column("role", role)
        labels = self.labels.read(nodes["index"])
        for name in labels.column_names:
            nodes = nodes.append_column(name, labels[name])
        return nodes

    def used(self, nodes: pa.Table) -> Bools:
        """Rows that the readout uses: labelled, and with a role if there are roles."""
        if self.known is not None:
            return np.asarray(self.known.load() >= 0, bool)
        used = nodes["label"].is_valid().to_numpy()
        if self.has_roles:
            used &= nodes["role"].is_valid().to_numpy()
        return np.asarray(used, bool)

    def states(self, ids: pa.ChunkedArray) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield first row and embeddings of each batch, checked against node ids."""
        where = self.embeddings.folder.uri_of(self.rows.name)
        first = 0
        try:
            with self.embeddings.open(self.rows) as stream:
                file = pq.ParquetFile(stream)
                schemas.check(file.schema_arrow, "embeddings", where)
                # By group, because the reader keeps what it read until its last batch.
                groups = ([group] for group in range(file.num_row_groups))
                each = (file.iter_batches(BATCH, group) for group in groups)
                for batch in chain.from_iterable(each):
                    expected = ids.slice(first, len(batch)).combine_chunks()
                    if not batch["node_id"].equals(expected):
                        break
                    column = batch["embedding"]
                    values = column.flatten().to_numpy(zero_copy_only=False)
                    yield first, values.reshape(len(batch), column.type.list_size)
                    first += len(batch)
        except pa.ArrowInvalid as error:
            raise StageError(f"{where} cannot be read: {error}") from error
        if first != len(ids):
            raise StageError(
                f"{where} differs from the graph's nodes at row {first}: run again "
                "with --overwrite"
            )

    def over_states(
        self, ids: pa.ChunkedArray, work: Callable[[slice, NDArray[Any]], R]
    ) -> Iterator[tuple[slice, R]]:
        """Yield rows and ``work(rows, embeddings)`` of each batch, in order.

        The next batch is read while `threads` are processed.
        """
        running: deque[tuple[slice, Future[R]]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            for first, x in self.states(ids):
                rows = slice(first, first + len(x))
                running.append((rows, pool.submit(work, rows, x)))
                if len(running) > self.threads:
                    rows, future = running.popleft()
                    yield rows, future.result()
            for rows, future in running:
                yield rows, future.result()


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows that the readout uses, in canonical order."""

    index: Ints
    labels: Ints32
    roles: NDArray[np.int8] | None
    x: NDArray[Any]
    weights: Floats | None = None
    """Weights of the labels, shape (n,); None: every label counts 1."""


def count_used(part: Part) -> int:
    """Count the rows of a partition that the readout uses."""
    return int(part.used(part.read_nodes()).sum())


def gather_used(part: Part) -> Labelled | None:
    """Read the used rows of one partition; None when it has no row at all."""
    nodes = part.read_nodes()
    used = part.used(nodes)
    x: NDArray[Any] | None = None
    at = 0
    for first, batch in part.states(nodes["node_id"]):
        rows = batch[used[first:][: len(batch)]]
        if x is None:
            x = np.empty((np.count_nonzero(used), batch.shape[1]), batch.dtype)
        x[at : at + len(rows)] = rows
        at += len(rows)
    if x is None:
        return None
    taken = nodes.filter(pa.array(used))
    roles = pc.index_in(taken["role"], pa.array(ROLES)).fill_null(-1).to_numpy()
    with_roles = part.has_roles and part.known is None
    weights = None
    if part.known is None:
        labels = taken["label"].to_numpy().astype(np.int32)
    else:
        labels, weights = part.known.load()[used], part.known.load_weights()
        weights = None if weights is None else weights[used]
    return Labelled(
        taken["index"].to_numpy(),
        labels,
        roles.astype(np.int8) if with_roles else None,
        x,
        weights,
    )


def assemble(pieces: Sequence[Labelled | None]) -> Labelled:
    """Join the used rows of all partitions, sorted by canonical index."""
    nonempty = [piece for piece in pieces if piece is not None]
    index = np.concatenate([piece.index for piece in nonempty])
    order = np.argsort(index)
    # Rows go to their places piece by piece: a sorted copy of all takes twice as much.
    x = np.empty((len(order), nonempty[0].x.shape[1]), nonempty[0].x.dtype)
    ends = np.cumsum([len(piece.index) for piece in nonempty[:-1]])
    for piece, rows in zip(nonempty, np.split(np.argsort(order), ends), strict=True):
        x[rows] = piece.x
    with_roles = [piece.roles for piece in nonempty if piece.roles is not None]
    weights = [piece.weights for piece in nonempty if piece.weights is not None]
    return Labelled(
        index[order],
        np.concatenate([piece.labels for piece in nonempty])[order],
        np.concatenate(with_roles)[order] if with_roles else None,
        x,
        np.concatenate(weights)[order] if weights else None,
    )


def write_readout(
    attempt: Attempt,
    arrays: dict[str, NDArray[Any]],
    calibration: Calibration,
    facts: dict[str, Any],
) -> list[FileRecord]:
    """Write a fitted readout and its summary for people, in two files."""
    parameters = {name: each.tolist() for name, each in calibration.parameters.items()}
    text = json.dumps({**facts, "calibration_parameters": parameters}, indent=1)
    return [
        attempt.write_arrays("readout", **arrays),
        attempt.write_bytes("summary", "json", text.encode()),
    ]


def write_posteriors(
    part: Part,
    number: int,
    readout: Stage,
    record: FileRecord,
    attempt: Attempt,
    classes: list[Any],
) -> list[FileRecord]:
    """Write the posteriors of one partition's nodes, in its row order."""
    saved = SavedReadout.from_arrays(readout.read_arrays(record))

    def score(rows: slice, index: Ints, x: NDArray[Any]) -> Any:
        return posteriors(x, index, saved)

    return [write_scored(part, number, attempt, classes, score)]


def write_scored(
    part: Part, number: int, attempt: Attempt, classes: list[Any], score: Score
) -> FileRecord:
    """Write one partition's file of posteriors, batch by batch, in its row order."""
    nodes = part.read_nodes()
    ids, index = nodes["node_id"], nodes["index"].to_numpy()
    # Labelled nodes without a role, which the readout does not use.
    unused = nodes["label"].is_valid().to_numpy() & ~part.used(nodes)
    # Both the table and the column name the classes: readers keep one or the other.
    metadata = {b"classes": json.dumps(classes).encode()}
    kind = pa.list_(pa.float32(), len(classes))
    posteriors = pa.field("posterior", kind, metadata=metadata)
    fields = [("node_id", ids.type), posteriors, ("out_of_fold", pa.bool_())]
    schema = pa.schema(fields, metadata)
    with attempt.table_writer(f"part-{number:05d}", "posteriors") as writer:

        def write(rows: slice, posterior: Any, out_of_fold: Any) -> None:
            values = pa.FixedSizeListArray.from_arrays(
                pa.array(posterior.ravel()), len(classes)
            )
            columns = [ids[rows], values, pa.array(out_of_fold)]
            writer.write(pa.table(columns, schema=schema))

        scored = part.over_states(ids, lambda rows, x: score(rows, index[rows], x))
        for rows, (values, out_of_fold) in scored:
            write(rows, values, out_of_fold | unused[rows])
        if not len(ids):
            write(slice(0), np.empty((0, len(classes)), np.float32), unused)
    return writer.record
