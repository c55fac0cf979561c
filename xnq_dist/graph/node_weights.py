"""Weights of nodes: how many persons, views or followers each node represents."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from xnq_dist.core.arrays import Floats
from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import ColumnSettings, InputSettings
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Batch, ids_of, open_table, show

__all__ = ["node_weights_of", "read_node_weights"]

MAX_WEIGHT = 1e100
"""Keeps squares and sums of weights finite."""


def node_weights_of(batch: Batch, node_id: str, column: str) -> Floats:
    """The node weights of a batch, shape (rows,), finite and not negative."""
    array = batch.column(column)
    numeric = pt.is_integer(array.type) or pt.is_floating(array.type)
    if not (numeric or pt.is_null(array.type)):
        raise InputError(
            f"column {column!r} of {batch.file} is {array.type}, not a number: cast "
            "the node weights, or set columns.node_weight to another column"
        )
    # Adding zero turns -0.0 into 0.0: equal weights then have equal bits.
    values = array.cast(pa.float64(), safe=False).fill_null(np.nan)
    weights = np.asarray(values.to_numpy(zero_copy_only=False) + 0.0, np.float64)
    valid = (weights >= 0) & (weights <= MAX_WEIGHT)
    if not valid.all():
        at = int(np.argmin(valid))
        value = array[at].as_py()
        raise InputError(
            f"column {column!r} is {'null' if value is None else value} for node "
            f"{show(ids_of(batch, node_id), at)} in {batch.row(at)}: a node weight "
            "must be a number from 0 to 1e100; write 0 for a node that does not count"
        )
    return weights


def read_node_weights(
    path: str,
    columns: ColumnSettings,
    nodes: NodeIds,
    settings: InputSettings | None = None,
) -> Floats | None:
    """Weight of every node by canonical index, shape (N,); None without the setting.

    Raises
    ------
    InputError
        As `node_weights_of`, and when the table has other nodes than the graph, or
        all weights are 0.
    """
    if columns.node_weight is None:
        return None
    node_id, column = columns.node_id, columns.node_weight
    table = open_table(path, "node table", settings).ids_as(nodes.type, node_id)
    table.require({"columns.node_id": node_id, "columns.node_weight": column})
    weights = np.full(len(nodes), np.nan)
    for batch in table.batches(list(dict.fromkeys([node_id, column]))):
        ids = ids_of(batch, node_id)
        same = pt.is_integer(ids.type) == (nodes.type == "int64")
        index = nodes.index_of(ids) if same else np.full(len(ids), -1)
        if (index < 0).any():
            raise InputError(
                f"node {show(ids, int(np.argmax(index < 0)))} in {batch.file} is not "
                "in the graph of this run: run again with the graph's node table"
            )
        weights[index] = node_weights_of(batch, node_id, column)
    missing = np.isnan(weights)
    if missing.any():
        raise InputError(
            f"{table.what} {table.path} has no row of node "
            f"{nodes.name(int(np.argmax(missing)))}: run again with the graph's node "
            "table"
        )
    if not weights.any():
        raise InputError(
            f"column {column!r} of {table.path} is 0 for every node: give at least one "
            "node a weight, or leave columns.node_weight out"
        )
    return weights
