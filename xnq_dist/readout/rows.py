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
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.core import schemas
from xnq_dist.core.arrays import Bools, Floats32, Ints
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.fit import SavedReadout, posteriors

__all__ = [
    "BATCH",
    "FEATURES",
    "GROUPS",
    "Part",
    "gather_rows",
    "join",
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
class Part:
    """One partition's files."""

    graph: Stage
    nodes: FileRecord
    embeddings: Stage
    rows: FileRecord
    labels: tuple[Stage, FileRecord] | None = None
    """The nodes' labels; None: they have none."""
    threads: int = 1
    """Batches of embeddings that a task processes at a time."""
    scores: tuple[Stage, FileRecord] | None = None
    """Scores of another model; None: there are none."""

    def read_nodes(self) -> pa.Table:
        """Read node ids and canonical indexes in local row order."""
        return self.graph.read_table(self.nodes, "graph_nodes", ["node_id", "index"])

    def read_scores(self, rows: int) -> Floats32:
        """Read another model's scores of all `rows` nodes, shape (rows, S)."""
        if self.scores is None:
            return np.empty((rows, 0), np.float32)
        stage, record = self.scores
        found: Floats32 = stage.read_arrays(record)["scores"]
        return found

    def labelled(self, index: pa.ChunkedArray) -> Bools:
        """Whether each node has a label, checked against the nodes' indexes."""
        if self.labels is None:
            return np.zeros(len(index), bool)
        stage, record = self.labels
        table = stage.read_table(record, "node_labels", ["index", "label"])
        if not table["index"].equals(index):
            raise StageError(
                f"{stage.folder.uri_of(record.name)} does not have the nodes of its "
                "partition: run again with --overwrite"
            )
        return np.asarray(table["label"].is_valid().to_numpy(), bool)

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


def gather_rows(part: Part, local: Ints) -> NDArray[Any]:
    """Read the embeddings of some rows of a partition, ascending."""
    ids = part.read_nodes()["node_id"]
    found = []
    for first, batch in part.states(ids):
        low, high = np.searchsorted(local, [first, first + len(batch)])
        found.append(batch[local[low:high] - first])
    return np.concatenate(found)


def join(pieces: Sequence[NDArray[Any]], places: Sequence[Ints]) -> NDArray[Any]:
    """Join rows of partitions in canonical order, from the places of each one's."""
    count = sum(len(at) for at in places)
    joined = np.empty((count, *pieces[0].shape[1:]), pieces[0].dtype)
    # Rows go to their places piece by piece: a sorted copy of all takes twice as much.
    for piece, at in zip(pieces, places, strict=True):
        joined[at] = piece
    return joined


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

    return [write_scored(part, number, attempt, classes, score, saved.index)]


def write_scored(
    part: Part,
    number: int,
    attempt: Attempt,
    classes: list[Any],
    score: Score,
    known: Ints,
) -> FileRecord:
    """Write one partition's file of posteriors, batch by batch, in its row order.

    A readout that knows the labels of the nodes `known` alone has not seen those of
    other labelled nodes, without a role or beyond the maximum: they are out of fold.
    """
    nodes = part.read_nodes()
    ids, index = nodes["node_id"], nodes["index"].to_numpy()
    unused = part.labelled(nodes["index"]) & ~np.isin(index, known)
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
