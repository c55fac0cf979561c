"""A synthetic social network, streamed to Parquet; `planted` describes the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.core.store import Folder, TableWriter
from xnq_dist.core.threads import ahead
from xnq_dist.graph.planted import (
    NODE_BLOCK,
    Arguments,
    PlantedNetwork,
    draw_edges,
    draw_features,
    draw_members,
    draw_network,
)
from xnq_dist.graph.values import column_of

__all__ = ["Arguments", "demo_network", "generate", "load_demo"]

COMMUNITY_BLOCK = 1 << 8
"""Communities that are written together."""


def generate(
    out: str | Path,
    arguments: Arguments,
    names: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> dict[str, str]:
    """Write a synthetic social network as Parquet; `planted` describes the model.

    Memory is some hundred bytes a node; edges, features and memberships are written in
    blocks. There are no self-loops. An edge occurs twice only if two blocks of edges
    (`planted.EDGE_BLOCK`) draw it, which is rare.

    Parameters
    ----------
    out
        Folder of the tables.
    names, classes
        Names of the communities and classes, instead of numbers.

    Returns
    -------
    Paths of ``nodes`` (node_id, features, label: null when unlabelled), ``edges`` (src,
    dst: every undirected edge once), ``memberships`` (community, node_id) and ``truth``
    (node_id, label).

    Raises
    ------
    SettingsError
        When an argument is out of range.
    RunDirectoryError
        When `out` cannot be written.
    """
    arguments.check()
    folder = Folder.of(out)
    folder.create()
    named = pa.array(names or range(arguments.communities))
    drawn = _Tables(draw_network(arguments), named, classes)
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
    return {name: folder.uri_of(f"{name}.parquet") for name, *_ in written}


def demo_network(out: str | Path, seed: int = 0) -> dict[str, str]:
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
    return generate(out, arguments, names, ("human", "bot"))


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
        paths = demo_network(folder, seed)
        nodes, edges, memberships = (
            pq.read_table(paths[name], memory_map=False)
            for name in ("nodes", "edges", "memberships")
        )
    return nodes, edges, memberships


@dataclass(frozen=True)
class _Tables:
    """The tables of a network, in blocks of rows."""

    network: PlantedNetwork
    names: pa.Array
    """Of the communities."""
    classes: Sequence[str]

    def nodes(self) -> Iterator[pa.Table]:
        total = self.network.arguments.nodes
        for first in range(0, total, NODE_BLOCK):
            last = min(first + NODE_BLOCK, total)
            features = column_of(draw_features(self.network, first, last))
            ids = self._ids(np.arange(first, last))
            labels = self._labels(first, last, ~self.network.labelled[first:last])
            yield pa.table({"node_id": ids, "features": features, "label": labels})

    def truth(self) -> Iterator[pa.Table]:
        total = self.network.arguments.nodes
        ids = self._ids(np.arange(total))
        yield pa.table({"node_id": ids, "label": self._labels(0, total)})

    def edges(self) -> Iterator[pa.Table]:
        for src, dst in draw_edges(self.network):
            yield pa.table({"src": self._ids(src), "dst": self._ids(dst)})

    def memberships(self) -> Iterator[pa.Table]:
        for first in range(0, len(self.names), COMMUNITY_BLOCK):
            names = self.names[first : first + COMMUNITY_BLOCK]
            members = [draw_members(self.network, first + k) for k in range(len(names))]
            community = np.repeat(np.arange(len(names)), [len(m) for m in members])
            ids = self._ids(np.concatenate(members))
            yield pa.table({"community": names.take(community), "node_id": ids})

    def _ids(self, nodes: NDArray[np.integer]) -> pa.Array:
        ids, arguments = pa.array(nodes.astype(np.int64)), self.network.arguments
        if not arguments.string_ids:
            return ids
        width = len(str(arguments.nodes - 1))
        text = pc.utf8_lpad(pc.cast(ids, pa.string()), width, "0")
        return pc.binary_join_element_wise("user-", text, "")

    def _labels(self, first: int, last: int, hidden: Any = None) -> pa.Array:
        codes = self.network.label[first:last]
        labels = pa.array(codes, mask=hidden)
        return pa.array(self.classes).take(labels) if self.classes else labels
