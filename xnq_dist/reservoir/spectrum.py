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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.blocks import one_blas_thread
from xnq_dist.core.products import product
from xnq_dist.core.random_bits import Purpose, mixed_bits, stream_key
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.core.waiting import gather, result
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.layout import load_nodes
from xnq_dist.reservoir.exact_sums import column_peaks, integer_products, restored

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "DOUBLE_ROUNDS",
    "EXTRA",
    "SPARE",
    "SPECTRUM",
    "Rounds",
    "Spectrum",
    "added",
    "find_spectrum",
    "symmetric_eigen",
    "walk_step",
]

Array = NDArray[np.float32]
Rounds = Callable[..., dict[int, list[FileRecord]]]
"""`propagate` of a run: start, step, rounds, attempt, stem and kept rounds."""

SPECTRUM, SPARE = 128, 8
"""Number of singular vectors that are kept, and of additional ones for convergence."""
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
    files: tuple[FileRecord, ...]
    """One of each partition: the columns of V, followed by those of `EXTRA`."""

    def blocks(self, number: int, rows: int = ROWS) -> Iterator[tuple[Array, Array]]:
        """Blocks of a partition's rows: V, and the degree, (m, width) and (m, 1)."""
        for block in ahead(self.where.row_blocks(self.files[number], "values", rows)):
            yield np.ascontiguousarray(block[:, :-EXTRA]), block[:, -1:]


@dataclass(frozen=True)
class Spectrum:
    """The vectors, and the matrix that turns them to the spectrum."""

    vectors: Vectors
    turn: FileRecord

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """All files."""
        return *self.vectors.files, self.turn

    def blocks(self, number: int, rows: int, threads: int) -> Iterator[Array]:
        """Blocks of a partition's rows: singular vectors times singular values."""
        turn = self.vectors.where.read_arrays(self.turn)["matrix"]
        for values, degree in self.vectors.blocks(number, rows):
            block: Array = product(values, turn, threads)
            block *= np.sqrt(degree)
            yield block


def find_spectrum(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    rounds: Rounds,
    width: int,
    seed: int,
    threads: int,
) -> Spectrum:
    """The spectrum of a graph with a symmetric adjacency.

    Parameters
    ----------
    graph, manifest
        The stage ``graph``.
    attempt
        Writes the files of the vectors.
    rounds
        Runs rounds of sums over neighbours; see `propagate`.
    width
        Number of singular vectors.
    seed
        Seed of the initial vectors.
    threads
        Threads of a partition's task.
    """
    n_nodes, where = int(manifest.facts["n_nodes"]), Stage(attempt.folder, "spectrum")
    every = width + SPARE if n_nodes >= 2 * (width + SPARE) else width

    def walk(start: Any, turns: int, stem: str, keep: Sequence[int]) -> list[Vectors]:
        found = rounds(start, walk_step, turns, attempt, stem, keep)
        return [Vectors(where, tuple(found[turn])) for turn in keep]

    def remove(*records: FileRecord) -> None:
        for record in records:
            attempt.folder.delete(record.name)

    start: Any = _SignStart(graph, manifest, seed, every)
    before: tuple[FileRecord, ...] = ()
    for turn in range(DOUBLE_ROUNDS):
        [vectors] = walk(start, 2, f"power-{turn}", (2,))
        remove(*before)
        matrix = _orthonormal(_products(client, threads, vectors))
        record = attempt.write_arrays(f"turn-{turn}", matrix=matrix)
        start = _TurnStart(vectors, record, threads)
        before = *vectors.files, record
    # Keep Q and S Q: their product Q' S Q gives the Ritz values.
    vectors, images = walk(start, 1, "ritz", (0, 1))
    remove(*before)
    values, turned = symmetric_eigen(_products(client, threads, vectors, images))
    remove(*images.files)
    order = np.argsort(-np.abs(values), kind="stable")[:width]
    ritz = (turned[:, order] * np.abs(values[order])).astype(np.float32)
    return Spectrum(vectors, attempt.write_arrays("ritz-turn", matrix=ritz))


def _products(client: Client, threads: int, *sides: Vectors) -> Floats:
    """``Y.T @ Z`` over all nodes; with one side, Z is Y."""
    jobs = [(sides, number, threads) for number in range(len(sides[0].files))]
    tasks = [client.submit(_peaks, *job, pure=False) for job in jobs]
    peaks = np.max(gather(client, tasks), axis=0)
    sums = [client.submit(_rounded_products, peaks, *job, pure=False) for job in jobs]
    return restored(added(client, sums), peaks[0], peaks[-1])


def added(client: Client, futures: list[Any]) -> NDArray[np.int64]:
    """The sum of the futures, computed on the workers to save client memory."""
    total = futures[0]
    for future in futures[1:]:
        total = client.submit(np.add, total, future, pure=False)
    sums: NDArray[np.int64] = result(client, total)
    return sums


def _orthonormal(gram: Floats) -> Array:
    """The matrix that makes vectors orthonormal, from their Gram matrix."""
    size = np.sqrt(np.maximum(np.diag(gram), TINY))
    scaled = gram / np.outer(size, size)
    # Sums are rounded: keep the matrix definite for almost equal vectors.
    values, vectors = symmetric_eigen(scaled)
    root = vectors / np.sqrt(np.maximum(values, 1e-7 * values.max()))
    matrix: Array = ((root @ vectors.T) / size[:, None]).astype(np.float32)
    return matrix


def symmetric_eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Ascending eigenvalues and vectors of a matrix, symmetric up to rounding."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values, vectors


def _factors(degree: Array) -> Floats:
    """Factors of the rows of V in Y, shape (m,)."""
    return np.sqrt(degree[:, 0].astype(np.float64))


def _peaks(sides: Sequence[Vectors], number: int, threads: int) -> list[Floats]:
    return [
        reduce(
            np.maximum,
            (
                column_peaks(values, _factors(degree), threads)
                for values, degree in side.blocks(number)
            ),
        )
        for side in sides
    ]


def _rounded_products(
    peaks: Sequence[Floats], sides: Sequence[Vectors], number: int, threads: int
) -> NDArray[np.int64]:
    total: Any = 0
    for block in zip(*(side.blocks(number) for side in sides), strict=True):
        (values, degree), others = block[0], block[-1][0]
        right = others if len(sides) > 1 else None
        given = right, peaks[-1], _factors(degree), threads
        total = total + integer_products(values, peaks[0], *given)
    return np.asarray(total)


@dataclass(frozen=True)
class _SignStart:
    """Random signs by canonical index."""

    graph: Stage
    manifest: Manifest
    seed: int
    width: int

    def __call__(self, number: int) -> Array:
        """The start vectors, shape (n_owned, width + `EXTRA`)."""
        nodes = load_nodes(self.graph, self.manifest, number, ["index"])
        index = nodes["index"].to_numpy()
        out = np.zeros((len(index), self.width + EXTRA), np.float32)
        for first in range(0, self.width, 64):
            key = stream_key(self.seed, Purpose.FIRST_VECTORS, first // 64)
            octets = mixed_bits(index, key).astype("<u8").view(np.uint8)
            columns = out[:, first : min(first + 64, self.width)]
            octets = octets.reshape(len(index), 8)
            columns += np.unpackbits(octets, 1, columns.shape[1], "little")
        out *= 2
        out -= 1
        out[:, -2:] = 1.0, 0.0
        return out


@dataclass(frozen=True)
class _TurnStart:
    """Vectors of an earlier round times a small matrix."""

    vectors: Vectors
    matrix: FileRecord
    threads: int

    def __call__(self, number: int) -> Array:
        """The start vectors, shape (n_owned, width + `EXTRA`)."""
        turn = self.vectors.where.read_arrays(self.matrix)["matrix"]
        rows = self.vectors.files[number].rows
        out, first = np.empty((rows, len(turn) + EXTRA), np.float32), 0
        for values, degree in self.vectors.blocks(number):
            block = out[first : first + len(values)]
            block[:, :-EXTRA] = product(values, turn, self.threads)
            block[:, -2], block[:, -1] = 1.0, degree[:, 0]
            first += len(values)
        return out


def walk_step(number: int, turn: int, values: Array, sums: Array) -> Array:
    """A step of the random walk: means, ones and degrees, in place of the sums.

    It maps V as S = D^-1/2 A D^-1/2 maps Y = D^1/2 V.
    """
    degree = sums[:, -2].copy()
    some = degree > 0
    np.divide(sums, degree[:, None], out=sums, where=some[:, None])
    sums[~some] = 0.0
    sums[:, -2], sums[:, -1] = 1.0, degree
    return sums
