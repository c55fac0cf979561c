"""Reads the stages ``graph`` and ``labels`` back, and the complete adjacency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Ints
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import FileRecord, Manifest
from xnq_dist.graph.csr import Csr, csr_of
from xnq_dist.graph.halo import Partition

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from xnq_dist.graph.ids import NodeIds
    from xnq_dist.graph.labels import Labels

__all__ = [
    "HALO_SIZES",
    "LABEL_WEIGHTS",
    "SCALING",
    "canonical_rows",
    "file_stem",
    "halo_sizes",
    "load_ids",
    "load_labels",
    "load_nodes",
    "load_partition",
    "node_index",
    "read_adjacency",
]


HALO_SIZES = "halo-sizes"
"""Name of the file of `halo_sizes`, without the attempt."""
LABEL_WEIGHTS = "label-weights"
"""Name of the file of inclusion weights in canonical order, without the attempt."""
SCALING = "feature-scaling"
"""Name of the table of feature scalings, without the attempt."""


def file_stem(kind: str, number: int) -> str:
    """Name of a partition's file, without the attempt.

    Kinds: ``nodes``, ``adjacency``; in the stage ``labels`` ``labels``; in the stage
    ``scores`` ``scores``.
    """
    return f"{kind}-{number:05d}"


def _record(manifest: Manifest, stem: str) -> FileRecord:
    records = manifest.named(stem + "-")
    if len(records) != 1:
        raise StageError(
            f"stage {manifest.stage} has {len(records)} files {stem} instead of one: "
            "run again with --overwrite"
        )
    return records[0]


def load_partition(manifest: Manifest, number: int) -> Partition:
    """One partition with its halo and send lists."""
    record = _record(manifest, file_stem("adjacency", number))
    arrays = manifest.where.read_arrays(record)
    arrays.setdefault("weights", None)  # type: ignore[arg-type]
    return Partition(number=number, **arrays)


def halo_sizes(manifest: Manifest) -> Ints:
    """Halo rows of each (owner, reader), shape (P, P).

    For the client alone: a worker has its partitions' rows and columns in their files.
    """
    arrays = manifest.where.read_arrays(_record(manifest, HALO_SIZES))
    return np.asarray(arrays["sizes"], np.int64)


def load_nodes(
    manifest: Manifest, number: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """A partition's node table (schema ``graph_nodes``), rows in local order.

    `columns`: the columns to read; None: all.
    """
    record = _record(manifest, file_stem("nodes", number))
    return manifest.where.read_table(record, "graph_nodes", columns)


def _all_nodes(manifest: Manifest, column: str) -> list[pa.Table]:
    """The node tables of all partitions with one column."""
    numbers = range(int(manifest.facts["partitions"]))
    return [load_nodes(manifest, number, [column]) for number in numbers]


def node_index(manifest: Manifest) -> list[Ints]:
    """Canonical index of each owned row, for every partition; together 0..N-1."""
    return [table["index"].to_numpy() for table in _all_nodes(manifest, "index")]


def load_ids(manifest: Manifest) -> NodeIds:
    """The node ids in canonical order, with look-up."""
    from xnq_dist.graph.ids import NodeIds

    table = pa.concat_tables(_all_nodes(manifest, "node_id"))
    return NodeIds.from_column(table["node_id"])[0]


def load_labels(manifest: Manifest) -> Labels:
    """Labels, roles and label weights of all nodes."""
    from xnq_dist.graph.labels import ROLES, Labels

    columns = ["index", "label"]
    if manifest.facts["has_roles"]:
        columns.append("role")
    tables = [
        manifest.where.read_table(record, "node_labels", columns)
        for record in manifest.named("labels-")
    ]
    table = pa.concat_tables(tables)
    index = table["index"].to_numpy()
    codes, roles = np.empty(len(index), np.int32), np.full(len(index), -1, np.int8)
    codes[index] = table["label"].fill_null(-1).to_numpy()
    if manifest.facts["has_roles"]:
        found = pc.index_in(table["role"], pa.array(ROLES))
        roles[index] = found.fill_null(-1).to_numpy()
    weights = None
    for record in manifest.named(LABEL_WEIGHTS):
        weights = manifest.where.read_arrays(record)["weights"]
    return Labels(codes, roles, manifest.facts["classes"], weights=weights)


def canonical_rows(manifest: Manifest) -> Iterator[tuple[Ints, Csr]]:
    """Yield the canonical index of each row of a partition, and the rows' edges.

    Neighbours are canonical indices too; weights are float32, 1 for a graph without
    weights.
    """
    index = node_index(manifest)
    canonical = np.concatenate(index)
    for number, rows in enumerate(index):
        partition = load_partition(manifest, number)
        columns = np.concatenate([rows, canonical[partition.halo]]).astype(np.int32)
        weights = partition.weights
        if weights is None:
            weights = np.ones(partition.n_edges, np.float32)
        edges = csr_of(partition.indptr, columns[partition.indices], weights)
        del partition  # its local neighbours take as much memory
        yield rows, edges


def read_adjacency(manifest: Manifest) -> csr_array[Any]:
    """The complete adjacency in canonical order.

    Row v has the in-neighbours of node v as columns; weights are those of
    `canonical_rows`. Memory is proportional to the number of edges.
    """
    from scipy import sparse

    n = int(manifest.facts["n_nodes"])
    index, parts = [], []
    for rows, csr in canonical_rows(manifest):
        index.append(rows)
        indices, weights = csr.arrays()
        edges = weights, indices, csr.indptr
        parts.append(sparse.csr_array(edges, shape=(len(rows), n)))
    order = np.argsort(np.concatenate(index))
    whole: csr_array[Any] = sparse.vstack(parts, format="csr")[order]
    return whole
