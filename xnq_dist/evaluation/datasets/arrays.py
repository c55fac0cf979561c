"""Arrays of a published graph: checked features and edges, and the table of splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from xnq_dist.core.errors import InputError

__all__ = ["checked_edges", "float_rows", "table_of_splits"]

ROLES = ("train", "calibration", "validation", "test")
"""Roles of the table of splits, in the order of their codes."""


def table_of_splits(roles: NDArray[np.int8]) -> pa.Table:
    """Table with ``node_id, fold, role``, one row per fold and node with a role.

    Parameters
    ----------
    roles
        Places in `ROLES`, -1 for none, shape (folds, N).
    """
    folds, nodes = np.nonzero(roles >= 0)
    places = pa.array(roles[folds, nodes], pa.int8())
    return pa.table(
        {
            "node_id": pa.array(nodes.astype(np.int64)),
            "fold": pa.array(folds.astype(np.int64)),
            "role": pa.DictionaryArray.from_arrays(places, pa.array(ROLES)),
        }
    )


def float_rows(values: ArrayLike, file: Path) -> NDArray[np.float32]:
    """Features as rows of float32.

    Raises
    ------
    InputError
        When they are not one row of numbers for each node.
    """
    rows = np.asarray(values)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not rows.shape[1]:
        raise InputError(
            f"{file}: features have shape {rows.shape} and type {rows.dtype}, not a "
            "row of numbers per node: save or download it again"
        )
    return rows.astype(np.float32)


def checked_edges(pairs: ArrayLike, nodes: int, file: Path) -> NDArray[np.int64]:
    """Pairs of node ids as an array of shape (M, 2).

    Raises
    ------
    InputError
        When the shape is another, or an id is not from 0 to N - 1.
    """
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InputError(
            f"{file}: edges have shape {array.shape} and type {array.dtype}, not two "
            "integers per row: save or download it again"
        )
    edges = array.astype(np.int64)
    bad = np.flatnonzero(((edges < 0) | (edges >= nodes)).any(axis=1))
    if len(bad):
        raise InputError(
            f"{file}: edge {tuple(edges[bad[0]].tolist())} (row {bad[0] + 1}) has a "
            f"node outside 0 to {nodes - 1}: save or download it again"
        )
    return edges
