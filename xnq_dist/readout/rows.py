"""Rows of partitions: labelled ones are read, posteriors of all written; no Dask."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats32, Ints
from xnq_dist.core.random_bits import Purpose, mixed_bits
from xnq_dist.core.store import Attempt, FileRecord, RunDirectory
from xnq_dist.graph.values import column_of
from xnq_dist.reservoir.context import matrix_of

__all__ = [
    "BATCH",
    "FEATURES",
    "GROUPS",
    "OWN",
    "Part",
    "gather_rows",
    "located",
    "sample_rows",
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
Score = Callable[[slice, Ints, NDArray[Any]], Floats32]
"""Returns posteriors of rows of a partition, from their slice, canonical indexes and
embeddings."""


@dataclass(frozen=True)
class Part:
    """One partition's files."""

    run: RunDirectory
    threads: int
    """Batches of embeddings that a task processes at a time."""
    nodes: FileRecord
    embeddings: FileRecord
    labels: FileRecord
    scores: FileRecord | None = None
    """Scores of another model; None: there are none."""

    def read_nodes(self) -> tuple[pa.ChunkedArray, Ints]:
        """Read node ids and canonical indexes in local row order."""
        graph, columns = self.run.stage("graph"), ["node_id", "index"]
        nodes = graph.read_table(self.nodes, "graph_nodes", columns)
        return nodes["node_id"], nodes["index"].to_numpy()

    def read_scores(self, rows: int) -> Floats32:
        """Read another model's scores of all `rows` nodes, shape (rows, S)."""
        if self.scores is None:
            return np.empty((rows, 0), np.float32)
        found: Floats32 = self.run.stage("scores").read_arrays(self.scores)["scores"]
        return found

    def labelled(self) -> Bools:
        """Whether each of the nodes has a label."""
        labels = self.run.stage("labels")
        table = labels.read_table(self.labels, "node_labels", ["label"])
        return np.asarray(table["label"].is_valid().to_numpy(), bool)

    def states(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield first row and embeddings of each batch."""
        first = 0
        with self.run.stage("embeddings").open(self.embeddings) as stream:
            file = pq.ParquetFile(stream)
            # By group, because the reader keeps what it read until its last batch.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(BATCH, [group], ["embedding"]):
                    yield first, matrix_of(batch["embedding"])
                    first += len(batch)

    def over_states(
        self, work: Callable[[slice, NDArray[Any]], R]
    ) -> Iterator[tuple[slice, R]]:
        """Yield rows and ``work(rows, embeddings)`` of each batch, in order.

        The next batch is read while `threads` are processed.
        """
        running: deque[tuple[slice, Future[R]]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            for first, x in self.states():
                rows = slice(first, first + len(x))
                running.append((rows, pool.submit(work, rows, x)))
                if len(running) > self.threads:
                    rows, future = running.popleft()
                    yield rows, future.result()
            for rows, future in running:
                yield rows, future.result()


def gather_rows(part: Part, local: Ints) -> NDArray[Any]:
    """Read the embeddings of some rows of a partition, ascending."""
    found = []
    for first, batch in part.states():
        low, high = np.searchsorted(local, [first, first + len(batch)])
        found.append(batch[local[low:high] - first])
    return np.concatenate(found)


def located(owned: Sequence[Ints], index: Ints) -> tuple[list[Ints], list[Ints]]:
    """Local rows of the nodes `index` in each partition, and their places in `index`.

    `owned` are the nodes of each partition, `index` is ascending.
    """
    rows = [np.flatnonzero(np.isin(nodes, index)) for nodes in owned]
    places = [
        np.searchsorted(index, nodes[local])
        for nodes, local in zip(owned, rows, strict=True)
    ]
    return rows, places


def sample_rows(index: Ints, maximum: int, seed: int, purpose: Purpose) -> Ints:
    """Sample at most `maximum` of the nodes `index`, ascending.

    A node is chosen or not by its canonical index, the seed and the purpose.
    """
    if len(index) <= maximum:
        return index
    bits = mixed_bits(index, seed, purpose)
    return np.sort(index[np.argpartition(bits, maximum)[:maximum]])


def write_scored(
    part: Part,
    number: int,
    attempt: Attempt,
    classes: list[Any],
    score: Score,
    trained: Sequence[int] | Ints = (),
) -> FileRecord:
    """Write one partition's file of posteriors, batch by batch, in its row order.

    Labelled nodes are out of fold, but for the nodes `trained`, whose labels the model
    that scores them was fitted to.
    """
    ids, index = part.read_nodes()
    out_of_fold = part.labelled() & ~np.isin(index, trained)
    # Both the table and the column name the classes: readers keep one or the other.
    metadata = {b"classes": json.dumps(classes).encode()}
    kind = pa.list_(pa.float32(), len(classes))
    posteriors = pa.field("posterior", kind, metadata=metadata)
    fields = [("node_id", ids.type), posteriors, ("out_of_fold", pa.bool_())]
    schema = pa.schema(fields, metadata)
    scored = part.over_states(lambda rows, x: score(rows, index[rows], x))
    nothing = slice(0), np.empty((0, len(classes)), np.float32)
    with attempt.table_writer(f"part-{number:05d}", "posteriors") as writer:
        for rows, posterior in scored if len(ids) else [nothing]:
            known = pa.array(out_of_fold[rows])
            columns = [ids[rows], column_of(posterior), known]
            writer.write(pa.table(columns, schema=schema))
    return writer.record
