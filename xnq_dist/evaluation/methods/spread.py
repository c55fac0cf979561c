"""Distribution of training labels to the workers: one file per partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.graph.layout import node_index
from xnq_dist.reservoir.propagation import load_values, propagate

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["NodeFiles", "OneHot", "node_files", "one_hot", "summed"]

Array = NDArray[np.float32]


@dataclass(frozen=True)
class NodeFiles:
    """Files of arrays by node, one per partition, which tasks read."""

    where: Stage
    """Stage with the folder of the files."""
    records: tuple[FileRecord, ...]
    """One file per partition."""

    def load(self, number: int) -> dict[str, NDArray[Any]]:
        """Read a partition's rows, in local order."""
        return self.where.read_arrays(self.records[number])


@contextmanager
def node_files(
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    stem: str,
    **arrays: NDArray[Any],
) -> Iterator[NodeFiles]:
    """Write arrays of shape (K, N, ...) by partition; delete the files afterwards.

    In the files nodes are the first axis: shape (n_owned, K, ...).
    """
    records = []
    for number, rows in enumerate(node_index(graph, manifest)):
        owned = {
            name: np.ascontiguousarray(np.swapaxes(values[:, rows], 0, 1))
            for name, values in arrays.items()
        }
        records.append(attempt.write_arrays(f"{stem}-{number:05d}", **owned))
    try:
        yield NodeFiles(Stage(attempt.folder, stem), tuple(records))
    finally:
        for record in records:
            attempt.folder.delete(record.name)


def one_hot(labels: NDArray[np.int32], n_classes: int) -> Array:
    """One-hot labels, zeros for -1, shape (..., C) for labels of shape (...)."""
    hot: NDArray[np.bool_] = labels[..., None] == np.arange(n_classes)
    return hot.astype(np.float32)


@dataclass(frozen=True)
class OneHot:
    """Training labels as K blocks of C columns; zeros for nodes without a label."""

    files: NodeFiles
    """Files with the array ``labels``."""
    n_classes: int

    def __call__(self, number: int) -> Array:
        """Values of a partition's nodes, shape (n_owned, K * C)."""
        labels = self.files.load(number)["labels"]
        return one_hot(labels, self.n_classes).reshape(len(labels), -1)


def summed(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    labels: NDArray[np.int32],
    n_classes: int,
    step: Callable[[int, int, Array, Array], Array],
) -> Array:
    """One neighbourhood sum of one-hot labels, without edge weights.

    Parameters
    ----------
    labels
        As in `votes`, shape (K, N).
    step
        Partition, round, one-hot labels and sums -> rows of the result.

    Returns
    -------
    Rows of `step` for all nodes, by canonical index.
    """
    with node_files(graph, manifest, attempt, "sum-labels", labels=labels) as files:
        start = OneHot(files, n_classes)
        kept = propagate(
            client, graph, manifest, start, step, 1, attempt, "sum", weighted=False
        )
    sums = load_values(Stage(attempt.folder, "sum"), kept[1], graph, manifest)
    for record in kept[1]:
        attempt.folder.delete(record.name)
    return sums
