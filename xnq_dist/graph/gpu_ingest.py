"""Parquet to adjacency with cuDF: what `edges.ingest` does, on one GPU, in memory.

For graphs whose edges fit a device several times over. The rules of `input` hold as on
the CPU; reading, joining and sorting are the data frames', and pandas can take cuDF's
place (the words used here are both's).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from xnq_dist.backend import data_frames
from xnq_dist.config import Settings
from xnq_dist.errors import InputError
from xnq_dist.graph.csr import NO_WEIGHTS, ArrayCsr

__all__ = ["read_csr"]


def read_csr(
    nodes: str, edges: str, settings: Settings, frames: ModuleType | None = None
) -> ArrayCsr:
    """The adjacency in canonical order (nodes by ascending id).

    Parameters
    ----------
    nodes, edges
        Parquet files or folders.
    settings
        Names of columns (``columns``) and the rules of ``input``.
    frames
        The data frames; None: cuDF.

    Raises
    ------
    InputError
        When an id is missing or there twice, an edge names an unknown node and
        ``input.unknown_nodes = error``, or dropped duplicates differ in weight.
    SettingsError
        When cuDF or a device is missing.
    """
    frames = data_frames() if frames is None else frames
    columns, rules = settings.columns, settings.input
    index = _index(frames, nodes, columns.node_id)
    table = frames.read_parquet(edges)
    given = columns.weight in table.columns
    wanted = [columns.src, columns.dst, *([columns.weight] if given else [])]
    table = table[wanted].rename(
        columns={columns.src: "src", columns.dst: "dst", columns.weight: "weight"}
    )
    if not given:
        table["weight"] = 1.0
    table["weight"] = table["weight"].astype("float64")
    whole = len(table)
    for end in ("src", "dst"):
        renamed = index.rename(columns={"id": end, "index": f"{end}_index"})
        table = table.merge(renamed, on=end, how="inner")
    if len(table) < whole and rules.unknown_nodes == "error":
        raise InputError(
            f"{whole - len(table)} edges of {edges} name nodes that are not in "
            f"{nodes}: add them, or set input.unknown_nodes = drop"
        )
    if rules.self_loops == "drop":
        table = table[table["src_index"] != table["dst_index"]]
    count = len(index)
    forward = _once(table, "src_index", "dst_index", count, settings, edges)
    # A graph without weights has none either, unless some edge is there twice.
    weighted = given or (rules.duplicates == "sum" and len(forward) < len(table))
    if not rules.directed:
        back = _once(table, "dst_index", "src_index", count, settings, edges)
        lacking = back[~back["key"].isin(forward["key"])]
        forward = frames.concat([forward, lacking])
    forward = forward.sort_values("key")
    keys = _numpy(forward["key"])
    targets, sources = keys // count, keys % count
    degrees = np.bincount(targets, minlength=count)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    weights = _numpy(forward["weight"]).astype(np.float32) if weighted else NO_WEIGHTS
    return ArrayCsr(indptr, sources.astype(np.int32), weights)


def _index(frames: ModuleType, nodes: str, name: str) -> Any:
    """Columns ``id`` and ``index``: the canonical index of every node."""
    ids = frames.read_parquet(nodes, columns=[name]).rename(columns={name: "id"})
    if int(ids["id"].isna().sum()) or int(ids["id"].nunique()) != len(ids):
        raise InputError(
            f"column {name} of {nodes} must hold every id once: correct it"
        )
    ids = ids.sort_values("id").reset_index(drop=True)
    ids["index"] = np.arange(len(ids), dtype=np.int64)
    return ids


def _once(
    table: Any, source: str, target: str, count: int, settings: Settings, edges: str
) -> Any:
    """Columns ``key`` (target times N plus source) and ``weight``, every key once."""
    keyed = table[["weight"]].copy()
    keyed["key"] = table[target] * count + table[source]
    groups = keyed.groupby("key")["weight"]
    if settings.input.duplicates == "sum":
        return groups.sum().reset_index()
    least = groups.min().reset_index()
    if bool((groups.max().reset_index()["weight"] != least["weight"]).any()):
        raise InputError(
            f"edges of {edges} are there twice with different weights: set "
            "input.duplicates = sum"
        )
    return least


def _numpy(column: Any) -> Any:
    return column.to_numpy()
