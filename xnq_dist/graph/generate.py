"""A synthetic social network, streamed to Parquet; `planted` describes the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xnq_dist.core.arrays import Bools, Ints
from xnq_dist.core.store import Folder, TableWriter
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.planted import (
    NODE_BLOCK,
    Arguments,
    PlantedNetwork,
    draw_edges,
    draw_features,
    draw_memberships,
    draw_network,
)

__all__ = ["demo_network", "generate", "load_demo"]


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
    (`planted.EDGE_BLOCK`) draw it.

    Parameters
    ----------
    out
        Folder for ``nodes.parquet`` (node_id, features, label: null when unlabelled),
        ``edges.parquet`` (src, dst: every undirected edge once),
        ``memberships.parquet`` (community, node_id), ``truth.parquet`` (node_id,
        label) and ``meta.json`` (arguments, counts).
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
    names = None
    if string_ids:
        width = len(str(communities - 1))
        names = [f"community-{k:0{width}d}" for k in range(max(communities, 0))]
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
    names: Sequence[str] | None,
    classes: Sequence[str] = (),
) -> GeneratedGraph:
    arguments.check()
    folder = Folder.of(out)
    folder.create()
    folder.delete("meta.json")
    network = draw_network(arguments)
    named = None if names is None else pa.array(names, pa.string())
    drawn = _Tables(network, arguments, named, classes)
    counts = {
        "nodes": arguments.nodes,
        "labelled": int(network.labelled.sum()),
        "communities": arguments.communities,
    }
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
        counts[name] = writer.record.rows
    counts["same_class_edges"] = drawn.same
    meta = {
        "arguments": asdict(arguments),
        "counts": counts,
        "class_counts": np.bincount(network.label).tolist(),
    }
    folder.write_bytes("meta.json", json.dumps(meta, indent=1).encode())
    paths = {name: folder.uri_of(f"{name}.parquet") for name, _, _ in written}
    return GeneratedGraph({**paths, "meta": folder.uri_of("meta.json")}, counts)


@dataclass
class _Tables:
    """The tables of a network, in blocks of rows."""

    network: PlantedNetwork
    arguments: Arguments
    names: pa.Array | None
    """Of the communities."""
    classes: Sequence[str]
    same: int = 0
    """Edges so far that join nodes of one class."""

    def nodes(self) -> Iterator[pa.Table]:
        for table, at in self._nodes(self.network.labelled):
            values = draw_features(self.network, self.arguments, at.start, at.stop)
            columns = self.arguments.features
            features = pa.FixedSizeListArray.from_arrays(values.ravel(), columns)
            yield table.add_column(1, "features", features)

    def truth(self) -> Iterator[pa.Table]:
        for table, _ in self._nodes(np.ones(self.arguments.nodes, np.bool_)):
            yield table

    def _nodes(self, shown: Bools) -> Iterator[tuple[pa.Table, slice]]:
        """Ids and labels, where they are shown, and which nodes they are of."""
        for first in range(0, self.arguments.nodes, NODE_BLOCK):
            at = slice(first, min(first + NODE_BLOCK, self.arguments.nodes))
            codes = self.network.label[at].astype(np.int64)
            label = pa.array(codes, mask=~shown[at])
            if self.classes:
                label = pa.array(self.classes).take(label)
            ids = self._ids(np.arange(at.start, at.stop))
            yield pa.table({"node_id": ids, "label": label}), at

    def edges(self) -> Iterator[pa.Table]:
        for src, dst in draw_edges(self.network, self.arguments):
            same = self.network.label[src] == self.network.label[dst]
            self.same += int(np.count_nonzero(same))
            yield pa.table({"src": self._ids(src), "dst": self._ids(dst)})

    def memberships(self) -> Iterator[pa.Table]:
        for community, member in draw_memberships(self.network, self.arguments):
            ids = pa.array(community)
            ids = ids if self.names is None else self.names.take(ids)
            yield pa.table({"community": ids, "node_id": self._ids(member)})

    def _ids(self, nodes: Ints) -> pa.Array:
        ids = pa.array(nodes)
        if not self.arguments.string_ids:
            return ids
        width = len(str(self.arguments.nodes - 1))
        text = pc.utf8_lpad(pc.cast(ids, pa.string()), width, "0")
        return pc.binary_join_element_wise("user-", text, "")
