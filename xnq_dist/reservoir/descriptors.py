"""Node descriptors in addition to the reservoir states: features and spectrum.

Two blocks of columns that the readout of xnq+ uses next to the states. ``features``:
the standardised node features (leading principal components if there are many), their
means over neighbours at one and two hops, and log degree with its means. ``spectrum``:
left singular vectors of the normalised adjacency times their singular values, by block
power iteration; only for graphs with a symmetric adjacency. Results are sums over
neighbours or nodes that do not depend on the partitioning.

References
----------
N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM
Review 53, 2011 (block power iteration and Rayleigh-Ritz).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.blocks import for_each_block, one_blas_thread
from xnq_dist.core.cluster import threads_each
from xnq_dist.core.products import product
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.random_bits import Purpose, mixed_bits, stream_key
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.core.waiting import gather, result
from xnq_dist.graph.layout import load_nodes, load_partition
from xnq_dist.reservoir.exact_sums import column_peaks, integer_products, restored
from xnq_dist.reservoir.propagation import propagate

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["HOPS", "Widths", "describe_nodes", "read_descriptors", "widths"]

Array = NDArray[np.float32]

HOPS = 2
"""Rounds of means over neighbours."""
RAW, COMPONENTS = 64, 128
"""Up to `RAW` features are used directly; of more, `COMPONENTS` leading components."""
SKETCHED = 2048
"""With more features, components are those of a random-sign sketch of half the size."""
SPECTRUM, SPARE = 128, 8
"""Number of singular vectors that are kept, and of additional ones for convergence."""
DOUBLE_ROUNDS = 4
"""Orthogonalisations, each after two products with the adjacency."""
DEGREE_SCALE = 0.3
"""Scale of the standardised log degree, relative to features of scale 1."""
ROWS = 1 << 15
"""Rows of features in memory at a time."""
TURNED = 1 << 12
"""Rows that a thread turns at a time."""
TINY = 1e-12


@dataclass(frozen=True)
class Widths:
    """Columns of each block."""

    features: int
    spectrum: int

    @property
    def total(self) -> int:
        """Columns of both blocks."""
        return self.features + self.spectrum


def widths(n_nodes: int, n_features: int, symmetric: bool) -> Widths:
    """Widths of the blocks for a graph of this size."""
    each_hop = min(n_features, COMPONENTS) + 1
    spectrum = min(SPECTRUM, n_nodes // 4) if symmetric else 0
    return Widths((HOPS + 1) * each_hop, spectrum)


def describe_nodes(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    seed: int,
    attempt: Attempt,
    backend: str = "cpu",
    progress: Progress = silent,
    engine: str = "auto",
) -> tuple[list[FileRecord], Widths]:
    """Write the descriptors of every node, one file for each partition.

    Parameters
    ----------
    graph, manifest
        The stage ``graph``.
    seed
        Seed of the initial vectors of the power iteration.
    attempt
        Writes the files ``descriptors-<partition>``, read by `read_descriptors`.
    backend
        ``cpu`` or ``gpu`` for sums over neighbours; both give the same bits.
    engine
        ``exchange.engine``; all give the same bits.

    Returns
    -------
    tuple
        The files in partition order, and the widths of the blocks.
    """
    facts = manifest.facts
    sizes = widths(facts["n_nodes"], facts["n_features"], facts["symmetric"])
    where = Stage(attempt.folder, "descriptors")
    parts = range(len(facts["edges"]))
    threads = threads_each(client, len(parts))
    given = client, graph, manifest, where, attempt, backend, progress, engine
    work = _Work(*given, threads)
    hops = work.features()
    spectrum = work.spectrum(sizes.spectrum, seed) if sizes.spectrum else None
    files = gather(
        client,
        [
            client.submit(
                _write,
                where,
                [hops[turn][number] for turn in range(HOPS + 1)],
                None if spectrum is None else (spectrum[0][number], spectrum[1]),
                attempt,
                number,
                threads,
                pure=False,
            )
            for number in parts
        ],
    )
    used = [record for turn in hops.values() for record in turn]
    if spectrum is not None:
        used += [*spectrum[0], spectrum[1]]
    for record in used:
        attempt.folder.delete(record.name)
    return files, sizes


def read_descriptors(where: Stage, record: FileRecord) -> Array:
    """A partition's descriptors, features then spectrum, shape (n_owned, width)."""
    values: Array = where.read_arrays(record)["values"]
    return values


@dataclass(frozen=True)
class _Work:
    """Computes the blocks in rounds on the cluster."""

    client: Client
    graph: Stage
    manifest: Manifest
    where: Stage
    attempt: Attempt
    backend: str
    progress: Progress
    engine: str
    threads: int
    """Threads of a partition's task."""

    def _products(
        self, left: Sequence[FileRecord], right: Sequence[FileRecord] | None = None
    ) -> Floats:
        """``Y.T @ Z`` over all nodes, for the vectors in these files; None: Z is Y."""
        client, threads = self.client, self.threads
        sides = [left] if right is None else [left, right]
        jobs = [(self.where, *files, threads) for files in zip(*sides, strict=True)]
        tasks = [client.submit(_peaks, *job, pure=False) for job in jobs]
        peaks = np.max(gather(client, tasks), axis=0)
        sums = [client.submit(_products, peaks, *job, pure=False) for job in jobs]
        return restored(self._added(sums), peaks[0], peaks[-1])

    def _added(self, futures: list[Any]) -> NDArray[np.int64]:
        """The sum of the futures, computed on the workers to save client memory."""
        total = futures[0]
        for future in futures[1:]:
            total = self.client.submit(np.add, total, future, pure=False)
        added: NDArray[np.int64] = result(self.client, total)
        return added

    def features(self) -> dict[int, list[FileRecord]]:
        """Files of the features at hop 0, and of their means at each later hop."""
        client, facts = self.client, self.manifest.facts
        parts = range(len(facts["edges"]))
        raw = _Raw(self.graph, self.manifest, int(facts["n_features"]))

        def each(task: Any, *more: Any) -> list[Any]:
            return [client.submit(task, raw, p, *more, pure=False) for p in parts]

        peaks = np.max(gather(client, each(_raw_peaks)), axis=0)
        total = self._added(each(_raw_products, peaks))
        loads = _loadings(restored(total, peaks), raw.width, int(facts["n_nodes"]))
        record = self.attempt.write_arrays("loadings", **loads)
        start = _FeatureStart(raw, self.where, record)
        hops = self._rounds(start, _MeanStep(), HOPS, "hops", range(HOPS + 1))
        self.attempt.folder.delete(record.name)
        return hops

    def spectrum(self, width: int, seed: int) -> tuple[list[FileRecord], FileRecord]:
        """Files of orthonormal vectors, and the matrix that maps them to the block."""
        n_nodes = int(self.manifest.facts["n_nodes"])
        start: Any = _SignStart(self.graph, self.manifest, width + SPARE, seed)
        if n_nodes < 2 * (width + SPARE):
            start = _SignStart(self.graph, self.manifest, width, seed)
        before: list[FileRecord] = []
        for turn in range(DOUBLE_ROUNDS):
            files = self._walk(start, 2, f"power-{turn}")
            for record in before:
                self.attempt.folder.delete(record.name)
            turned = self._orthogonal(files, turn)
            start = _TurnStart(self.where, tuple(files), turned, self.threads)
            before = [*files, turned]
        # Keep Q and S Q: their product Q' S Q gives the Ritz values.
        both = self._walk(start, 1, "ritz", keep=(0, 1))
        for record in before:
            self.attempt.folder.delete(record.name)
        ritz = self._products(both[0], both[1])
        values, vectors = _eigen(ritz)
        order = np.argsort(-np.abs(values), kind="stable")[:width]
        ritz_turn = vectors[:, order] * np.abs(values[order])
        record = self.attempt.write_arrays(
            "ritz-turn", matrix=ritz_turn.astype(np.float32)
        )
        for spent in both[1]:
            self.attempt.folder.delete(spent.name)
        return both[0], record

    def _walk(self, start: Any, rounds: int, stem: str, keep: Any = None) -> Any:
        files = self._rounds(start, _WalkStep(), rounds, stem, keep)
        return files[rounds] if keep is None else files

    def _rounds(
        self, start: Any, step: Any, rounds: int, stem: str, keep: Any
    ) -> dict[int, list[FileRecord]]:
        return propagate(
            *(self.client, self.graph, self.manifest, start, step, rounds),
            *(self.attempt, stem, keep),
            backend=self.backend,
            progress=self.progress,
            engine=self.engine,
        )

    def _orthogonal(self, files: Sequence[FileRecord], turn: int) -> FileRecord:
        """The matrix that makes the vectors orthonormal, from their Gram matrix."""
        gram = self._products(files)
        size = np.sqrt(np.maximum(np.diag(gram), TINY))
        scaled = gram / np.outer(size, size)
        # Sums are rounded: keep the matrix definite for almost equal vectors.
        values, vectors = _eigen(scaled)
        root = vectors / np.sqrt(np.maximum(values, 1e-7 * values.max()))
        matrix = (root @ vectors.T) / size[:, None]
        return self.attempt.write_arrays(
            f"turn-{turn}", matrix=matrix.astype(np.float32)
        )


@dataclass(frozen=True)
class _Raw:
    """Unscaled node features and log degree, in blocks of rows."""

    graph: Stage
    manifest: Manifest
    n_features: int

    @property
    def sketched(self) -> int:
        """Columns of the sketch; 0: features are used directly."""
        return SKETCHED // 2 if self.n_features > SKETCHED else 0

    @property
    def width(self) -> int:
        """Columns of features."""
        return self.sketched or self.n_features

    def blocks(self, number: int) -> Iterator[tuple[int, Floats]]:
        """Yield first rows and values: features, log degree, ones; (m, width + 2)."""
        graph, manifest = self.graph, self.manifest
        degree = np.log1p(np.diff(load_partition(graph, manifest, number).indptr))
        column = None
        if self.n_features:
            nodes = load_nodes(graph, manifest, number, ["features"])
            column = nodes["features"].combine_chunks()
        signs = None
        if self.sketched:
            random = np.random.Generator(np.random.Philox(SKETCHED))
            signs = random.choice([-1.0, 1.0], (self.n_features, self.sketched))
        for first in range(0, len(degree), ROWS):
            degrees = degree[first : first + ROWS]
            count = len(degrees)
            x = np.empty((count, 0))
            if column is not None:
                flat = column.slice(first, count).flatten()
                x = flat.to_numpy(zero_copy_only=False).reshape(count, -1)
                x = x.astype(np.float64)
            if signs is not None:
                x = np.asarray(product(x, signs), np.float64)
            yield (
                first,
                np.concatenate([x, degrees[:, None], np.ones((count, 1))], axis=1),
            )


def _eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Ascending eigenvalues and vectors of a matrix, symmetric up to rounding."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values, vectors


def _raw_peaks(raw: _Raw, number: int) -> Floats:
    peaks = np.zeros(raw.width + 2)
    for _, values in raw.blocks(number):
        peaks = np.maximum(peaks, column_peaks(values))
    return peaks


def _raw_products(raw: _Raw, number: int, peaks: Floats) -> NDArray[np.int64]:
    total = np.zeros((len(peaks), len(peaks)), np.int64)
    for _, values in raw.blocks(number):
        total += integer_products(values, peaks)
    return total


def _loadings(products: Floats, width: int, n_nodes: int) -> dict[str, NDArray[Any]]:
    """Arrays that map raw columns to standardised columns or their components.

    `products` are those of features, log degree and ones, shape (width + 2, width + 2).
    Returns ``middle`` and ``spread`` of features and log degree, shape (width + 1,),
    and the ``components`` of the standardised features, shape (width, kept).
    """
    middle = products[:-1, -1] / n_nodes
    covariance = products[:-1, :-1] / n_nodes - np.outer(middle, middle)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    flat = spread <= 1e-6 * np.maximum(np.abs(middle), TINY)
    spread[flat] = np.inf  # a constant column becomes 0
    components = np.eye(width)
    if width > RAW:
        # Many columns have a common kind, such as words or a decomposition, in which
        # variance is relevance: they share a scale.
        spread[:-1] = np.sqrt(np.mean(np.diag(covariance)[:-1])) or np.inf
        inner = covariance[:-1, :-1] / spread[0] ** 2
        _, vectors = _eigen(inner)
        components = vectors[:, ::-1][:, :COMPONENTS].copy()
    return {"middle": middle, "spread": spread, "components": components}


@dataclass(frozen=True)
class _FeatureStart:
    """Standardised features and log degree, and a column of ones to sum up weights."""

    raw: _Raw
    where: Stage
    loadings: FileRecord

    def __call__(self, number: int) -> Array:
        """The start values, shape (n_owned, features + 2)."""
        arrays = self.where.read_arrays(self.loadings)
        middle, spread = arrays["middle"], arrays["spread"]
        components = arrays["components"]
        pieces = []
        for _, values in self.raw.blocks(number):
            standard = (values[:, :-1] - middle) / spread
            x = standard[:, :-1]
            if len(components) > RAW:
                x = np.asarray(product(np.ascontiguousarray(x), components))
            degree = DEGREE_SCALE * standard[:, -1:]
            pieces.append(np.concatenate([x, degree, values[:, -1:]], axis=1))
        if not pieces:
            return np.zeros((0, components.shape[1] + 2), np.float32)
        return np.concatenate(pieces).astype(np.float32)


@dataclass(frozen=True)
class _MeanStep:
    """Weighted mean of the in-neighbours; a node without any keeps its values."""

    def __call__(self, number: int, turn: int, values: Array, sums: Array) -> Array:
        """The means, shape (n_owned, features + 2); the last column is ones."""
        weight = sums[:, -1:]
        mean: Array = np.divide(sums, weight, out=values.copy(), where=weight > 0)
        return mean


@dataclass(frozen=True)
class _SignStart:
    """Random signs by canonical index."""

    graph: Stage
    manifest: Manifest
    width: int
    seed: int

    def __call__(self, number: int) -> Array:
        """The start vectors, shape (n_owned, width + 2), as in `_WalkStep`."""
        nodes = load_nodes(self.graph, self.manifest, number, ["index"])
        index = nodes["index"].to_numpy()
        out = _with_degree(len(index), self.width, np.zeros(len(index), np.float32))
        for word in range(0, self.width, 64):
            key = stream_key(self.seed, Purpose.FIRST_VECTORS, word // 64)
            mixed = mixed_bits(index, key).astype("<u8")
            octets = mixed.view(np.uint8).reshape(len(index), 8)
            columns = out[:, word : min(word + 64, self.width)]
            bits = np.unpackbits(octets, 1, columns.shape[1], "little")
            np.multiply(bits, 2, out=columns)
            columns -= 1
        return out


@dataclass(frozen=True)
class _TurnStart:
    """Vectors of an earlier round times a small matrix."""

    where: Stage
    files: tuple[FileRecord, ...]
    matrix: FileRecord
    threads: int

    def __call__(self, number: int) -> Array:
        """The start vectors, shape (n_owned, width + 2), as in `_WalkStep`."""
        values = self.where.read_arrays(self.files[number])["values"]
        turn = self.where.read_arrays(self.matrix)["matrix"]
        out = _with_degree(len(values), turn.shape[1], values[:, -1])
        _turn(values, turn, out[:, :-2], self.threads)
        return out


@dataclass(frozen=True)
class _WalkStep:
    """A step of the random walk: means over neighbours, ones, and the degree.

    It maps V as S = D^-1/2 A D^-1/2 maps Y = D^1/2 V.
    """

    def __call__(self, number: int, turn: int, values: Array, sums: Array) -> Array:
        """The vectors, ones and degrees, shape (n_owned, width + 2)."""
        degree = sums[:, -2]
        out = _with_degree(len(sums), sums.shape[1] - 2, degree)
        some = degree[:, None] > 0
        np.divide(sums[:, :-2], degree[:, None], out=out[:, :-2], where=some)
        return out


def _with_degree(rows: int, width: int, degree: Array) -> Array:
    """Zeros for the vectors, ones and the degree, shape (rows, width + 2)."""
    out = np.zeros((rows, width + 2), np.float32)
    out[:, -2] = 1.0
    out[:, -1] = degree
    return out


def _turn(values: Array, turn: Array, out: Array, threads: int) -> None:
    """``out = V @ turn`` for the vectors V in the values of a round."""

    def work(first: int, last: int) -> None:
        out[first:last] = product(values[first:last, :-2], turn)

    for_each_block(len(values), threads, work, TURNED)


def _scaled(where: Stage, record: FileRecord) -> tuple[Array, Floats]:
    """V and the factors of its rows in Y, shapes (n_owned, width) and (n_owned,)."""
    values = where.read_arrays(record)["values"]
    return values[:, :-2], np.sqrt(values[:, -1].astype(np.float64))


def _peaks(where: Stage, *given: Any) -> list[Floats]:
    *records, threads = given
    return [column_peaks(*_scaled(where, record), threads) for record in records]


def _products(peaks: Floats, where: Stage, *given: Any) -> NDArray[np.int64]:
    left, *right, threads = given
    values, factors = _scaled(where, left)
    others = _scaled(where, right[0])[0] if right else None
    return integer_products(values, peaks[0], others, peaks[-1], factors, threads)


def _write(
    where: Stage,
    hops: Sequence[FileRecord],
    spectrum: tuple[FileRecord, FileRecord] | None,
    attempt: Attempt,
    number: int,
    threads: int,
) -> FileRecord:
    """Write both blocks of one partition."""
    blocks = [where.read_arrays(record)["values"][:, :-1] for record in hops]
    if spectrum is not None:
        values = where.read_arrays(spectrum[0])["values"]
        turn = where.read_arrays(spectrum[1])["matrix"]
        block = np.empty((len(values), turn.shape[1]), np.float32)
        _turn(values, turn, block, threads)
        block *= np.sqrt(values[:, -1:])
        blocks.append(block)
    return attempt.write_arrays(
        f"descriptors-{number:05d}", values=np.concatenate(blocks, axis=1)
    )
