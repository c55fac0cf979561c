"""A graph as its public files hold it, and the few steps all forms share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xnq_dist.core.errors import InputError

__all__ = ["RawGraph", "both_ways", "checked_edges", "distinct", "whole_labels"]


@dataclass(frozen=True, eq=False)
class RawGraph:
    """What is read from a graph's files; node ids are 0 to N - 1.

    All of it is in the memory of one process: the paper's largest has 0.4 million
    nodes and a million edges.
    """

    labels: NDArray[np.int64]
    """-1 is unlabelled, shape (N,)."""
    features: NDArray[np.float32]
    """Shape (N, F)."""
    edges: NDArray[np.int64]
    """Source and target of each directed row, shape (M, 2)."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was done, for the graph's record."""


def whole_labels(values: ArrayLike, nodes: int, file: Path) -> NDArray[np.int64]:
    """Labels as whole numbers; what is below 0 counts as class 0, as in the paper.

    Raises
    ------
    InputError
        When there is not one whole number a node.
    """
    given = np.asarray(values).reshape(-1)
    if len(given) != nodes:
        raise InputError(
            f"{file} has {len(given)} labels for {nodes} nodes: fetch it again"
        )
    if not np.issubdtype(given.dtype, np.number) and given.dtype != np.bool_:
        raise InputError(f"{file}: labels are of type {given.dtype}, not numbers")
    labels = given.astype(np.int64)
    if not np.array_equal(labels, given):
        raise InputError(f"{file}: labels are not whole numbers")
    return np.maximum(labels, 0)


def checked_edges(pairs: ArrayLike, nodes: int, file: Path) -> NDArray[np.int64]:
    """Pairs of node ids, shape (M, 2).

    Raises
    ------
    InputError
        For another shape, or ids that are not 0 to N - 1.
    """
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise InputError(
            f"{file}: edges have shape {given.shape} and type {given.dtype}, not two "
            "whole numbers a row"
        )
    edges = given.astype(np.int64)
    bad = np.flatnonzero(((edges < 0) | (edges >= nodes)).any(axis=1))
    if len(bad):
        raise InputError(
            f"{file}: edge {tuple(edges[bad[0]].tolist())} (row {bad[0] + 1}) names a "
            f"node outside 0 to {nodes - 1}"
        )
    return edges


def distinct(
    edges: NDArray[np.int64], nodes: int, by: int = 0, loops: bool = True
) -> NDArray[np.int64]:
    """Each directed edge once, sorted by source (0) or target (1) first.

    Without `loops` edges v -> v are left out.
    """
    if not loops:
        edges = edges[edges[:, 0] != edges[:, 1]]
    keys = np.unique(edges[:, by] * nodes + edges[:, 1 - by])
    first, second = np.divmod(keys, nodes)
    return np.stack([first, second] if by == 0 else [second, first], axis=1)


def both_ways(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Every edge and its reverse once, sorted by source and target."""
    return distinct(np.concatenate([edges, edges[:, ::-1]]), nodes)
