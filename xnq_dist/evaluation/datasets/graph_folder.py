"""Writes the tables of a graph's folder: nodes, edges, folds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.evaluation.datasets.arrays import table_of_splits
from xnq_dist.evaluation.datasets.graphs import RawGraph

__all__ = ["write_edges", "write_nodes", "write_splits"]


def write_nodes(graph: RawGraph, path: Path) -> None:
    """Write ``node_id, label, features``, one row per node; no label is null."""
    nodes, width = graph.features.shape
    flat = pa.array(np.ascontiguousarray(graph.features).reshape(-1))
    table = pa.table(
        {
            "node_id": pa.array(np.arange(nodes, dtype=np.int64)),
            "label": pa.array(graph.labels, mask=graph.labels < 0),
            "features": pa.FixedSizeListArray.from_arrays(flat, width),
        }
    )
    pq.write_table(table, path, compression="zstd")


def write_edges(edges: NDArray[np.int64], path: Path) -> None:
    """Write ``src, dst``, one row per directed edge, from edges of shape (M, 2)."""
    table = pa.table({"src": pa.array(edges[:, 0]), "dst": pa.array(edges[:, 1])})
    pq.write_table(table, path, compression="zstd")


def write_splits(roles: NDArray[np.int8], path: Path) -> None:
    """Write ``node_id, fold, role``, one row per fold and node with a role in it.

    `roles` has the role codes of `make_folds`, -1 for none, shape (folds, N).
    """
    pq.write_table(table_of_splits(roles), path, compression="zstd")
