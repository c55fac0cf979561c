"""Small random graphs with weights, self-loops, isolated nodes and ties."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import small_settings
from xnq_dist import pipeline
from xnq_dist.core.store import Attempt, Manifest, RunDirectory, Stage
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.graph.tables import Sources


@dataclass(frozen=True)
class Prepared:
    """A graph stage, and the same graph for NetworkX (edge u -> v: u votes for v)."""

    run: RunDirectory
    graph: Stage
    manifest: Manifest
    network: nx.DiGraph

    def attempt(self) -> Attempt:
        return Stage(self.run.folder.child("baselines"), "baselines").begin()

    def adjacency(self):
        return read_adjacency(self.graph, self.manifest)

    def files(self) -> list[str]:
        """Files that remain in the folder of the attempts."""
        return self.run.folder.child("baselines").names()


def prepare_graph(
    folder: Path,
    partitions: int,
    nodes: int = 140,
    edges: int = 420,
    weighted: bool = True,
    seed: int = 0,
) -> Prepared:
    """The last ten nodes have no edges; some weights are 0; there are self-loops."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, nodes - 10, (edges, 2))
    pairs[:8, 1] = pairs[:8, 0]
    pairs = np.unique(pairs, axis=0)
    weights = rng.integers(0, 4, len(pairs)) / 2 if weighted else np.ones(len(pairs))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table(
            {
                "node_id": np.arange(nodes),
                "label": np.arange(nodes) % 2,
                "features": pa.FixedSizeListArray.from_arrays(
                    pa.array(np.zeros(nodes, np.float32)), 1
                ),
            }
        ),
        folder / "nodes.parquet",
    )
    columns = {"src": pairs[:, 0], "dst": pairs[:, 1]}
    if weighted:
        columns["weight"] = weights
    pq.write_table(pa.table(columns), folder / "edges.parquet")
    sources = Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))
    run = RunDirectory(folder / "run")
    run.folder.create()
    settings = small_settings(f"partitions={partitions}", "partitioner=random")
    manifest = pipeline.prepare(run, sources, settings)
    network = nx.DiGraph()
    network.add_nodes_from(range(nodes))
    network.add_weighted_edges_from(
        (int(u), int(v), float(w)) for (u, v), w in zip(pairs, weights, strict=True)
    )
    return Prepared(run, run.stage("graph"), manifest, network)


def hide(nodes: int, classes: int, shown: float, variants: int, seed: int = 1):
    """Training labels of several variants; the last class is absent from the last."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, nodes)
    labels = np.where(rng.random((variants, nodes)) < shown, truth, -1)
    labels[-1][labels[-1] == classes - 1] = -1
    return labels.astype(np.int32)


def tie_order(labels: np.ndarray, classes: int) -> list[int]:
    """Classes by falling number of training labels; of equals, the lower code first."""
    return sorted(range(classes), key=lambda c: (-(labels == c).sum(), c))


def plain_majority(codes: list[int], labels: np.ndarray, classes: int) -> int:
    """The most frequent code, -1 if there are no codes."""
    if not codes:
        return -1
    return max(tie_order(labels, classes), key=codes.count)
