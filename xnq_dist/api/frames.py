"""Input tables from data frames, sparse matrices, arrays and graph objects.

No library of frames or graphs is imported: frames are read by Arrow's C stream
interface, networkx and PyTorch Geometric by the attributes of their objects.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from xnq_dist.core.arrays import Ints
from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import ColumnSettings
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.values import column_of, without_views

__all__ = ["Tables", "is_matrix", "members_of", "plain", "tables_of", "written"]

log = logging.getLogger(__name__)

FORMS = {
    "nodes": "a DataFrame (pandas, Polars), an Arrow table, a networkx graph, a "
    "PyTorch Geometric Data, a SciPy sparse matrix or a path",
    "edges": "a DataFrame, an Arrow table, a path or an adjacency matrix",
    "memberships": "a DataFrame, an Arrow table, a path, a mapping of communities to "
    "node ids, lists of node ids, an indicator matrix, or the community of each node",
}
"""Forms of each table, for messages."""
FEATURES = "features"
"""Column of feature vectors, which ``columns.features = auto`` uses alone."""


@dataclass(frozen=True)
class Tables:
    """The three tables, each in memory or as the path of the user's own file."""

    nodes: Any
    edges: Any
    memberships: Any = None
    implied: dict[str, Any] = field(default_factory=dict)
    """Settings by name that follow from the object, such as the direction of edges."""

    def write(self, folder: Path) -> Sources:
        """Write the tables that are in memory to a folder, and name all three."""
        paths = {
            name: written(getattr(self, name), folder / f"{name}.parquet")
            for name in ("nodes", "edges", "memberships")
        }
        return Sources(**paths)


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
    graph = _of_graph(nodes, columns)
    if graph is None and edges is None:
        raise InputError("edges is missing: give a table of edges, or a graph as nodes")
    if graph is not None and edges is not None:
        raise InputError(f"nodes is {_kind(nodes)}, which has edges: leave edges out")
    graph = graph or Graph(_table(nodes, "nodes"), edges)
    table, ids = graph.nodes, None
    if not isinstance(table, str) and columns.node_id in table.column_names:
        ids = table[columns.node_id].combine_chunks()
    labels = graph.labels if labels is None else labels
    features = graph.features if features is None else features
    added = [("labels", columns.label, labels), ("features", FEATURES, features)]
    if hasattr(scores, "items"):
        added += [("scores", *item) for item in scores.items()]
    for what, name, values in added:
        if values is not None:
            values = _by_node(values, nodes, ids, what, columns.node_id)
            values = _column(values, what)
            _in_order(len(values), ids, what, "row")
            kept = [each for each in table.column_names if each != name]
            table = table.select(kept).append_column(name, values)
    implied: dict[str, Any] = {}
    if scores is not None:
        implied["columns.scores"] = _names_of(scores, graph.nodes, columns)
    edges, directed = graph.edges, graph.directed
    if is_matrix(edges):
        ids = _in_order(edges.shape[0], ids, "edges", "row")
        edges, directed = _of_matrix(edges, ids, columns), True
    if directed is not None:
        implied["input.directed"] = directed
    members = members_of(memberships, ids, columns, nodes)[1]
    return Tables(table, _table(edges, "edges"), members, implied)


def _names_of(scores: Any, nodes: Any, columns: ColumnSettings) -> list[str]:
    """Names of the columns of scores."""
    names = [scores] if isinstance(scores, str) else list(scores)
    if not all(isinstance(name, str) for name in names):
        raise InputError(
            f"scores is {_kind(scores)}: give names of columns, or a mapping from a "
            "name to one value a node"
        )
    there = () if isinstance(nodes, str) else nodes.column_names
    if hasattr(scores, "items") and (twice := {*names} & {*there}):
        raise InputError(
            f"scores and nodes both have {min(twice)!r}: give the scores another name"
        )
    if columns.scores:
        raise InputError("scores and columns.scores are both given: leave one out")
    return names


def members_of(
    memberships: Any, ids: pa.Array | None, columns: ColumnSettings, graph: Any = None
) -> tuple[list[Any] | None, Any]:
    """Names of the communities in their order, and the table of memberships.

    The names are None for a table, whose order is that of its rows.

    Parameters
    ----------
    memberships
        As for `estimate_prevalence`. Communities without names are numbered from 0.
    ids
        Node ids in the order of the nodes; None: not known.
    graph
        The nodes as the user gave them, whose index that of `memberships` may be.

    Raises
    ------
    InputError
        For another form.
    """
    if memberships is None:
        return None, None
    if is_matrix(memberships):
        ids = _in_order(memberships.shape[1], ids, "memberships", "column")
        rows, places, _ = _entries(memberships)
        table = pa.table({columns.community: rows, columns.member: ids.take(places)})
        return [*range(memberships.shape[0])], table
    text, several = isinstance(memberships, str), hasattr(memberships, "__iter__")
    if text or hasattr(memberships, "columns") or not several:
        return None, _table(memberships, "memberships")
    values = plain(memberships)
    if isinstance(values, Iterator):  # it can be read only once
        values = [*values]
    # A mapping and a pandas object, by its index, have names.
    entries = values.items() if hasattr(values, "items") else enumerate(values)
    groups = [(key, plain(group)) for key, group in entries]
    named = isinstance(values, Mapping)
    if not named and all(_is_value(group) for _, group in groups):
        of_node = _by_node(values, graph, ids, "memberships", columns.node_id)
        of_node = _array(of_node, "memberships")
        ids = _in_order(len(of_node), ids, "memberships", "community")
        table = pa.table({columns.community: of_node, columns.member: ids})
        return None, table.filter(of_node.is_valid())
    names, members = [], []
    for key, group in groups:
        if _is_value(group):
            raise InputError(
                f"memberships has {group!r} for community {key!r}: give a list of node "
                f"ids; a setting of this section is written memberships__{key}"
            )
        names += [key] * len(group)
        members += [*group]
    both = [_array(each, "memberships") for each in (names, members)]
    table = pa.table(both, [columns.community, columns.member])
    return [key for key, _ in groups], table


def is_matrix(value: Any) -> bool:
    """Whether a value is a SciPy sparse matrix or a two-dimensional array."""
    return sparse.issparse(value) or (isinstance(value, np.ndarray) and value.ndim == 2)


def plain(values: Any) -> Any:
    """A tensor as a NumPy array; other values unchanged."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def written(table: Any, path: Path) -> Any:
    """The path of a table, which is written if it is in memory; None for None."""
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


@dataclass(frozen=True)
class Graph:
    """The parts of a graph; those that it lacks are None."""

    nodes: Any
    edges: Any
    directed: bool | None = None
    labels: Any = None
    features: Any = None


def _of_graph(graph: Any, columns: ColumnSettings) -> Graph | None:
    """The parts of a graph object or an adjacency matrix; None for other objects."""
    if hasattr(graph, "edge_index"):
        return _of_pyg(graph, columns)
    if hasattr(graph, "adj") and hasattr(graph, "is_directed"):
        return _of_networkx(graph, columns)
    if is_matrix(graph):
        return Graph(pa.table({columns.node_id: np.arange(graph.shape[0])}), graph)
    return None


def _of_networkx(graph: Any, columns: ColumnSettings) -> Graph:
    ids = _array(list(graph.nodes), "the nodes of the graph")
    nodes, known = {}, list(graph.nodes.values())
    for key in dict.fromkeys(chain(*known)):
        try:
            nodes[str(key)] = _array([data.get(key) for data in known], str(key))
        except InputError as error:
            log.info("this attribute of the nodes is left out: %s", error)
    ends = list(graph.edges(data=columns.weight or "weight"))
    src, dst, weight = ([edge[at] for edge in ends] for at in range(3))
    edges = {columns.src: pa.array(src, ids.type), columns.dst: pa.array(dst, ids.type)}
    if columns.weight and any(each is not None for each in weight):
        weight = [1 if each is None else each for each in weight]
        edges[columns.weight] = _array(weight, "the weights of the graph")
    nodes[columns.node_id] = ids  # not an attribute of this name
    return Graph(pa.table(nodes), pa.table(edges), graph.is_directed())


def _of_pyg(data: Any, columns: ColumnSettings) -> Graph:
    def part(name: str) -> Any:
        return plain(getattr(data, name, None))

    pairs, x, y = map(part, ("edge_index", "x", "y"))
    masks = [mask for mask in map(part, ("train_mask", "val_mask")) if mask is not None]
    edges = {columns.src: pairs[0], columns.dst: pairs[1]}
    for weights in map(part, ("edge_attr", "edge_weight")):
        fits = weights is not None and weights.size == pairs.shape[1]
        if columns.weight and fits:
            edges[columns.weight] = weights.ravel()
    count = int(data.num_nodes) if x is None else len(x)
    nodes = pa.table({columns.node_id: np.arange(count)})
    labels = None if y is None else _shown(y, masks)
    return Graph(nodes, pa.table(edges), True, labels, x)


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
        table[columns.weight] = weights.astype(np.float64)
    return pa.table(table)


def _entries(matrix: Any) -> tuple[Ints, Ints, Any]:
    """Rows, columns and values of the entries of a matrix that are not 0."""
    entries = sparse.coo_array(matrix)
    there = entries.data != 0
    row, column = (at[there].astype(np.int64) for at in entries.coords)
    return row, column, entries.data[there]


def _table(value: Any, what: str) -> pa.Table | str:
    """A table in memory as Arrow, or the path of a file as text."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if not hasattr(value, "__arrow_c_stream__"):
        lazy = hasattr(value, "collect")
        todo = "call its collect() first" if lazy else f"give {FORMS[what]}"
        raise InputError(f"{what} is {_kind(value)}: {todo}")
    index = getattr(value, "index", pa.schema([])).names
    if named := [name for name in index if name is not None and name not in value]:
        value = value.reset_index(named)  # pandas leaves a range out of the stream
    try:
        table = pa.table(value)
        return table.cast(without_views(table.schema))
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(map(str, error.args))
        raise InputError(
            f"{what} has a column that Arrow cannot hold ({reason}): give each column "
            "values of one type, or leave that column out"
        ) from error


def _by_node(
    values: Any, nodes: Any, ids: pa.Array | None, what: str, node_id: str
) -> Any:
    """A pandas object's rows in the order of the nodes, by its index.

    The index is that of `nodes`, or holds node ids: certainly if it is named `node_id`;
    a node that it lacks gets no value. Other objects, and a plain range, are in the
    order of the nodes already.
    """
    if not hasattr(values, "reindex"):
        return values
    index = values.index
    by_id = index.name == node_id
    of_rows = not by_id and hasattr(nodes, "reindex")
    if of_rows and index.equals(nodes.index):
        return values
    if not index.is_unique:
        raise InputError(
            f"{what} has repeated values in its index: name each node once"
        )
    known = [] if ids is None else ids.to_pylist()
    unknown = index[~index.isin(known)]
    if of_rows and index.isin(nodes.index).all():
        if not len(unknown) and known != [*nodes.index]:
            raise InputError(
                f"{what} has an index of node ids or of rows of nodes: name it "
                f"{node_id!r} if it holds ids, else reindex it to that of nodes"
            )
        return values.reindex(nodes.index)
    if ids is None or (index.name is None and [*index] == [*range(len(ids))]):
        return values
    if len(unknown):
        raise InputError(
            f"{what} has an index with {unknown[0]!r}, which is no node id and not in "
            "the index of nodes: give node ids as the index, or an array in the order "
            "of the nodes"
        )
    return values.reindex(known)


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


def _column(values: Any, what: str) -> pa.Array:
    """One value a node, null for None and NaN; features are vectors, shape (N, F)."""
    if what == "features":
        is_sparse = hasattr(values, "toarray")
        matrix = values.toarray() if is_sparse else np.asarray(plain(values))
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise InputError(
                f"features are an array of {matrix.dtype} with shape {matrix.shape}: "
                "give numbers, shape (nodes, features)"
            )
        return column_of(matrix)
    if np.ndim(plain(values)) != 1:
        section = "; a setting of this section is written labels__NAME"
        raise InputError(
            f"{what} have shape {np.shape(plain(values))}: give one value a node, and "
            f"None where there is none{section if what == 'labels' else ''}"
        )
    return _array(values, what)


def _array(values: Any, what: str, kind: Any = None) -> pa.Array:
    try:
        made = pa.array(plain(values), kind, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        if not kind and isinstance(error, OverflowError):  # hashes of 64 bits
            return _array(values, what, pa.uint64())
        raise InputError(
            f"{what} cannot be read ({error}): give integers or text, all of one type"
        ) from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _is_value(value: Any) -> bool:
    """Whether an entry of memberships is a community's name, not a list of nodes."""
    return isinstance(value, str) or not hasattr(value, "__len__")


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
