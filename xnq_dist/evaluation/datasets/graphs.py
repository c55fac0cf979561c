"""A graph read from its public files, and steps that all file formats share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xnq_dist.core.errors import InputError

__all__ = ["RawGraph", "both_ways", "distinct", "integer_labels"]


@dataclass(frozen=True, eq=False)
class RawGraph:
    """A graph with node ids 0 to N - 1.

    It is in the memory of one process: the largest graph of the paper has 0.4 million
    nodes and a million edges.
    """

    labels: NDArray[np.int64]
    """Class codes, -1 if unlabelled, shape (N,)."""
    features: NDArray[np.float32]
    """Shape (N, F)."""
    edges: NDArray[np.int64]
    """Source and target of each directed row, shape (M, 2)."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Description of the conversion, for meta.json."""


def integer_labels(values: ArrayLike, nodes: int, file: Path) -> NDArray[np.int64]:
    """Labels as integers; values below 0 become class 0, as in the paper.

    Raises
    ------
    InputError
        When there is not one integer per node.
    """
    array = np.asarray(values).reshape(-1)
    if len(array) != nodes:
        raise InputError(
            f"{file} has {len(array)} labels for {nodes} nodes: download it again"
        )
    if not np.issubdtype(array.dtype, np.number) and array.dtype != np.bool_:
        raise InputError(
            f"{file}: labels are of type {array.dtype}, not numbers: download it again"
        )
    labels = array.astype(np.int64)
    if not np.array_equal(labels, array):
        raise InputError(f"{file}: labels are not integers: download it again")
    return np.maximum(labels, 0)


def distinct(
    edges: NDArray[np.int64], nodes: int, by: int = 0, loops: bool = True
) -> NDArray[np.int64]:
    """Each directed edge once, sorted by source (0) or target (1) first.

    Without `loops`, edges v -> v are removed.
    """
    if not loops:
        edges = edges[edges[:, 0] != edges[:, 1]]
    keys = np.unique(edges[:, by] * nodes + edges[:, 1 - by])
    first, second = np.divmod(keys, nodes)
    return np.stack([first, second] if by == 0 else [second, first], axis=1)


def both_ways(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Every edge and its reverse once, sorted by source and target."""
    return distinct(np.concatenate([edges, edges[:, ::-1]]), nodes)
