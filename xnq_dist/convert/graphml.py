"""GraphML, read by igraph."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import igraph
import numpy as np
import pyarrow as pa

from xnq_dist.convert import Converted
from xnq_dist.convert.attributes import attribute_tables
from xnq_dist.convert.edge_list import ids_of
from xnq_dist.convert.reading import check_memory

__all__ = ["matches", "read"]


BYTES = 4
"""Memory for each byte of a file, at most."""
WHOLE = 2.0**53
"""Up to here a float64 holds every whole number."""


def matches(path: Path, head: bytes) -> bool:
    """XML with the element graphml."""
    return b"<graphml" in head


def read(path: Path) -> Converted:
    """Read nodes with their attributes, edges and their weight."""
    check_memory(path, BYTES * path.stat().st_size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            graph = igraph.Graph.Read_GraphML(str(path))
        except igraph.InternalError as error:
            raise ValueError(str(error)) from error
    if not graph.vcount():
        raise ValueError("it has no nodes")
    names = graph.vs.attributes()
    values = {name: _values(graph.vs[name]) for name in names if name != "id"}
    texts = graph.vs["id"] if "id" in names else map(str, range(graph.vcount()))
    ids = ids_of(pa.chunked_array([pa.array(list(texts), pa.string())]))
    ids = ids.combine_chunks()
    edges = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2)
    ends = (ids.take(pa.array(edges[:, 0])), ids.take(pa.array(edges[:, 1])))
    of_edges = graph.es.attributes()
    weights = graph.es["weight"] if "weight" in of_edges else None
    left = [
        *(f"{name} of the edges" for name in of_edges if name not in ("weight", "id")),
        *(str(warning.message).partition(" Location")[0] for warning in caught[:3]),
    ]
    return attribute_tables(ids, values, ends, weights, graph.is_directed(), left)


def _values(values: list[Any]) -> list[Any]:
    """Values of an attribute: igraph has empty text and NaN where one is missing."""
    if all(isinstance(value, float) for value in values):
        numbers = np.array(values)
        known = numbers[~np.isnan(numbers)]
        if (known == np.floor(known)).all() and (abs(known) <= WHOLE).all():
            return [None if value != value else int(value) for value in values]
    return [None if value == "" else value for value in values]
