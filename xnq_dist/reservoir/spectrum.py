"""Spectrum of the normalised adjacency, for graphs with a symmetric adjacency.

Left singular vectors times their singular values, by block power iteration. The vectors
are in files, one of each partition, which products read in blocks of rows. Results do
not depend on the partitioning.

References
----------
N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM
Review 53, 2011 (block power iteration and Rayleigh-Ritz).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32
from xnq_dist.core.products import product
from xnq_dist.core.random_bits import Purpose, mixed_bits
from xnq_dist.core.store import FileRecord, Manifest, Stage
from xnq_dist.core.threads import ahead, one_blas_thread
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.propagation import AllNodes, Blocks
from xnq_dist.reservoir.states import Start

__all__ = [
    "DOUBLE_ROUNDS",
    "EXTRA",
    "SPARE",
    "SPECTRUM",
    "Vectors",
    "find_spectrum",
    "symmetric_eigen",
    "walk_step",
]

SPECTRUM, SPARE = 64, 16
"""Number of singular vectors that are kept, and of additional ones for convergence.

With 128 instead of 64 the log-loss of unlabelled nodes was 1.000 and .998 times as
large (nine tasks, 60 and 6 % labelled; .999 without Cora, the family with the largest
difference), for a quarter of the embedding's time. Without features it was .991 and
.995 times as large (eight tasks), so there are twice as many then (`descriptors`).
"""
DOUBLE_ROUNDS = 4
"""Orthogonalisations, each after two products with the adjacency."""
EXTRA = 2
"""Columns in addition to the vectors: ones, which sum up the degree, and the degree."""
ROWS = 1 << 14
"""Rows of vectors that are read at a time, while those before are processed."""
TINY = 1e-12


@dataclass(frozen=True)
class Vectors:
    """The vectors V of all nodes; those of the iteration are Y = D^1/2 V."""

    where: Stage
    files: Sequence[FileRecord]
    """One of each partition: the columns of V, followed by those of `EXTRA`."""

    def blocks(
        self, number: int, rows: int = ROWS
    ) -> Iterator[tuple[Floats32, Floats32]]:
        """Blocks of a partition's rows: V, and the degree, (m, width) and (m, 1)."""
        for block in ahead(self.where.row_blocks(self.files[number], "values", rows)):
            yield np.ascontiguousarray(block[:, :-EXTRA]), block[:, -1:]


def find_spectrum(nodes: AllNodes, width: int, seed: int) -> tuple[Vectors, Floats32]:
    """Vectors, and the matrix that turns them to the spectrum of a symmetric adjacency.

    Singular vectors times singular values are Y times the matrix.

    Parameters
    ----------
    width
        Number of singular vectors.
    seed
        Seed of the initial vectors.
    """
    every = min(width + SPARE, nodes.graph.facts["n_nodes"] // 2)
    vectors = Vectors(nodes.attempt, [])
    start: Start = partial(_signs, nodes.graph, seed, every)

    def walk(stem: str, *keep: int) -> list[Vectors]:
        """Vectors after some rounds; those that `start` read are removed."""
        found = nodes.rounds(start, walk_step, keep, nodes.attempt, stem)
        remove(vectors)
        return [Vectors(nodes.attempt, found[turn]) for turn in keep]

    def remove(vectors: Vectors) -> None:
        for record in vectors.files:
            nodes.attempt.delete(record.name)

    for turn in range(DOUBLE_ROUNDS):
        [vectors] = walk(f"power-{turn}", 2)
        matrix = _orthonormal(nodes.products(partial(_blocks, [vectors])))
        start = partial(_turned, vectors, matrix, nodes.threads)
    # Keep Q and S Q: their product Q' S Q gives the Ritz values.
    vectors, images = walk("ritz", 0, 1)
    products = nodes.products(partial(_blocks, [vectors, images]))
    values, turned = symmetric_eigen(products)
    remove(images)
    order = np.argsort(-np.abs(values), kind="stable")[:width]
    return vectors, (turned[:, order] * np.abs(values[order])).astype(np.float32)


def _blocks(sides: Sequence[Vectors], number: int) -> Blocks:
    for block in zip(*(side.blocks(number) for side in sides), strict=True):
        degree = block[0][1][:, 0]
        # Factors of the rows of V in Y.
        yield [values for values, _ in block], np.sqrt(degree.astype(np.float64))


def _orthonormal(gram: Floats) -> Floats32:
    """The matrix that makes vectors orthonormal, from their Gram matrix."""
    size = np.sqrt(np.maximum(np.diag(gram), TINY))
    scaled = gram / np.outer(size, size)
    # Sums are rounded: keep the matrix definite for almost equal vectors.
    values, vectors = symmetric_eigen(scaled)
    root = vectors / np.sqrt(np.maximum(values, 1e-7 * values.max()))
    matrix: Floats32 = ((root @ vectors.T) / size[:, None]).astype(np.float32)
    return matrix


def symmetric_eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Ascending eigenvalues and vectors of a matrix, symmetric up to rounding."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values, vectors


def _signs(graph: Manifest, seed: int, width: int, number: int) -> Floats32:
    """Random signs by canonical index, shape (n_owned, width + `EXTRA`)."""
    index = load_nodes(graph, number, ["index"])["index"].to_numpy()
    words = [
        mixed_bits(index, seed, Purpose.FIRST_VECTORS, word)
        for word in range(-(-width // 64))
    ]
    octets = np.stack(words, axis=1).astype("<u8").view(np.uint8)
    out = np.zeros((len(index), width + EXTRA), np.float32)
    out[:, :-EXTRA] = np.unpackbits(octets, 1, width, "little")
    out *= 2
    out -= 1
    out[:, -2:] = 1.0, 0.0
    return out


def _turned(vectors: Vectors, turn: Floats32, threads: int, number: int) -> Floats32:
    """Vectors of an earlier round times a small matrix, as `_signs`."""
    rows = vectors.files[number].rows
    out, first = np.empty((rows, len(turn) + EXTRA), np.float32), 0
    for values, degree in vectors.blocks(number):
        block = out[first : first + len(values)]
        block[:, :-EXTRA] = product(values, turn, threads)
        block[:, -2], block[:, -1] = 1.0, degree[:, 0]
        first += len(values)
    return out


def walk_step(number: int, turn: int, values: Floats32, sums: Floats32) -> Floats32:
    """A step of the random walk: means, ones and degrees, in place of the sums.

    It maps V as S = D^-1/2 A D^-1/2 maps Y = D^1/2 V.
    """
    degree = sums[:, -2].copy()
    some = degree > 0
    np.divide(sums, degree[:, None], out=sums, where=some[:, None])
    sums[~some] = 0.0
    sums[:, -2], sums[:, -1] = 1.0, degree
    return sums
