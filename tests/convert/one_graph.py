"""One small graph, and writers of it in each format."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

NODES = 12
_random = np.random.default_rng(0)
FEATURES = np.round(_random.normal(size=(NODES, 3)) * 8).astype(np.float32) / 8
CLASSES = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, -1])
_pairs = np.array([(a, b) for a in range(NODES) for b in range(a + 1, NODES)])
UNDIRECTED = _pairs[np.sort(_random.permutation(len(_pairs))[:30])]
"""Each edge once, no loops; every node has one."""
FLIPPED = _random.random(30) < 0.5
EDGES = np.where(FLIPPED[:, None], UNDIRECTED[:, ::-1], UNDIRECTED)
"""The same edges with a direction."""
WEIGHTS = _random.integers(1, 9, 30).astype(np.float32)
YEARS = np.arange(2000, 2000 + NODES)
SPLIT = {"train": range(8), "valid": range(8, 10), "test": range(10, NODES)}


def write_edge_list(path: Path) -> None:
    rows = zip(EDGES, WEIGHTS, strict=True)
    lines = "".join(f"{a} {b} {weight:g}\n" for (a, b), weight in rows)
    path.write_text(f"% asym posweighted\n% {len(EDGES)} {NODES} {NODES}\n{lines}")


def write_npz(path: Path) -> None:
    masks = np.zeros((2, NODES), bool)
    inside = {name: masks.copy() for name in SPLIT}
    for name, nodes in SPLIT.items():
        inside[name][:, list(nodes)] = True
    np.savez_compressed(
        path,
        node_features=FEATURES,
        node_labels=np.where(CLASSES < 0, 0, CLASSES),
        edges=UNDIRECTED,
        train_masks=inside["train"],
        val_masks=inside["valid"],
        test_masks=inside["test"],
    )


def write_pyg(path: Path) -> None:
    made = Path(__file__).parent / "made_by_torch" / "data.pt"
    path.write_bytes(made.read_bytes())


def write_ogb(path: Path) -> None:
    """A folder with the text files of ogbn-arxiv."""

    def write(name: str, rows: object) -> None:
        file = path / f"{name}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wt") as stream:
            np.savetxt(stream, np.atleast_2d(rows), "%.6g", ",")

    write("raw/edge", EDGES)
    write("raw/num-node-list", [[NODES]])
    write("raw/num-edge-list", [[len(EDGES)]])
    write("raw/node-feat", FEATURES)
    labels = np.where(CLASSES < 0, np.nan, CLASSES)
    write("raw/node-label", labels[:, None])
    write("raw/node_year", YEARS[:, None])
    for name, nodes in SPLIT.items():
        write(f"split/time/{name}", np.array(nodes)[:, None])


def write_graphml(path: Path) -> None:
    import igraph

    graph = igraph.Graph(NODES, EDGES.tolist(), directed=True)
    graph.vs["label"] = ["" if code < 0 else f"class {code}" for code in CLASSES]
    for column in range(3):
        graph.vs[f"x{column}"] = FEATURES[:, column].astype(float).tolist()
    graph.vs["year"] = YEARS.astype(float).tolist()
    graph.es["weight"] = WEIGHTS.astype(float).tolist()
    graph.write_graphml(str(path))
    # As networkx writes ids.
    text = path.read_text()
    for name in ("id", "source", "target"):
        text = text.replace(f'{name}="n', f'{name}="')
    path.write_text(text)


def write_node_link(path: Path) -> None:
    nodes = [
        {
            "id": node,
            "label": None if CLASSES[node] < 0 else int(CLASSES[node]),
            "features": FEATURES[node].tolist(),
            "tags": ["of", "any", "length"][: node % 3],
        }
        for node in range(NODES)
    ]
    links = [
        {"source": int(a), "target": int(b), "weight": float(weight)}
        for (a, b), weight in zip(EDGES, WEIGHTS, strict=True)
    ]
    graph = {"directed": True, "multigraph": False, "nodes": nodes, "links": links}
    path.write_text(json.dumps(graph))


def write_metis(path: Path) -> None:
    lines = [f"{NODES} {len(UNDIRECTED)} 001"]
    for node in range(NODES):
        around = [
            f"{int(other) + 1} {weight:g}"
            for pair, weight in zip(UNDIRECTED, WEIGHTS, strict=True)
            if node in pair
            for other in pair[pair != node]
        ]
        lines.append(" ".join(around))
    path.write_text("% a comment\n" + "\n".join(lines) + "\n")


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "edge-list": ("out.small", write_edge_list),
    "npz": ("small.npz", write_npz),
    "pyg": ("data.pt", write_pyg),
    "ogb": ("small", write_ogb),
    "graphml": ("small.graphml", write_graphml),
    "node-link": ("small.json", write_node_link),
    "metis": ("small.graph", write_metis),
}
"""File name and writer of each format."""
