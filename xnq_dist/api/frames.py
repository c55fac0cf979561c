"""Input tables from data frames, sparse matrices, arrays and graph objects.

No library of frames or graphs is imported: frames are read by Arrow's C stream
interface, networkx and PyTorch Geometric by the attributes of their objects.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import ColumnSettings
from xnq_dist.graph.tables import Sources

__all__ = ["Tables", "is_matrix", "members_of", "plain", "tables_of", "written"]

log = logging.getLogger(__name__)

NODES = (
    "a DataFrame (pandas, Polars), an Arrow table, a networkx graph, a PyTorch "
    "Geometric Data, a SciPy sparse matrix or a path"
)
EDGES = "a DataFrame, an Arrow table, a path or an adjacency matrix"
MEMBERS = (
    "a DataFrame, an Arrow table, a path, a mapping of communities to node ids, lists "
    "of node ids, an indicator matrix, or the community of each node"
)
FEATURES = "features"
"""Column of feature vectors."""


@dataclass(frozen=True)
class Tables:
    """The three tables, each in memory or as the path of the user's own file."""

    nodes: Any
    edges: Any
    memberships: Any = None
    implied: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that follow from the object, such as that a matrix has a direction."""

    def write(self, folder: Path) -> Sources:
        """Write the tables that are in memory to a folder, and name all three."""
        folder.mkdir(parents=True)
        nodes = written(self.nodes, folder / "nodes.parquet")
        edges = written(self.edges, folder / "edges.parquet")
        members = written(self.memberships, folder / "memberships.parquet")
        return Sources(str(nodes), str(edges), members)


def tables_of(
    nodes: Any,
    edges: Any,
    memberships: Any,
    labels: Any,
    features: Any,
    columns: ColumnSettings,
    scores: Any = None,
) -> Tables:
    """The tables of whatever describes the graph; see `estimate_prevalence`.

    Raises
    ------
    InputError
        When an object is of no known form, or its parts do not fit together.
    """
    made = _of_graph(nodes, columns)
    if made is None and edges is None:
        raise InputError("edges is missing: give a table of edges, or a graph as nodes")
    if made is not None and edges is not None:
        raise InputError(f"nodes is {_kind(nodes)}, which has edges: leave edges out")
    made = made or Tables(_table(nodes, "nodes", NODES), None)
    table, implied = made.nodes, dict(made.implied)
    if labels is not None:
        labels = _by_node(labels, nodes, table, columns, "labels")
        table = _with(table, columns.label, _labels(labels), "labels")
    if features is not None:
        features = _by_node(features, nodes, table, columns, "features")
        table = _with(table, FEATURES, _vectors(features), "features")
        implied["columns"] = {"features": FEATURES}
    if scores is not None:
        for name, values in scores.items() if hasattr(scores, "items") else ():
            values = _by_node(values, nodes, table, columns, "scores")
            table = _with(table, name, _array(values, "scores"), "scores")
        names = [scores] if isinstance(scores, str) else list(scores)
        implied["columns"] = {**implied.get("columns", {}), "scores": names}
    ids = None
    if not isinstance(table, str) and columns.node_id in table.column_names:
        ids = table[columns.node_id].combine_chunks()
    if made.edges is not None:
        edges = made.edges
    elif is_matrix(edges):
        ids = _in_order(edges.shape[0], ids, "edges", "row")
        edges, implied["input"] = _of_matrix(edges, ids, columns), {"directed": True}
    else:
        edges = _table(edges, "edges", EDGES)
    if hasattr(memberships, "dtype") and all(map(_is_value, plain(memberships))):
        memberships = _by_node(memberships, nodes, table, columns, "memberships")
    _, members = members_of(memberships, ids, columns)
    return Tables(table, edges, members, implied)


def members_of(
    memberships: Any, ids: pa.Array | None, columns: ColumnSettings
) -> tuple[list[Any] | None, Any]:
    """Names of the communities in their order, and the table of memberships.

    The names are None for a table, whose order is that of its rows.

    Parameters
    ----------
    memberships
        As for `estimate_prevalence`. Communities without names are numbered from 0.
    ids
        Node ids in the order of the nodes; None: not known.

    Raises
    ------
    InputError
        For another form.
    """
    if memberships is None:
        return None, None
    if isinstance(memberships, str | os.PathLike) or hasattr(memberships, "columns"):
        return None, _table(memberships, "memberships", MEMBERS)
    if is_matrix(memberships):
        ids = _in_order(memberships.shape[1], ids, "memberships", "column")
        names, (rows, places, _) = range(memberships.shape[0]), _entries(memberships)
        members = {columns.community: rows, columns.member: ids.take(places)}
        return list(names), pa.table(members)
    if not isinstance(memberships, Iterable):
        raise InputError(f"memberships is {_kind(memberships)}: give {MEMBERS}")
    keys: list[Any] | None = None
    if isinstance(memberships, Mapping):
        keys, memberships = list(memberships), memberships.values()
    groups = [plain(group) for group in plain(memberships)]
    if keys is None and all(map(_is_value, groups)):
        ids = _in_order(len(groups), ids, "memberships", "community")
        of_node = _array(groups, "memberships")
        table = pa.table({columns.community: of_node, columns.member: ids})
        return None, table.filter(of_node.is_valid())
    keys = list(range(len(groups))) if keys is None else keys
    for key, group in zip(keys, groups, strict=True):
        if _is_value(group):
            raise InputError(
                f"memberships has {group!r} for community {key!r}: give a list of node "
                f"ids; a setting of this section is written memberships__{key}"
            )
    rows = np.repeat(range(len(keys)), [len(group) for group in groups])
    nodes = [node for group in groups for node in group]
    return keys, pa.table(
        {
            columns.community: _array(keys, "memberships").take(pa.array(rows)),
            columns.member: _array(nodes, "memberships"),
        }
    )


def is_matrix(value: Any) -> bool:
    """Whether a value is a SciPy sparse matrix or a two-dimensional array."""
    return _is_sparse(value) or (isinstance(value, np.ndarray) and value.ndim == 2)


def plain(values: Any) -> Any:
    """A tensor as a NumPy array; other values unchanged."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def written(table: Any, path: Path) -> str | None:
    """The path of a table, which is written if it is in memory."""
    if table is None or isinstance(table, str):
        return table
    for name, values in zip(table.column_names, table.columns, strict=True):
        try:
            pq.write_table(pa.table({name: values[:1]}), path)
        except pa.ArrowException as error:
            raise InputError(
                f"column {name!r} of {path.stem} is {values.type}, which Parquet "
                "cannot hold: make it text, or leave it out"
            ) from error
    pq.write_table(table, path)
    return str(path)


def _of_graph(graph: Any, columns: ColumnSettings) -> Tables | None:
    """The tables of a graph object or an adjacency matrix; None for other objects."""
    directed = True
    if hasattr(graph, "edge_index"):
        nodes, edges = _of_pyg(graph, columns)
    elif hasattr(graph, "adj") and hasattr(graph, "is_directed"):
        nodes, edges = _of_networkx(graph, columns)
        directed = graph.is_directed()
    elif is_matrix(graph):
        ids = pa.array(np.arange(graph.shape[0]))
        nodes, edges = pa.table({columns.node_id: ids}), _of_matrix(graph, ids, columns)
    else:
        return None
    return Tables(nodes, edges, None, {"input": {"directed": directed}})


def _of_networkx(graph: Any, columns: ColumnSettings) -> tuple[pa.Table, pa.Table]:
    ids = _array(list(graph.nodes), "the nodes of the graph")
    nodes, known = {columns.node_id: ids}, list(graph.nodes.values())
    for key in dict.fromkeys(key for data in known for key in data):
        try:
            nodes[str(key)] = _array([data.get(key) for data in known], str(key))
        except InputError as error:
            log.info("this attribute of the nodes is left out: %s", error)
    ends = list(graph.edges(data=columns.weight or "weight"))
    edges = {
        name: pa.array([edge[at] for edge in ends], ids.type)
        for at, name in enumerate((columns.src, columns.dst))
    }
    weights = _array([edge[2] for edge in ends], "the weights of the graph")
    if columns.weight and weights.null_count < len(weights):
        edges[columns.weight] = weights.fill_null(1)
    return pa.table(nodes), pa.table(edges)


def _of_pyg(data: Any, columns: ColumnSettings) -> tuple[pa.Table, pa.Table]:
    shown, weighed = ("train_mask", "val_mask"), ("edge_weight", "edge_attr")
    names = ("edge_index", "x", "y", *shown, *weighed)
    part = {name: plain(getattr(data, name, None)) for name in names}
    pairs, x, y = part["edge_index"], part["x"], part["y"]
    count = len(x) if x is not None else int(data.num_nodes)
    nodes = pa.table({columns.node_id: pa.array(np.arange(count))})
    if y is not None:
        masks = [part[name] for name in shown if part[name] is not None]
        nodes = _with(nodes, columns.label, _labels(_shown(y, masks)), "y")
    if x is not None:
        nodes = _with(nodes, FEATURES, _vectors(x), "x")
    edges = {columns.src: pa.array(pairs[0]), columns.dst: pa.array(pairs[1])}
    for name in weighed:
        weights = part[name]
        fits = weights is not None and weights.size == pairs.shape[1]
        if columns.weight and fits:
            edges.setdefault(columns.weight, pa.array(weights.ravel()))
    return nodes, pa.table(edges)


def _shown(y: Any, masks: list[Any]) -> Any:
    """Labels of training and validation nodes; NaN elsewhere and for those below 0."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if any(mask.ndim != 1 for mask in masks):
        raise InputError(
            "train_mask has a column for each split: keep one, such as "
            "data.train_mask = data.train_mask[:, 0]"
        )
    if masks:
        log.info("labels outside train_mask and val_mask count as unlabelled")
    known = np.logical_and(y >= 0, np.logical_or.reduce(masks) if masks else True)
    return np.where(known, y.astype(np.float64), np.nan)


def _of_matrix(matrix: Any, ids: pa.Array, columns: ColumnSettings) -> pa.Table:
    """The edges of an adjacency matrix: from the row to the column."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"the adjacency matrix has shape {matrix.shape}: it needs a row and a "
            "column for each node"
        )
    src, dst, weights = _entries(matrix)
    table = {columns.src: ids.take(src), columns.dst: ids.take(dst)}
    if columns.weight and (weights != 1).any():
        table[columns.weight] = pa.array(weights.astype(np.float64))
    return pa.table(table)


def _entries(matrix: Any) -> tuple[pa.Array, pa.Array, Any]:
    """Rows, columns and values of the entries of a matrix that are not 0."""
    from scipy import sparse

    entries = sparse.coo_array(matrix)
    there = entries.data != 0
    row, column = (pa.array(np.asarray(at[there], np.int64)) for at in entries.coords)
    return row, column, entries.data[there]


def _table(value: Any, what: str, forms: str) -> pa.Table | str:
    """A table in memory as Arrow, or the path of a file as text."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if not hasattr(value, "__arrow_c_stream__"):
        lazy = hasattr(value, "collect")
        advice = "call its collect() first" if lazy else f"give {forms}"
        raise InputError(f"{what} is {_kind(value)}: {advice}")
    if any(name is not None for name in getattr(value, "index", pa.schema([])).names):
        value = value.reset_index()  # pandas leaves a range out of the stream
    try:
        return pa.table(value).replace_schema_metadata(None)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(part) for part in error.args)
        raise InputError(
            f"{what} has a column that Arrow cannot hold ({reason}): give each column "
            "values of one type, or leave that column out"
        ) from error


def _with(table: Any, name: str, values: pa.Array, what: str) -> pa.Table:
    """The table with a column added or replaced."""
    _in_order(len(values), None if isinstance(table, str) else table[0], what, "row")
    if name in table.column_names:
        table = table.drop_columns(name)
    return table.append_column(name, values)


def _by_node(
    values: Any, nodes: Any, table: Any, columns: ColumnSettings, what: str
) -> Any:
    """A pandas object's rows in the order of the nodes, by its index.

    The index holds node ids, or is that of `nodes`; a node that it lacks gets no value.
    Other objects, and a plain range, are in the order of the nodes already.
    """
    index = getattr(values, "index", None)
    if not hasattr(values, "reindex") or index is None:
        return values
    if not index.is_unique:
        raise InputError(
            f"{what} has repeated values in its index: name each node once"
        )
    own = getattr(nodes, "index", None)
    if own is not None and hasattr(nodes, "reindex") and index.isin(own).all():
        return values.reindex(own)
    plain_range = index.name is None and list(index) == list(range(len(index)))
    if plain_range and not isinstance(table, str) and len(values) == len(table):
        return values
    if isinstance(table, str) or columns.node_id not in table.column_names:
        return values
    ids = table[columns.node_id].to_pylist()
    if not index.isin(ids).all():
        unknown = index[~index.isin(ids)][0]
        raise InputError(
            f"{what} has an index with {unknown!r}, which is no node id and not in the "
            "index of nodes: give node ids as the index, or an array in the order of "
            "the nodes"
        )
    return values.reindex(ids)


def _in_order(count: int, ids: Any, what: str, one: str) -> pa.Array:
    """The nodes' ids, if they are known and `count` is their number."""
    if ids is None:
        raise InputError(
            f"{what} needs the order of the nodes: give nodes as a table in memory, "
            "with the column that columns.node_id names"
        )
    if count != len(ids):
        raise InputError(
            f"nodes has {len(ids):,} rows and {what} {count:,}: give one {one} for "
            "each node"
        )
    return ids


def _labels(labels: Any) -> pa.Array:
    """One label a node; None and NaN: unlabelled."""
    if np.ndim(plain(labels)) != 1:
        raise InputError(
            f"labels have shape {np.shape(plain(labels))}: give one label a node, and "
            "None where there is none; a setting of this section is written "
            "labels__NAME"
        )
    return _array(labels, "labels")


def _vectors(features: Any) -> pa.Array:
    """Feature vectors, shape (N, F), as a column of lists."""
    values = features.toarray() if _is_sparse(features) else np.asarray(plain(features))
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise InputError(
            f"features are an array of {values.dtype} with shape {values.shape}: give "
            "numbers, shape (nodes, features)"
        )
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def _array(values: Any, what: str) -> pa.Array:
    try:
        made = pa.array(plain(values), from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InputError(
            f"{what} cannot be read ({error}): give integers or text, all of one type"
        ) from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _is_value(value: Any) -> bool:
    """Whether an entry of memberships is a community's name, not a list of nodes."""
    return isinstance(value, str) or not hasattr(value, "__len__")


def _is_sparse(value: Any) -> bool:
    from scipy import sparse

    return bool(sparse.issparse(value))


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
