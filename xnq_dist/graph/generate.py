"""A synthetic social network, streamed to Parquet; `planted` describes the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.core.store import Folder, TableWriter
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.linking import draw_edges
from xnq_dist.graph.planted import (
    NODE_BLOCK,
    Arguments,
    PlantedNetwork,
    draw_features,
    draw_memberships,
    draw_network,
)

__all__ = ["demo_network", "generate", "load_demo"]

ROWS_AT_ONCE = 1 << 18
"""Rows of a row group of the table of the truth."""


@dataclass(frozen=True)
class GeneratedGraph:
    """Paths and counts of a generated graph."""

    paths: dict[str, str]
    """Paths of ``nodes``, ``edges``, ``memberships``, ``truth`` and ``meta``."""
    counts: dict[str, int]
    """nodes, edges, same_class_edges, labelled, communities, memberships."""


def generate(
    out: str | Path,
    nodes: int,
    degree: float,
    features: int,
    classes: int,
    homophily: float,
    communities: int,
    seed: int,
    labelled: float = 0.1,
    string_ids: bool = False,
) -> GeneratedGraph:
    """Write a synthetic social network as Parquet; `planted` describes the model.

    Memory is a few dozen bytes a node; edges, features and memberships are written in
    blocks. There are no self-loops. An edge occurs twice only if two blocks of edges
    (`linking.EDGE_BLOCK`) draw it, which is rare.

    Parameters
    ----------
    out
        Folder for ``nodes.parquet`` (node_id, features, label: null when unlabelled),
        ``edges.parquet`` (src, dst: every undirected edge once),
        ``memberships.parquet`` (community, node_id), ``truth.parquet`` (node_id,
        label) and ``meta.json`` (arguments, counts, kind of each community).
    degree
        Mean degree. A very dense network may have fewer edges, because too few pairs
        with the required classes are left: see the counts.
    features
        Number of columns.
    homophily
        Probability that an edge joins two nodes of one class.
    labelled
        Share of labelled nodes; at least ten nodes of each class are labelled.
    string_ids
        Ids and community names as text instead of integers.

    Raises
    ------
    SettingsError
        When an argument is out of range.
    RunDirectoryError
        When `out` cannot be written.
    """
    shape = nodes, degree, features, classes, homophily, communities
    arguments = Arguments(*shape, seed, labelled, string_ids)
    names: list[Any] = list(range(communities))
    if string_ids:
        width = len(str(communities - 1))
        names = [f"community-{k:0{width}d}" for k in names]
    return _write(out, arguments, names)


def demo_network(out: str | Path, seed: int = 0) -> GeneratedGraph:
    """The network of the demo: bots among the followers of overlapping pages.

    The classes are ``human`` and ``bot``. The network is heterophilic: bots link to
    people (H = 0.5; links independent of class give 0.68; with much lower values, links
    alone identify bots). Page names contain characters that HTML and plots must escape.
    """
    arguments = Arguments(
        nodes=4000,
        degree=10,
        features=16,
        classes=2,
        homophily=0.5,
        communities=48,
        seed=seed,
        labelled=0.15,
        string_ids=True,
        drawn_by_class=False,
    )
    topics = (
        "harbour news", "street food", "old films", "chess club", "garden swap",
        "night buses", "cat pictures", "river swimming", "board games", "local radio",
        "bike repair", 'R&B <b>"live"</b>', "weather watch", "used books",
        "pottery & glaze", "sunday league", "coin & stamp", "open mic",
        "$10 lunches_and $5 teas", "allotments", "model trains", "quiz night",
        "dog walkers", "film photography",
    )  # fmt: skip
    names = [
        f"page-{k:02d} {topics[k % len(topics)]}" for k in range(arguments.communities)
    ]
    return _write(out, arguments, names, ("human", "bot"))


def load_demo(seed: int = 0) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The tables of the demo: users, links and followers of 48 pages.

    Returns
    -------
    nodes : pyarrow.Table
        4,000 rows: ``node_id``, ``features`` (16 numbers), ``label`` (``human``,
        ``bot``, or null for 85 in 100 users).
    edges : pyarrow.Table
        ``src``, ``dst``.
    memberships : pyarrow.Table
        ``community``, ``node_id``.

    Examples
    --------
    >>> nodes, edges, followers = load_demo()
    >>> nodes.num_rows
    4000
    """
    with TemporaryDirectory(prefix="xnq-demo-") as folder:
        paths = demo_network(folder, seed).paths
        nodes, edges, memberships = (
            pq.read_table(paths[name], memory_map=False)
            for name in ("nodes", "edges", "memberships")
        )
    return nodes, edges, memberships


def _write(
    out: str | Path,
    arguments: Arguments,
    names: Sequence[Any],
    classes: Sequence[str] = (),
) -> GeneratedGraph:
    arguments.check()
    folder = Folder.of(out)
    folder.create()
    folder.delete("meta.json")
    network = draw_network(arguments)
    counts = {
        "nodes": arguments.nodes,
        "edges": 0,
        "same_class_edges": 0,
        "labelled": int(network.labelled.sum()),
        "communities": arguments.communities,
        "memberships": 0,
    }
    drawn = _Tables(network, pa.array(names), classes, counts)
    written = (
        ("nodes", "generated_nodes", drawn.nodes()),
        ("truth", "truth", drawn.truth()),
        ("edges", "generated_edges", drawn.edges()),
        ("memberships", "memberships", drawn.memberships()),
    )
    for name, schema, tables in written:
        with TableWriter(folder, f"{name}.parquet", schema) as writer:
            for table in ahead(tables):
                writer.write(table)
    kinds = ["real"] * arguments.communities
    if arguments.drawn_by_class:
        kinds[::2] = ["proportions"] * len(kinds[::2])
    meta = {
        "arguments": asdict(arguments),
        "counts": counts,
        "class_counts": np.diff(network.by_class[1]).tolist(),
        "kinds": dict(zip(map(str, names), kinds, strict=True)),
    }
    folder.write_bytes("meta.json", json.dumps(meta, indent=1).encode())
    paths = {name: folder.uri_of(f"{name}.parquet") for name, _, _ in written}
    return GeneratedGraph({**paths, "meta": folder.uri_of("meta.json")}, counts)


@dataclass(frozen=True)
class _Tables:
    """The tables of a network, in blocks of rows; what is written is counted."""

    network: PlantedNetwork
    names: pa.Array
    """Of the communities."""
    classes: Sequence[str]
    counts: dict[str, int]

    def nodes(self) -> Iterator[pa.Table]:
        for first, last in self._blocks(NODE_BLOCK):
            values = draw_features(self.network, first, last)
            features = pa.FixedSizeListArray.from_arrays(
                pa.array(values.ravel()), values.shape[1]
            )
            ids = self._ids(np.arange(first, last))
            labels = self._labels(first, last, ~self.network.labelled[first:last])
            yield pa.table({"node_id": ids, "features": features, "label": labels})

    def truth(self) -> Iterator[pa.Table]:
        for first, last in self._blocks(ROWS_AT_ONCE):
            ids = self._ids(np.arange(first, last))
            yield pa.table({"node_id": ids, "label": self._labels(first, last)})

    def edges(self) -> Iterator[pa.Table]:
        for src, dst in draw_edges(self.network):
            same = self.network.label[src] == self.network.label[dst]
            self.counts["edges"] += len(src)
            self.counts["same_class_edges"] += int(np.count_nonzero(same))
            yield pa.table({"src": self._ids(src), "dst": self._ids(dst)})

    def memberships(self) -> Iterator[pa.Table]:
        for community, member in draw_memberships(self.network):
            self.counts["memberships"] += len(member)
            names = self.names.take(pa.array(community))
            yield pa.table({"community": names, "node_id": self._ids(member)})

    def _blocks(self, size: int) -> Iterator[tuple[int, int]]:
        total = self.network.arguments.nodes
        for first in range(0, total, size):
            yield first, min(first + size, total)

    def _ids(self, nodes: NDArray[np.integer]) -> pa.Array:
        ids, arguments = pa.array(nodes.astype(np.int64)), self.network.arguments
        if not arguments.string_ids:
            return ids
        width = len(str(arguments.nodes - 1))
        text = pc.utf8_lpad(pc.cast(ids, pa.string()), width, "0")
        return pc.binary_join_element_wise("user-", text, "")

    def _labels(self, first: int, last: int, hidden: Any = None) -> pa.Array:
        codes = self.network.label[first:last].astype(np.int64)
        labels = pa.array(codes, mask=hidden)
        return pa.array(self.classes).take(labels) if self.classes else labels
