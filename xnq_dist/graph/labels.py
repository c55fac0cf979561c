"""Ids, labels and roles of the node table: what is known of every node.

A label's class code is its rank among the classes: integers by value, then booleans
false before true, strings by their UTF-8 bytes. A labelled node without a role keeps
its label (it counts in its communities) but trains nothing when a role column is
there; a role without a label means nothing and is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from xnq_dist.errors import InputError
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Batch, Table, ids_of
from xnq_dist.progress import Progress, silent
from xnq_dist.sections import ColumnSettings

__all__ = ["ROLES", "NodeTable", "read_nodes"]

ROLES = ("train", "calibration")
"""Roles in the order of their codes; -1 is none."""


@dataclass(frozen=True)
class NodeTable:
    """The node table without its features."""

    ids: NodeIds
    index: NDArray[np.int64]
    """Canonical index of each row of the table, shape (N,)."""
    labels: NDArray[np.int32]
    """Class code by canonical index, -1 unlabelled, shape (N,)."""
    roles: NDArray[np.int8]
    """Role code by canonical index, -1 none, shape (N,)."""
    classes: list[Any]
    """The classes as JSON values, by code."""
    has_roles: bool
    """Whether any labelled node has a role."""


def read_nodes(
    table: Table, columns: ColumnSettings, progress: Progress = silent
) -> NodeTable:
    """Ids, labels and roles, streamed; memory is proportional to the nodes.

    Raises
    ------
    InputError
        For a missing column, an empty table, ids that are null or occur twice, labels
        of an unusable type, no label or one class alone, an unknown role, or a class
        that a role column gives no node to train or to calibrate on.
    """
    table.require({"columns.node_id": columns.node_id, "columns.label": columns.label})
    with_roles = table.has(columns.role)
    if not with_roles and columns.role != ColumnSettings.model_fields["role"].default:
        table.require({"columns.role": columns.role})
    wanted = [columns.node_id, columns.label]
    if with_roles:
        wanted.append(columns.role)
    ids: list[pa.Array] = []
    encoder = _Labels(columns.label)
    roles: list[NDArray[np.int8]] = []
    done = 0
    for batch in table.batches(list(dict.fromkeys(wanted))):
        found = _valid_text(ids_of(batch, columns.node_id), batch, columns.node_id)
        if ids and found.type != ids[0].type:
            raise InputError(
                f"column {columns.node_id!r} holds {found.type} ids in {batch.file} "
                f"but {ids[0].type} ids in a file before it: write them as one type"
            )
        ids.append(found)
        encoder.add(batch)
        if with_roles:
            roles.append(_role_codes(batch, columns.role))
        done += len(found)
        progress("read nodes", done, table.n_rows)
    if not done:
        raise InputError(f"{table.what} {table.path} has no rows: there is no graph")
    node_ids, index = NodeIds.from_column(pa.chunked_array(ids), table.path)
    del ids
    # Sorting took several copies of the ids; the pool would keep their memory.
    pa.default_memory_pool().release_unused()
    codes, classes = encoder.finish(table)
    labels = np.empty(done, np.int32)
    labels[index] = codes
    role = np.full(done, -1, np.int8)
    if with_roles:
        role[index] = np.concatenate(roles)
        role[labels < 0] = -1
    has_roles = bool((role >= 0).any())
    if has_roles:
        _check_roles(labels, role, classes, columns.role)
    return NodeTable(node_ids, index, labels, role, classes, has_roles)


def _valid_text(array: pa.Array, batch: Batch, column: str) -> pa.Array:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {column!r} of {batch.file} holds text that is not UTF-8: write it "
            "as UTF-8"
        ) from error
    return array


class _Labels:
    """Class codes over batches: provisional by first sight, final by rank."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._seen: dict[Any, int] = {}
        self._kind = ""
        self._codes: list[NDArray[np.int32]] = []

    def add(self, batch: Batch) -> None:
        array = self._plain(batch)
        encoded = array.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        values = encoded.dictionary.to_pylist()
        provisional = [
            self._seen.setdefault(value, len(self._seen)) for value in values
        ]
        self._codes.append(np.array([*provisional, -1], np.int32)[codes])

    def _plain(self, batch: Batch) -> pa.Array:
        """The labels as int64, bool or string."""
        array = batch.column(self._column)
        kind = array.type
        if pt.is_null(kind):
            return array.cast(pa.int64())
        if pt.is_floating(kind):
            array, name = self._whole_numbers(array, batch), "integers"
        elif pt.is_integer(kind):
            try:
                array, name = array.cast(pa.int64()), "integers"
            except pa.ArrowInvalid as error:
                raise InputError(
                    f"label column {self._column!r} of {batch.file} holds integers "
                    "beyond int64: write the classes as strings"
                ) from error
        elif pt.is_boolean(kind):
            name = "booleans"
        elif pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
            array = _valid_text(array.cast(pa.string()), batch, self._column)
            name = "strings"
        else:
            raise InputError(
                f"label column {self._column!r} of {batch.file} is {kind}: labels are "
                "integers, strings or booleans"
            )
        if array.null_count < len(array):
            if self._kind and self._kind != name:
                raise InputError(
                    f"label column {self._column!r} holds {name} in {batch.file} but "
                    f"{self._kind} in a file before it: write them as one type"
                )
            self._kind = name
        return array

    def _whole_numbers(self, array: pa.Array, batch: Batch) -> pa.Array:
        # Other tools write integers with gaps as floats, NaN for null.
        array = array.cast(pa.float64())
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(
                f"label column {self._column!r} of {batch.file} holds numbers that are "
                "not whole: labels are classes (integers, strings or booleans)"
            ) from error

    def finish(self, table: Table) -> tuple[NDArray[np.int32], list[Any]]:
        classes = sorted(self._seen)
        where = f"label column {self._column!r} of the {table.what} {table.path}"
        if not classes:
            raise InputError(
                f"{where} is null everywhere: some nodes need a label to learn from"
            )
        if len(classes) == 1:
            raise InputError(
                f"{where} holds the class {classes[0]!r} alone: two classes or more "
                "are needed"
            )
        final = np.empty(len(classes) + 1, np.int32)
        final[[self._seen[value] for value in classes]] = np.arange(len(classes))
        final[-1] = -1
        return final[np.concatenate(self._codes)], classes


def _role_codes(batch: Batch, column: str) -> NDArray[np.int8]:
    array = batch.column(column)
    if pt.is_null(array.type):
        return np.full(len(array), -1, np.int8)
    expected = "a role is 'train', 'calibration' or null"
    try:
        array = array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"role column {column!r} of {batch.file} is {array.type}: {expected}"
        ) from error
    codes = pc.index_in(array, pa.array(ROLES)).fill_null(-1).to_numpy()
    odd = (codes < 0) & pc.is_valid(array).to_numpy(False)
    if odd.any():
        at = int(np.argmax(odd))
        raise InputError(
            f"role column {column!r} holds {array[at].as_py()!r} in {batch.row(at)}: "
            f"{expected}"
        )
    return np.asarray(codes, np.int8)


def _check_roles(
    labels: NDArray[np.int32], roles: NDArray[np.int8], classes: list[Any], column: str
) -> None:
    for code, role in enumerate(ROLES):
        counts = np.bincount(labels[roles == code], minlength=len(classes))
        missing = [repr(classes[at]) for at in np.flatnonzero(counts == 0)]
        if missing:
            raise InputError(
                f"role column {column!r}: no node of class {', '.join(missing)} has "
                f"the role {role!r}; give each class both roles, or leave the column "
                "out to cross-fit"
            )
