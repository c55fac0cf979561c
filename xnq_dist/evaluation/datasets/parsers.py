"""Readers of the file formats in which the paper's graphs are published."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.datasets.arrays import checked_edges, float_rows
from xnq_dist.evaluation.datasets.graphs import (
    RawGraph,
    both_ways,
    distinct,
    integer_labels,
)
from xnq_dist.evaluation.datasets.pickled import CsrArrays, read_pickled
from xnq_dist.evaluation.datasets.reading import read_arrays, reading

__all__ = [
    "parse",
    "read_graphsaint",
    "read_heterophilous",
    "read_linkx",
    "read_planetoid",
    "read_ptg",
]


def parse(
    form: str, folder: Path, names: Sequence[str], options: Mapping[str, Any]
) -> RawGraph:
    """Read a graph in one of the known formats.

    Parameters
    ----------
    form
        Name of the format, as in `Source.form`.
    folder, names
        Folder of the raw files, and their names.
    options
        Options of the format's reader.
    """
    from xnq_dist.evaluation.datasets.musae import read_musae

    readers: dict[str, Callable[..., RawGraph]] = {
        "planetoid": read_planetoid,
        "heterophilous": read_heterophilous,
        "linkx": read_linkx,
        "musae": read_musae,
        "ptg": read_ptg,
        "graphsaint": read_graphsaint,
    }
    single = form in ("heterophilous", "linkx", "ptg")
    return readers[form](folder / names[0] if single else folder, **options)


def read_planetoid(folder: Path, prefix: str = "ind.cora") -> RawGraph:
    """Read Yang et al.'s files: pickles of sparse matrices, one-hot labels and a dict.

    Rows of the test nodes are in the order of ``test.index`` and are moved to the
    indices in it. Self-loops and duplicate edges are removed, as in the paper's loader;
    the dict has each edge both ways. Edges are sorted by target and source.

    Raises
    ------
    InputError
        When a file is damaged or does not match the others.
    """
    at = {
        part: folder / f"{prefix}.{part}"
        for part in ("allx", "tx", "ally", "ty", "graph", "test.index")
    }
    test = _test_index(at["test.index"])
    features = np.concatenate([_matrix(at["allx"]), _matrix(at["tx"])])
    hot = np.concatenate([_matrix(at["ally"]), _matrix(at["ty"])])
    nodes = len(features)
    place = np.sort(test)
    if len(test) == 0 or not np.array_equal(place, np.arange(nodes - len(test), nodes)):
        raise InputError(
            f"{at['test.index']} does not list the last {len(test)} of {nodes} nodes "
            "once each: graphs with missing nodes are not supported"
        )
    order = np.arange(nodes)
    order[test] = place
    labels = integer_labels(np.argmax(hot[order], axis=1), nodes, at["ally"])
    graph = read_pickled(at["graph"])
    if not isinstance(graph, dict):
        raise InputError(
            f"{at['graph']} is not a dict of neighbours: download it again"
        )
    pairs = [(node, other) for node, others in graph.items() for other in others]
    edges = checked_edges(np.array(pairs).reshape(-1, 2), nodes, at["graph"])
    facts = {
        "edge_convention": "the neighbours of the `graph` dict; self-loops and "
        "duplicates removed; one row per directed edge, sorted by target and source",
        "features_are": "the raw words of the file, rows not normalised",
        "raw_self_loops": int(np.sum(edges[:, 0] == edges[:, 1])),
    }
    kept = distinct(edges, nodes, by=1, loops=False)
    return RawGraph(labels, features[order], kept, facts)


def _test_index(path: Path) -> NDArray[np.int64]:
    try:
        return np.array(path.read_text("ascii").split(), dtype=np.int64)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a list of integers ({error}): download it again"
        ) from error


def _matrix(path: Path) -> NDArray[np.float32]:
    """Read a pickled matrix, sparse or dense, as dense float32."""
    matrix = read_pickled(path)
    if isinstance(matrix, CsrArrays):
        dense = np.zeros(matrix.shape, np.float32)
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        np.add.at(dense, (rows, matrix.indices), matrix.data)
        return dense
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2:
        raise InputError(f"{path} is not a matrix: download it again")
    return matrix.astype(np.float32)


def read_heterophilous(path: Path) -> RawGraph:
    """Read Platonov et al.'s archives, which have each undirected edge once.

    Every edge is returned both ways.

    Raises
    ------
    InputError
        When arrays are missing or do not match each other.
    """
    names = ("node_features", "node_labels", "edges")
    features, labels, edges = read_arrays(path, names).values()
    rows = float_rows(features, path)
    nodes = len(rows)
    facts = {
        "edge_convention": "the file's undirected edges in both directions, each "
        "once, sorted by source and target",
        "features_are": "those of the file",
    }
    return RawGraph(
        integer_labels(labels, nodes, path),
        rows,
        both_ways(checked_edges(edges, nodes, path), nodes),
        facts,
    )


def read_linkx(path: Path) -> RawGraph:
    """Read Lim et al.'s MATLAB files (version 7 or earlier), with unchanged edges.

    As in the paper's loader for Genius, features are shifted to a minimum of 0, and
    rows with a sum above 1 are divided by it.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    names = ["edge_index", "node_feat", "label"]
    with reading(path, "a MATLAB file with the expected arrays"):
        try:
            content = loadmat(path, variable_names=names)
        except MatReadError as error:  # a direct subclass of Exception
            raise ValueError(str(error)) from error
        edges, features, labels = (content[name] for name in names)
    rows = float_rows(features, path)
    nodes = len(rows)
    rows = rows - rows.min()
    rows /= np.maximum(rows.sum(axis=1, keepdims=True), np.float32(1))
    codes = np.asarray(labels).reshape(-1)
    facts = {
        "edge_convention": "the file's directed edges in its order; none added, none "
        "removed",
        "features_are": "those of the file, minus the least value, each row divided by "
        "its sum where that is above 1",
        "labels_below_0_as_0": int(np.sum(codes < 0)),
    }
    return RawGraph(
        integer_labels(codes, nodes, path),
        rows,
        checked_edges(np.asarray(edges).T, nodes, path),
        facts,
    )


def read_ptg(path: Path) -> RawGraph:
    """Read Rozemberczki's archives with 128 features; edges are sorted.

    Raises
    ------
    InputError
        When arrays are missing or do not match each other.
    """
    names = ("features", "target", "edges")
    features, labels, edges = read_arrays(path, names).values()
    rows = float_rows(features, path)
    nodes = len(rows)
    pairs = checked_edges(edges, nodes, path)
    facts = {
        "edge_convention": "the file's directed edges, sorted by source and target",
        "features_are": "those of the file",
    }
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return RawGraph(integer_labels(labels, nodes, path), rows, pairs[order], facts)


def read_graphsaint(folder: Path) -> RawGraph:
    """Read GraphSAINT's folders: CSR adjacency, features and the class of each node.

    Rows are sources and columns targets; edges are in the matrix's order.

    Raises
    ------
    InputError
        When files are missing or do not match each other.
    """
    at = {
        name: folder / name for name in ("adj_full.npz", "feats.npy", "class_map.json")
    }
    names = ("indices", "indptr", "shape")
    indices, indptr, shape = read_arrays(at["adj_full.npz"], names).values()
    nodes = int(shape[0])
    with reading(at["adj_full.npz"], "a square CSR matrix"):
        sources = np.repeat(np.arange(nodes), np.diff(indptr))
        pairs = np.stack([sources, indices], axis=1)
    with reading(at["feats.npy"], "a NumPy array"):
        # Memory-mapped: the file has float64, twice the size of the result.
        features = np.load(at["feats.npy"], mmap_mode="r", allow_pickle=False)
    rows = float_rows(features, at["feats.npy"])
    if len(rows) != nodes:
        raise InputError(
            f"{at['feats.npy']} has {len(rows)} rows for the {nodes} nodes of "
            f"{at['adj_full.npz'].name}: download both again"
        )
    facts = {
        "edge_convention": "the entries of adj_full.npz, row to column; one row per "
        "directed edge",
        "features_are": "those of the file",
    }
    edges = checked_edges(pairs, nodes, at["adj_full.npz"])
    return RawGraph(_class_map(at["class_map.json"], nodes), rows, edges, facts)


def _class_map(path: Path, nodes: int) -> NDArray[np.int64]:
    with reading(path, "a JSON object"):
        classes = json.loads(path.read_text("utf-8"))
        places = np.array([int(key) for key in classes], dtype=np.int64)
        values = np.array(list(classes.values()))
    if values.ndim != 1 or values.dtype.kind != "i":
        raise InputError(
            f"{path}: a node has several classes, or a class that is not an integer: "
            "download it again"
        )
    outside = (places < 0) | (places >= nodes)
    if outside.any():
        raise InputError(
            f"{path}: node {places[outside][0]} is outside 0 to {nodes - 1}: download "
            "it again"
        )
    labels = np.full(nodes, -1, np.int64)
    labels[places] = values
    return labels
