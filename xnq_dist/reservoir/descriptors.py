"""Node descriptors in addition to the reservoir states: features and spectrum.

Two blocks of columns that the readout of xnq+ uses next to the states. ``features``:
the standardised node features (leading principal components if there are many), their
means over neighbours at one and two hops, and log degree with its means. ``spectrum``:
that of the normalised adjacency, see `spectrum`. They stay in files and
are put together while the embeddings are written, a block of rows at a time.
Results are sums over neighbours or nodes that do not depend on the partitioning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32
from xnq_dist.core.cluster import threads_each
from xnq_dist.core.products import product
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import FileRecord, Manifest, Stage
from xnq_dist.graph.layout import load_partition
from xnq_dist.reservoir.context import feature_matrix
from xnq_dist.reservoir.propagation import AllNodes, Blocks, propagate
from xnq_dist.reservoir.spectrum import (
    SPECTRUM,
    Vectors,
    find_spectrum,
    symmetric_eigen,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["HOPS", "Descriptors", "describe_nodes", "mean_step", "widths"]

HOPS = 2
"""Rounds of means over neighbours."""
RAW, COMPONENTS = 64, 128
"""Up to `RAW` features are used directly; of more, `COMPONENTS` leading components."""
SKETCHED = 2048
"""With more features, components are those of a random-sign sketch of half the size."""
DEGREE_SCALE = 0.3
"""Scale of the standardised log degree, relative to features of scale 1."""
ROWS = 1 << 15
"""Rows of features in memory at a time."""
TINY = 1e-12


def widths(n_nodes: int, n_features: int, symmetric: bool) -> tuple[int, int]:
    """Columns of both blocks for a graph of this size."""
    each_hop = min(n_features, COMPONENTS) + 1
    # With one feature (the constant, if there is none), links are the information.
    vectors = SPECTRUM if n_features > 1 else 2 * SPECTRUM
    spectrum = min(vectors, n_nodes // 4) if symmetric else 0
    return (HOPS + 1) * each_hop, spectrum


@dataclass(frozen=True)
class Descriptors:
    """Both blocks of every node, in files; small and picklable."""

    where: Stage
    """Its folder is not needed once the embeddings are written."""
    widths: tuple[int, int]
    """Columns of both blocks."""
    hops: Sequence[Sequence[FileRecord]]
    """Of each partition the features and their means, and a column of ones."""
    spectrum: tuple[Vectors, Floats32] | None
    """The vectors, and the small matrix that turns them to the spectrum."""
    threads: int
    """Threads of a partition's task."""

    def blocks(self, number: int, rows: int) -> Iterator[Floats32]:
        """A partition's descriptors in blocks of up to `rows` rows."""
        parts: list[Iterator[Floats32]] = [
            (values[:, :-1] for values in self.where.row_blocks(file, "values", rows))
            for file in self.hops[number]
        ]
        if self.spectrum is not None:
            vectors, turn = self.spectrum
            parts.append(
                product(values, turn, self.threads) * np.sqrt(degree)
                for values, degree in vectors.blocks(number, rows)
            )
        for block in zip(*parts, strict=True):
            yield np.concatenate(block, axis=1)


def describe_nodes(
    client: Client,
    graph: Manifest,
    seed: int,
    where: Stage,
    backend: str = "cpu",
    progress: Progress = silent,
) -> Descriptors:
    """Compute the descriptors of every node.

    Parameters
    ----------
    graph
        The manifest of the stage.
    seed
        Seed of the initial vectors of the power iteration.
    where
        A new folder for the files.
    backend
        ``cpu`` or ``gpu`` for sums over neighbours; both give the same bits.
    """
    facts = graph.facts
    sizes = widths(facts["n_nodes"], facts["n_features"], facts["symmetric"])
    threads = threads_each(client, int(facts["partitions"]))
    given = client, graph
    rounds = partial(propagate, *given, backend=backend, progress=progress)
    nodes = AllNodes(*given, where.begin(), rounds, threads)
    hops = _features(nodes)
    spectrum = find_spectrum(nodes, sizes[1], seed) if sizes[1] else None
    return Descriptors(where, sizes, hops, spectrum, threads)


def _features(nodes: AllNodes) -> list[tuple[FileRecord, ...]]:
    """Files of each partition: the features, and their means at each later hop."""
    given = nodes.graph, nodes.threads
    products = nodes.products(partial(_raw, *given))
    loadings = _loadings(products, int(nodes.graph.facts["n_nodes"]))
    start = partial(_standardised, loadings, *given)
    kept = range(HOPS + 1)
    hops = nodes.rounds(start, mean_step, kept, nodes.attempt, "hops")
    return list(zip(*hops.values(), strict=True))


def _raw(graph: Manifest, threads: int, number: int) -> Blocks:
    """Blocks of rows: features, log degree, ones; (m, width + 2). At least one."""
    degree = np.log1p(np.diff(load_partition(graph, number).indptr))
    features, signs = feature_matrix(graph, number), None
    if features.shape[1] > SKETCHED:
        random = np.random.Generator(np.random.Philox(SKETCHED))
        signs = random.choice([-1.0, 1.0], (features.shape[1], SKETCHED // 2))
    for first in range(0, max(len(degree), 1), ROWS):
        some = slice(first, first + ROWS)
        x, degrees = features[some].astype(np.float64), degree[some, None]
        if signs is not None:
            x = product(x, signs, threads)
        yield [np.concatenate([x, degrees, np.ones_like(degrees)], axis=1)], None


Loadings = tuple[Floats, Floats, Floats]
"""Middle and spread of features and log degree, shape (width + 1,), and the components
of the standardised features, shape (width, kept)."""


def _loadings(products: Floats, n_nodes: int) -> Loadings:
    """What maps raw columns to standardised columns or their components.

    `products` are those of features, log degree and ones, shape (width + 2, width + 2).
    """
    width = len(products) - 2
    middle = products[:-1, -1] / n_nodes
    covariance = products[:-1, :-1] / n_nodes - np.outer(middle, middle)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    # A constant column becomes 0.
    spread[spread <= 1e-6 * np.maximum(np.abs(middle), TINY)] = np.inf
    components = np.eye(width)
    if width > RAW:
        # Many columns have a common kind, such as words or a decomposition, in which
        # variance is relevance: they share a scale.
        spread[:-1] = np.sqrt(np.mean(np.diag(covariance)[:-1])) or np.inf
        _, vectors = symmetric_eigen(covariance[:-1, :-1] / spread[0] ** 2)
        components = vectors[:, ::-1][:, :COMPONENTS].copy()
    return middle, spread, components


def _standardised(
    loadings: Loadings, graph: Manifest, threads: int, number: int
) -> Floats32:
    """Standardised features and log degree, and a column of ones to sum up weights.

    The start values of the means, shape (n_owned, features + 2).
    """
    middle, spread, components = loadings
    first, last = graph.facts["offsets"][number : number + 2]
    out, at = np.empty((last - first, components.shape[1] + 2), np.float32), 0
    for [values], _ in _raw(graph, threads, number):
        standard = (values[:, :-1] - middle) / spread
        x = standard[:, :-1]
        if len(components) > RAW:
            x = product(np.ascontiguousarray(x), components, threads)
        rows = out[at : at + len(values)]
        rows[:, :-2], rows[:, -2] = x, DEGREE_SCALE * standard[:, -1]
        rows[:, -1] = 1.0
        at += len(values)
    return out


def mean_step(number: int, turn: int, values: Floats32, sums: Floats32) -> Floats32:
    """Weighted means of in-neighbours, in place of the sums; the last column is ones.

    A node without in-neighbours keeps its values.
    """
    weight = sums[:, -1:].copy()
    alone = weight[:, 0] <= 0
    np.divide(sums, weight, out=sums, where=weight > 0)
    sums[alone] = values[alone]
    return sums
