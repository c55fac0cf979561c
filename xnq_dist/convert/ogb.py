"""Folders of the Open Graph Benchmark for node classification (ogbn-...)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from xnq_dist.convert import Converted
from xnq_dist.convert.pyg import read_tensors
from xnq_dist.convert.reading import check_memory, read_arrays, reading
from xnq_dist.convert.tensors import Arrays
from xnq_dist.core.errors import InputError

__all__ = ["matches", "read"]


BINARY = ("raw/data.npz", "raw/node-label.npz")
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
UNDIRECTED = ("products", "proteins")
"""Data sets that have each undirected edge once."""


def matches(path: Path, head: bytes) -> bool:
    """A folder with a folder raw."""
    return (path / "raw").is_dir()


def read(path: Path) -> Converted:
    """Read the graph, its labels and its first split."""
    if not (path / "raw").is_dir():
        raise ValueError("it has no folder raw")
    several = [*path.glob("raw/triplet-type-list*"), *path.glob("raw/*_dict.npz")]
    if several:
        raise InputError(
            f"{path} has several types of nodes and xnq-dist takes one: choose another "
            "data set, such as ogbn-arxiv"
        )
    found = _binary(path) if (path / BINARY[0]).is_file() else _text(path)
    counts = np.atleast_1d(found.pop("num_nodes_list").squeeze())
    if len(counts) != 1:
        raise InputError(
            f"{path} has {len(counts):,} graphs and xnq-dist takes one: choose a data "
            "set for node classification (ogbn-...)"
        )
    nodes = int(counts[0])
    check_memory(path, 64 * nodes)
    columns = {
        name: values
        for name, values in found.items()
        if name.startswith("node_")
        and name not in ("node_feat", "node_label")
        and values.size == nodes
    }
    left = {*found} - {"edge_index", "node_feat", "node_label", *columns}
    name = path.resolve().name
    return Arrays(
        path,
        found["edge_index"].T,
        found.get("node_feat"),
        found.get("node_label"),
        masks=_masks(path, nodes),
        nodes=nodes,
        columns=columns,
        directed=False if any(word in name for word in UNDIRECTED) else None,
        notes=[f"left out: {', '.join(sorted(left))}"] if left else [],
    ).tables()


def _binary(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    required = ("edge_index", "num_nodes_list")
    found = read_arrays(path / BINARY[0], required, ("node_feat", "node_year"))
    if (path / BINARY[1]).is_file():
        found |= read_arrays(path / BINARY[1], ("node_label",))
    return found


def _text(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    found = {
        "num_nodes_list": _table(path / "raw/num-node-list.csv.gz"),
        "edge_index": _table(path / "raw/edge.csv.gz").T,
    }
    for file in sorted(path.glob("raw/node[-_]*.csv.gz")):
        found[file.name.removesuffix(".csv.gz").replace("-", "_")] = _table(file)
    return found


def _table(file: Path) -> np.ndarray[Any, Any]:
    """A compressed CSV without a header as one array."""
    with (
        reading(file, "a complete CSV file of numbers, compressed with gzip"),
        gzip.open(file) as stream,
    ):
        batches, size = [], 0
        options = pacsv.ReadOptions(autogenerate_column_names=True)
        with pacsv.open_csv(stream, read_options=options) as reader:
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                check_memory(file, 3 * size)
        columns = [
            column.to_numpy() for column in pa.Table.from_batches(batches).columns
        ]
        if any(column.dtype.kind not in "biuf" for column in columns):
            raise ValueError("a value is not a number")
        return np.stack(columns, axis=1)


def _masks(path: Path, nodes: int) -> dict[str, np.ndarray[Any, Any]]:
    """Masks of the split whose name comes first; none if the folder has no split."""
    found = sorted(path.glob("split/*/"))
    if not found:
        return {}
    tensors = found[0] / "split_dict.pt"
    every = read_tensors(tensors) if tensors.is_file() else {}
    masks = {}
    for role, name in SPLITS.items():
        file = found[0] / f"{name}.csv.gz"
        places = _table(file)[:, 0] if file.is_file() else np.asarray(every[name])
        if places.dtype.kind not in "iu" or ((places < 0) | (places >= nodes)).any():
            raise InputError(f"{file} names nodes that are not 0 to {nodes - 1:,}")
        masks[role] = np.zeros(nodes, bool)
        masks[role][places] = True
    return masks
