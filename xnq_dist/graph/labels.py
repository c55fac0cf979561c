"""Reads node ids, and labels and roles from the node table or a table of labels.

A label's class code is its rank among the classes: integers by value, booleans false
before true, strings by their UTF-8 bytes. If there is a role column, a labelled node
without a role counts in its communities but is not used for training; a role without a
label is ignored, and a node with a role other than `ROLES` is taken as unlabelled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.sections import Missing
from xnq_dist.core.settings import Settings
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.keys import ids_of, plain_keys
from xnq_dist.graph.profile.headers import names_read
from xnq_dist.graph.tables import Batch, Table
from xnq_dist.graph.values import (
    NULL_WORDS,
    of_one_type,
    one_form,
    show,
)

__all__ = [
    "ROLES",
    "Labels",
    "NodeRows",
    "plain_labels",
    "read_labels",
    "read_nodes",
    "valid_text",
]

ROLES = ("train", "calibration")
"""Roles in the order of their codes; -1 is none, -2 is another role."""


@dataclass(frozen=True)
class Labels:
    """Labels, roles and label weights of the nodes."""

    codes: Ints32
    """Class code by canonical index, -1 unlabelled, shape (N,)."""
    roles: NDArray[np.int8]
    """Role code by canonical index, -1 none, shape (N,)."""
    classes: list[Any]
    """The classes as JSON values, by code."""
    unknown_dropped: int = 0
    """Rows left out because their node is not in the graph."""
    weights: Floats | None = None
    """Inclusion weight by canonical index, 0 without a label, shape (N,); None:
    `columns.label_weight` is not set."""

    def counts(self) -> list[list[int]]:
        """Labelled nodes of each class: all, and those of each role."""
        of_roles = [self.codes[self.roles == code] for code in range(len(ROLES))]
        return [
            np.bincount(codes[codes >= 0], minlength=len(self.classes)).tolist()
            for codes in (self.codes, *of_roles)
        ]

    def facts(self) -> dict[str, Any]:
        """Facts for the manifest, as JSON values."""
        counts = self.counts()[0]
        return {
            "classes": self.classes,
            "class_counts": counts,
            "n_labelled": sum(counts),
            "has_roles": bool((self.roles >= 0).any()),
            "unknown_dropped": self.unknown_dropped,
        }


def read_nodes(
    table: Table, settings: Settings, progress: Progress = silent
) -> tuple[NodeIds, Ints, Labels]:
    """The node ids, the canonical index of each row of the node table, and the labels.

    The table is streamed; memory is proportional to the nodes.

    Raises
    ------
    InputError
        For ids that are null or occur twice, labels of an unusable type, no label or a
        single class.
    """
    rows = _read(table, settings, progress)
    node_ids, index = NodeIds.from_column(rows.ids, table.path)
    # Sorting made several copies of the ids: return the pool's memory to the system.
    pa.default_memory_pool().release_unused()
    labels = rows.labels(index, len(node_ids))
    return node_ids, index, _of_classes(labels, table, settings.columns.label)


def read_labels(table: Table, settings: Settings, nodes: NodeIds) -> Labels:
    """Labels and roles of the nodes of an existing graph.

    Nodes that are not in the table are unlabelled; rows of nodes that are not in the
    graph are an error or dropped, as `input.unknown_nodes` says.

    Raises
    ------
    InputError
        As `read_nodes`, and for a node that is not in the graph.
    """
    rows = _read(table, settings)
    ids = rows.ids
    index = nodes.index_of(ids)
    foreign = index < 0
    if foreign.any() and settings.input.unknown_nodes == "error":
        raise InputError(
            f"the {table.what} {table.path} names node "
            f"{show(ids, int(np.argmax(foreign)))}, which is not in the graph: remove "
            "the row, or set input.unknown_nodes = drop"
        )
    counts = np.bincount(index[~foreign], minlength=1)
    if counts.max() > 1:
        raise InputError(
            f"node id {nodes.name(int(np.argmax(counts > 1)))} occurs more than once "
            f"in {table.path}: keep one row for each node"
        )
    return _of_classes(rows.labels(index, len(nodes)), table, settings.columns.label)


def _of_classes(labels: Labels, table: Table, column: str) -> Labels:
    """The labels, if they are of two classes or more."""
    if len(labels.classes) < 2:
        raise InputError(
            f"label column {column!r} of the {table.what} {table.path} has labels of "
            f"{labels.classes or 'no class'}: label nodes of two classes"
        )
    return labels


def _read(table: Table, settings: Settings, progress: Progress = silent) -> NodeRows:
    """Ids, labels and roles in the order of the table."""
    rows = NodeRows(settings, table)
    done = 0
    for batch in table.batches(rows.names):
        done += len(rows.add(batch))
        progress("read nodes", done, table.n_rows)
    return rows


class NodeRows:
    """Ids, labels and roles of the rows read so far."""

    def __init__(self, settings: Settings, table: Table) -> None:
        self._columns = settings.columns
        self._missing = settings.labels.missing
        self.names = names_read("nodes", settings.columns, table)
        """The columns that are read."""
        self.seen: dict[Any, int] = {}
        """Provisional codes of the classes, in order of first occurrence."""
        self.codes = [np.empty(0, np.int32)]
        """Provisional class codes of the rows of each batch, -1 unlabelled."""
        self._ids: list[pa.Array] = []
        self._type: pa.DataType | None = None
        self._roles = [np.empty(0, np.int8)]
        self._weights: list[Floats] = []

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of all rows."""
        return of_one_type(self._ids)

    def add(self, batch: Batch) -> pa.Array:
        """Add a batch; return its ids."""
        named, columns = self._columns.node_id, self._columns
        ids = valid_text(ids_of(batch, named), batch, named)
        self._ids.append(ids)
        labels = plain_labels(batch, columns.label, self._missing)
        roles = np.full(len(ids), -1, np.int8)
        if columns.role in self.names:
            roles = role_codes(batch, columns.role)
            used = pa.array(roles > -2)
            labels = pc.if_else(used, labels, pa.scalar(None, labels.type))
        self._roles.append(roles)
        if labels.null_count < len(labels):
            if self._type not in (None, labels.type):
                raise InputError(
                    f"column {columns.label!r} holds {labels.type} in {batch.file} but "
                    f"{self._type} in an earlier file: write both as the same type"
                )
            self._type = labels.type
        encoded, seen = labels.dictionary_encode(), self.seen
        codes = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        values = encoded.dictionary.to_pylist()
        provisional = [seen.setdefault(value, len(seen)) for value in values]
        self.codes.append(np.array([*provisional, -1], np.int32)[codes])
        if columns.label_weight is not None:
            self._weights.append(label_weights(batch, columns.label_weight, labels))
        return ids

    def labels(self, index: Ints, n_nodes: int) -> Labels:
        """The labels by canonical index; rows whose index is -1 are left out."""
        known = index >= 0

        def placed(parts: list[NDArray[Any]], fill: int) -> NDArray[Any]:
            found = np.full(n_nodes, fill, parts[0].dtype)
            found[index[known]] = np.concatenate(parts)[known]
            return found

        codes, values = placed(self.codes, -1), list(self.seen)
        classes = sorted(values[at] for at in np.unique(codes[codes >= 0]).tolist())
        rank = np.full(len(values) + 1, -1, np.int32)
        rank[[self.seen[value] for value in classes]] = np.arange(len(classes))
        roles = placed(self._roles, -1)
        roles[codes < 0] = -1
        dropped = len(index) - int(np.count_nonzero(known))
        weights = placed(self._weights, 0) if self._weights else None
        return Labels(rank[codes], roles, classes, dropped, weights)


def valid_text(array: pa.Array, batch: Batch, column: str) -> pa.Array:
    """The array; text that is not UTF-8 is an `InputError`."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {column!r} of {batch.file} holds text that is not UTF-8: write it "
            "as UTF-8"
        ) from error
    return array


def plain_labels(batch: Batch, column: str, missing: Missing) -> pa.Array:
    """A batch's labels as int64, bool or string; null for what means unlabelled."""
    array, auto = _typed_labels(batch, column), missing == "auto"
    if not missing or (auto and not pt.is_string(array.type)):
        return array
    text = pc.utf8_trim_whitespace(array) if auto else array.cast(pa.string())
    words = list(NULL_WORDS if auto else missing)
    if not pt.is_string(array.type):  # numbers and booleans by value: 99.0, True
        words = [re.sub(r"\.0*$", "", word).lower() for word in words]
    none = pc.is_in(text, pa.array(words, pa.string()))
    return pc.if_else(none, pa.scalar(None, array.type), array)


def _typed_labels(batch: Batch, column: str) -> pa.Array:
    kind = batch.column(column).type
    labels = batch.column(column) if pt.is_boolean(kind) else plain_keys(batch, column)
    if labels is None:
        raise InputError(
            f"label column {column!r} of {batch.file} is {kind}: write labels as "
            "integers, strings or booleans"
        )
    return one_form(valid_text(labels, batch, column))


def role_codes(batch: Batch, column: str) -> NDArray[np.int8]:
    """A batch's roles: 0 train, 1 calibration, -1 none or a null word, -2 another.

    Case, and spaces around a role, do not count.
    """
    array = batch.column(column)
    try:
        text = pc.utf8_trim_whitespace(array.cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"role column {column!r} of {batch.file} is {array.type}: a role must be "
            "'train', 'calibration' or null"
        ) from error
    codes = pc.index_in(pc.utf8_lower(text), pa.array(ROLES)).fill_null(-2).to_numpy()
    none = pc.is_in(text, pa.array([None, *NULL_WORDS])).to_numpy(False)
    return np.where(none, -1, codes).astype(np.int8)


def label_weights(batch: Batch, column: str, labels: pa.Array) -> Floats:
    """A batch's inclusion weights, 1e-12 to 1e12; 0 without a label."""
    known = labels.is_valid().to_numpy(zero_copy_only=False)
    rule = (
        "the inclusion weight of a labelled node must be finite and above 0, from "
        "1e-12 to 1e12 (columns.label_weight)"
    )
    values = batch.numbers(
        column, lambda values: ~known | ((values >= 1e-12) & (values <= 1e12)), rule
    )
    return np.where(known, values, 0.0)
