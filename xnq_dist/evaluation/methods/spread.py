"""Training labels as the workers get them: one file a partition."""

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
    """Arrays by node, cut to the partitions: small and picklable, read by tasks."""

    where: Stage
    """Whose folder the files are in."""
    records: tuple[FileRecord, ...]
    """One file a partition."""

    def load(self, number: int) -> dict[str, NDArray[Any]]:
        """A partition's rows, in local order."""
        return self.where.read_arrays(self.records[number])


@contextmanager
def node_files(
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    stem: str,
    **arrays: NDArray[Any],
) -> Iterator[NodeFiles]:
    """Arrays of shape (K, N, ...), cut by node; the files are gone afterwards.

    In the files nodes come first: shape (n_owned, K, ...).
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
    """1 at a node's class, zeros for -1; shape (..., C) of labels (...)."""
    hot: NDArray[np.bool_] = labels[..., None] == np.arange(n_classes)
    return hot.astype(np.float32)


@dataclass(frozen=True)
class OneHot:
    """Training labels as values to sum: K blocks of C columns, zeros when hidden."""

    files: NodeFiles
    """With the array ``labels``."""
    n_classes: int

    def __call__(self, number: int) -> Array:
        """Shape (n_owned, K * C)."""
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
    """One neighbourhood sum of one-hot labels of shape (K, N), weights left out.

    Parameters
    ----------
    step
        Partition, round, one-hot labels and sums -> the rows to keep.
    """
    with node_files(graph, manifest, attempt, "sum-labels", labels=labels) as files:
        start = OneHot(files, n_classes)
        kept = propagate(
            client, graph, manifest, start, step, 1, attempt, "sum", weighted=False
        )
    found = load_values(Stage(attempt.folder, "sum"), kept[1], graph, manifest)
    for record in kept[1]:
        attempt.folder.delete(record.name)
    return found
