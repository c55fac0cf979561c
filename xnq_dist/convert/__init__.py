"""Conversion of graphs in other formats to the tables that `run` reads.

A format is one record here and one module with two functions.
``matches(path, head)`` says whether a file with these first bytes, or a folder (`head`
is empty), looks like the format; ``read(path)`` returns a `Converted`. Errors of
libraries on a damaged file become an `InputError` with the record's `title` and `hint`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from xnq_dist.core import records

__all__ = ["FORMATS", "Converted", "GraphFormat"]


@dataclass(frozen=True, kw_only=True)
class GraphFormat(records.PartRecord):
    """One format; `title` completes "FILE is not ..."."""

    hint: str
    """What to do with a file that cannot be read."""


FORMATS = records.Registry(
    "format",
    (
        GraphFormat(
            name="ogb",
            title="a folder of an OGB data set for node classification",
            text="folder of an OGB data set with raw/ and split/ (ogbn-...)",
            hint="name the folder that has raw/ and split/, or download it again",
            module="xnq_dist.convert.ogb",
        ),
        GraphFormat(
            name="npz",
            title="a NumPy archive of a graph",
            text="NumPy archive with node_features, node_labels, edges and masks",
            hint="save node_features, node_labels and edges with numpy.savez",
            module="xnq_dist.convert.heterophilous",
        ),
        GraphFormat(
            name="pyg",
            title="a complete file of torch.save with one graph",
            text="PyTorch Geometric Data, or a dict of tensors, saved by torch.save",
            hint=(
                "save x, y and edge_index again: torch.save({'x': data.x, 'y': "
                "data.y, 'edge_index': data.edge_index}, 'plain.pt')"
            ),
            module="xnq_dist.convert.pyg",
        ),
        GraphFormat(
            name="graphml",
            title="a GraphML file that igraph reads",
            text="GraphML, with attributes of nodes and the weight of edges",
            hint="save or download it again",
            module="xnq_dist.convert.graphml",
        ),
        GraphFormat(
            name="node-link",
            title="node-link JSON",
            text="JSON with lists of nodes and of links or edges (networkx, D3)",
            hint="write it with networkx.node_link_data",
            module="xnq_dist.convert.node_link",
        ),
        GraphFormat(
            name="metis",
            title="a METIS graph file",
            text="METIS graph file (.graph, .metis)",
            hint="check it with METIS's graphchk",
            module="xnq_dist.convert.metis",
        ),
        GraphFormat(
            name="edge-list",
            title="an edge list",
            text=(
                "text with an edge in each line, as in SNAP and KONECT (#, % comments)"
            ),
            hint="write the two node ids of an edge in each line",
            module="xnq_dist.convert.edge_list",
        ),
    ),
)


@dataclass(frozen=True)
class Converted:
    """A graph as tables, in the memory of one process."""

    nodes: pa.Table
    """``node_id``, one row per node, and what the file has on nodes: ``features``,
    ``label`` or columns with the file's names."""
    edges: pa.Table
    """``src``, ``dst`` and ``weight`` where the file has weights."""
    directed: bool | None
    """Whether edges have a direction; None: the file does not say so."""
    splits: pa.Table | None = None
    """``node_id``, ``fold`` and ``role``, if the file has masks."""
    notes: tuple[str, ...] = ()
    """What was decided and left out, for the user."""
