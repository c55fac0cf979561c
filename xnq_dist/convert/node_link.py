"""Node-link JSON of networkx and D3: lists of nodes and links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.convert import Converted
from xnq_dist.convert.attributes import attribute_tables
from xnq_dist.convert.reading import check_memory
from xnq_dist.core.errors import InputError

__all__ = ["matches", "read"]


BYTES = 12
"""Memory for each byte of a file, at most."""


def matches(path: Path, head: bytes) -> bool:
    """A JSON object that names nodes, links or edges."""
    named = any(name in head for name in (b'"nodes"', b'"links"', b'"edges"'))
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and named


def read(path: Path) -> Converted:
    """Read nodes with their attributes, links and their weight."""
    check_memory(path, BYTES * path.stat().st_size)
    content = json.loads(path.read_bytes())
    nodes = content["nodes"]
    links = content["links"] if "links" in content else content["edges"]
    if not nodes or not all(isinstance(row, dict) for row in [*nodes, *links]):
        raise ValueError("its nodes and links are not lists of objects")
    # Links of D3 before version 4 name places in the list of nodes.
    places = not any("id" in node for node in nodes)
    names = list(range(len(nodes))) if places else [node["id"] for node in nodes]
    ids = _ids(names, path)
    ends = tuple(
        _ends([link[end] for link in links], ids, end, path)
        for end in ("source", "target")
    )
    values = {
        name: [node.get(name) for node in nodes]
        for name in dict.fromkeys(name for node in nodes for name in node)
        if name != "id"
    }
    others = dict.fromkeys(name for link in links for name in link)
    weights = [link.get("weight") for link in links] if "weight" in others else None
    known = ("source", "target", "weight", "key", "id")
    left = [f"{name} of the links" for name in others if name not in known]
    directed = bool(content.get("directed", False))
    return attribute_tables(ids, values, (ends[0], ends[1]), weights, directed, left)


def _ids(names: list[Any], path: Path) -> pa.Array:
    kinds = {type(name) for name in names}
    if kinds not in ({int}, {str}):
        raise InputError(
            f"{path} has node ids of the types "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))}: write all as "
            "integers or all as text"
        )
    return pa.array(names)


def _ends(names: list[Any], ids: pa.Array, end: str, path: Path) -> pa.Array:
    found = pa.array(names, ids.type)
    unknown = np.flatnonzero(pc.invert(pc.is_in(found, ids)))
    if len(unknown):
        row = int(unknown[0])
        raise InputError(
            f"{path} has the {end} {names[row]!r} in link {row + 1:,}, which is no "
            "node: correct the link"
        )
    return found
