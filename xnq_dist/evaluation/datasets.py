"""The paper's graphs: names, families, tasks, and downloads by PyTorch Geometric.

PyTorch Geometric (extra ``gnn``) downloads the public files; `download` writes them as
the tables that every other graph comes as.

Graphs of a family are similar (Twitch networks of several countries, two tasks on one
citation graph). The error on a graph is too optimistic if a constant was chosen on
another graph of its family, so evaluations leave out complete families.
"""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xnq_dist.core.errors import InfrastructureError, InputError, SettingsError
from xnq_dist.graph.values import column_of

__all__ = ["TABLES", "TASKS", "VARIABLE", "download", "family_of"]

FAMILIES = ("cora", "facebook100", "twitch")
"""Names of families, whose graphs are named FAMILY or FAMILY-..."""

VARIABLE = "XNQ_DATA_DIR"
"""Environment variable that names the parent folder of the graphs' folders."""
TABLES = ("nodes.parquet", "edges.parquet")
"""Files in the folder of a graph."""


def family_of(name: str) -> str:
    """The family of a graph or task of this name; the name if it has no family.

    Examples
    --------
    >>> family_of("twitch-engb"), family_of("minesweeper")
    ('twitch', 'minesweeper')
    """
    first = name.partition("-")[0]
    return first if first in FAMILIES else name


@dataclass(frozen=True)
class KnownGraph:
    """A graph of the paper as a data set of PyTorch Geometric."""

    kind: str
    """Class in ``torch_geometric.datasets``."""
    nodes: int
    edges: int
    """Number of directed edges."""
    options: dict[str, str] = field(default_factory=dict)
    normalised: bool = False
    """Whether features are normalised by row, as in the paper's loader."""


GRAPHS = {
    "cora": KnownGraph("Planetoid", 2708, 10_556, {"name": "Cora"}),
    "genius": KnownGraph(
        "LINKXDataset", 421_961, 984_979, {"name": "genius"}, normalised=True
    ),
    "twitch-de": KnownGraph("Twitch", 9498, 315_774, {"name": "DE"}),
    "flickr": KnownGraph("Flickr", 89_250, 899_756),
    **{
        name: KnownGraph("HeterophilousGraphDataset", nodes, edges, {"name": name})
        for name, nodes, edges in (
            ("questions", 48_921, 307_080),
            ("tolokers", 11_758, 1_038_000),
            ("amazon-ratings", 24_492, 186_100),
        )
    },
}
"""Graphs that can be downloaded, by the name of their folder."""

TASKS: dict[str, tuple[str, str, str | None]] = {
    "cora-2": ("cora", "splits.parquet", "2"),
    "cora-multi": ("cora", "splits_multiclass.parquet", None),
    **{name: (name, "splits.parquet", None) for name in GRAPHS if name != "cora"},
}
"""The paper's eight tasks: name of the graph's folder, file of folds in it, and class
that is evaluated against all others (None: all classes). Without the file,
`protocol.make_folds` draws the same folds."""


def download(name: str, root: Path) -> Path:
    """The folder of one of `GRAPHS` in `root`, which is downloaded if it is not there.

    Raises
    ------
    SettingsError
        When PyTorch Geometric is not installed.
    InfrastructureError
        When it cannot download the graph.
    InputError
        When the files are not those of the paper's graph.
    """
    if all((root / name / table).is_file() for table in TABLES):
        return root / name
    if importlib.util.find_spec("torch_geometric") is None:
        raise SettingsError(
            f"graph {name!r} is not in {root}, and PyTorch Geometric, which would "
            "download it, is not installed: pip install 'xnq-dist[gnn]', or put "
            f"{' and '.join(TABLES)} into {root / name}"
        )
    from torch_geometric import datasets, transforms

    known, raw = GRAPHS[name], root / f".{name}"
    try:
        data = getattr(datasets, known.kind)(root=str(raw), **known.options)[0]
    except Exception as error:  # of PyG, fsspec, aiohttp, urllib
        raise InfrastructureError(
            f"graph {name!r} cannot be downloaded ({error}): try again, or put "
            f"{' and '.join(TABLES)} into {root / name}"
        ) from error
    if known.normalised:
        data = transforms.NormalizeFeatures()(data)
    if (data.num_nodes, data.num_edges) != (known.nodes, known.edges):
        raise InputError(
            f"{name}: the files have {data.num_nodes:,} nodes and {data.num_edges:,} "
            f"edges, the paper's graph {known.nodes:,} and {known.edges:,}: put its "
            f"tables into {root / name}"
        )
    made = raw / "tables"
    made.mkdir(parents=True, exist_ok=True)
    for file, table in _tables(data).items():
        pq.write_table(table, made / file, compression="zstd")
    made.rename(root / name)
    shutil.rmtree(raw)
    return root / name


def _tables(data: Any) -> dict[str, pa.Table]:
    """Tables of a graph by file name."""
    features = np.ascontiguousarray(data.x.numpy(), np.float32)
    # Unknown labels of Genius count as its class 0, as in the paper.
    labels = np.maximum(data.y.numpy().reshape(-1), 0).astype(np.int64)
    sources, targets = data.edge_index.numpy()
    return {
        "nodes.parquet": pa.table(
            {
                "node_id": np.arange(len(labels)),
                "label": labels,
                "features": column_of(features),
            }
        ),
        "edges.parquet": pa.table({"src": sources, "dst": targets}),
    }
