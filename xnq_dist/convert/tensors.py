"""Tables of a graph that is stored as arrays: features, classes, edges, masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from xnq_dist.convert import Converted
from xnq_dist.convert.reading import check_memory
from xnq_dist.core.errors import InputError

__all__ = ["Arrays", "checked_edges", "float_rows", "table_of_splits"]

ROLES = ("train", "calibration", "validation", "test")
"""Roles of the table of splits, in the order of their codes."""
CALIBRATION = 6
"""One in so many training nodes of a class is for calibration, as in the paper."""


@dataclass
class Arrays:
    """A graph with node ids 0 to N - 1 as arrays, and its conversion to tables."""

    path: Path
    """The file, for messages."""
    edges: ArrayLike
    """Source and target of each row, shape (M, 2)."""
    features: ArrayLike | None = None
    """Shape (N, F)."""
    labels: ArrayLike | None = None
    """Class numbers, shape (N,) or (N, 1), or one-hot rows; below 0 or NaN: none."""
    weights: ArrayLike | None = None
    """Shape (M,) or (M, 1)."""
    masks: Mapping[str, ArrayLike] = field(default_factory=dict)
    """Boolean masks by role, shape (N,) or (folds, N)."""
    nodes: int | None = None
    """Number of nodes; None: that of the rows of features or labels, or the ids."""
    columns: Mapping[str, ArrayLike] = field(default_factory=dict)
    """More columns of the node table, each of N values."""
    directed: bool | None = None
    """Whether edges have a direction; None: if an edge lacks its reverse."""
    notes: list[str] = field(default_factory=list)

    def tables(self) -> Converted:
        """The graph as tables.

        Raises
        ------
        InputError
            When arrays do not match each other.
        """
        rows = None if self.features is None else float_rows(self.features, self.path)
        nodes = self._count(rows)
        check_memory(self.path, 64 * nodes)
        edges = checked_edges(self.edges, nodes, self.path)
        columns: dict[str, Any] = {"node_id": pa.array(np.arange(nodes))}
        codes = np.full(nodes, -1, np.int64)
        if self.labels is not None:
            codes = self._codes(nodes)
        columns["label"] = pa.array(codes, mask=codes < 0)
        if rows is not None:
            flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
            columns["features"] = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
        for name, values in self.columns.items():
            columns[name] = self._each(values, nodes, name)
        splits = None
        if self.masks:
            splits = table_of_splits(self._roles(nodes, codes), codes)
            self.notes.append(
                "splits.parquet has the masks for `xnq-dist evaluate`, with one in "
                f"{CALIBRATION} training nodes for calibration; `run` uses all labels"
            )
        directed = self.directed
        if directed is None:
            directed = not _has_reverses(edges, nodes)
        table = {"src": pa.array(edges[:, 0]), "dst": pa.array(edges[:, 1])}
        if self.weights is not None:
            table["weight"] = self._each(self.weights, len(edges), "weight")
        return Converted(
            pa.table(columns), pa.table(table), directed, splits, tuple(self.notes)
        )

    def _count(self, rows: NDArray[np.float32] | None) -> int:
        labels = None if self.labels is None else np.atleast_1d(np.asarray(self.labels))
        known = {} if self.nodes is None else {"number of nodes": self.nodes}
        each = {"features": rows, "labels": labels}
        known |= {name: len(found) for name, found in each.items() if found is not None}
        if len(set(known.values())) > 1:
            raise InputError(
                f"{self.path}: arrays do not match each other, "
                + ", ".join(f"{name} {count:,}" for name, count in known.items())
                + ": save it again"
            )
        if known:
            return next(iter(known.values()))
        ids = np.asarray(self.edges)
        return int(ids.max()) + 1 if ids.size and ids.dtype.kind in "iu" else 0

    def _codes(self, nodes: int) -> NDArray[np.int64]:
        labels = np.asarray(self.labels)
        if labels.dtype.kind not in "biuf":
            raise InputError(
                f"{self.path}: labels are of type {labels.dtype}: save class numbers"
            )
        if labels.ndim == 2 and labels.shape[1] > 1:
            hot = ((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all()
            if not hot:
                raise InputError(
                    f"{self.path} has {labels.shape[1]} labels for each node and "
                    "xnq-dist takes one class: save one of the columns as y"
                )
            self.notes.append("label is the place of the 1 in the one-hot rows")
            labels = labels.argmax(axis=1)
        labels = labels.reshape(nodes)
        missing = np.isnan(labels) if labels.dtype.kind == "f" else labels < 0
        missing |= labels < 0
        with np.errstate(invalid="ignore"):  # infinite
            codes = np.where(missing, -1, labels).astype(np.int64)
        if not np.array_equal(codes[~missing], labels[~missing]):
            raise InputError(
                f"{self.path}: labels are not whole numbers, so they are no classes: "
                "group them into classes"
            )
        if missing.any():
            self.notes.append(
                f"{np.count_nonzero(missing):,} nodes have a label below 0 or NaN and "
                "are unlabelled"
            )
        return codes

    def _each(self, values: ArrayLike, count: int, what: str) -> pa.Array:
        """One number for each node or edge as a column."""
        array = np.asarray(values)
        if array.size != count or array.dtype.kind not in "biuf":
            raise InputError(
                f"{self.path}: {what} is {array.size:,} values of type {array.dtype} "
                f"for {count:,} rows: save one number for each"
            )
        return pa.array(array.reshape(count))

    def _roles(self, nodes: int, codes: NDArray[np.int64]) -> NDArray[np.int8]:
        """Role codes from the masks, -1 none, shape (folds, N)."""
        masks = [np.atleast_2d(np.asarray(mask)) for mask in self.masks.values()]
        found = np.full((len(masks[0]), nodes), -1, np.int8)
        for role, mask in zip(self.masks, masks, strict=True):
            if mask.shape != found.shape:
                raise InputError(
                    f"{self.path}: the mask of the role {role} has shape {mask.shape}, "
                    f"not {found.shape}: save the masks again"
                )
            found[mask.astype(bool)] = ROLES.index(role)
        found[:, codes < 0] = -1
        return found


def table_of_splits(
    roles: NDArray[np.int8], codes: NDArray[np.int64] | None = None
) -> pa.Table:
    """Table with ``node_id, fold, role``, one row per fold and node with a role.

    Parameters
    ----------
    roles
        Places in `ROLES`, -1 for none, shape (folds, N).
    codes
        Classes of the nodes, by which some training nodes are set aside for
        calibration; None: `roles` has all roles.
    """
    if codes is not None:
        roles = _with_calibration(roles, codes)
    folds, nodes = np.nonzero(roles >= 0)
    places = pa.array(roles[folds, nodes], pa.int8())
    return pa.table(
        {
            "node_id": pa.array(nodes.astype(np.int64)),
            "fold": pa.array(folds.astype(np.int64)),
            "role": pa.DictionaryArray.from_arrays(places, pa.array(ROLES)),
        }
    )


def _with_calibration(
    roles: NDArray[np.int8], codes: NDArray[np.int64]
) -> NDArray[np.int8]:
    roles = roles.copy()
    random = np.random.default_rng(0)
    for fold in roles:
        for code in np.unique(codes):
            train = random.permutation(np.flatnonzero((fold == 0) & (codes == code)))
            if len(train) > 1:
                fold[train[: -(-len(train) // CALIBRATION)]] = 1
    return roles


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


def _has_reverses(edges: NDArray[np.int64], nodes: int) -> bool:
    """Whether the reverse of every edge is an edge."""
    keys = np.unique(edges[:, 0] * nodes + edges[:, 1])
    reverse = np.unique(edges[:, 1] * nodes + edges[:, 0])
    return np.array_equal(keys, reverse)
