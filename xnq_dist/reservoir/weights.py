"""Untrained weights, from the seed alone: the same for any partitioning and workers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints32
from xnq_dist.core.random_bits import Purpose, stream, stream_key

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "NONZEROS",
    "Recurrent",
    "Reservoir",
    "Weights",
    "block_seed",
    "draw_recurrent",
    "recurrent_factor",
    "recurrent_radius",
    "side_by_side",
    "units_of_blocks",
]

_BLOCK = 128
"""Rows of one random stream."""
BIAS_SCALE = 0.1
"""The bias is uniform in plus or minus this value, as in the paper."""
NONZEROS = 16
"""Non-zeros in each row of a sparse W: as accurate as a dense one (AE .0359 against
.0353 on Tolokers), with 4 it is not."""
EIGEN_UNITS = 1024
"""Maximum units for which all eigenvalues are computed, in d'^3 operations."""
_SETTLED, _MEASURED = 500, 2000
"""Products before and while growth is measured."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recurrent:
    """The recurrent matrix W, already scaled."""

    values: Floats32
    """Dense: shape (d', d'), row i holds the weights of unit i. Sparse: shape (d', k),
    the non-zeros of each row."""
    columns: Ints32 | None = None
    """Columns of the non-zeros, shape (d', k), ascending in a row; None when dense."""

    @property
    def dim(self) -> int:
        """Units, d'."""
        return int(self.values.shape[0])

    def matrix(self) -> NDArray[np.float64] | csr_array[Any]:
        """The matrix in float64, shape (d', d')."""
        from scipy.sparse import csr_array

        values = self.values.astype(np.float64)
        if self.columns is None:
            return values
        pointers = np.arange(0, values.size + 1, values.shape[1])
        data = values.ravel(), self.columns.ravel(), pointers
        return csr_array(data, (self.dim, self.dim))


@dataclass(frozen=True)
class Weights:
    """All weights of one reservoir."""

    inputs: Floats32
    """W_in, shape (d', f)."""
    bias: Floats32
    """b, shape (d',)."""
    recurrent: Recurrent


@dataclass(frozen=True)
class Reservoir:
    """One reservoir: what its weights depend on."""

    seed: int
    """The only source of randomness."""
    units: int
    """d'."""
    matrix: str
    """``dense`` or ``sparse`` (`NONZEROS` a row)."""
    recurrent_factor: float
    """Factor of the recurrent matrix as drawn."""
    input_scale: float
    """Range of W_in."""

    def draw(self, features: int) -> Weights:
        """The weights for this number of input features."""
        size = self.units, features
        inputs = _uniform(self.seed, Purpose.RESERVOIR_INPUT, *size, self.input_scale)
        bias = _uniform(self.seed, Purpose.RESERVOIR_BIAS, self.units, 1, BIAS_SCALE)
        drawn = draw_recurrent(self.seed, self.units, self.matrix)
        values = (drawn.values * np.float64(self.recurrent_factor)).astype(np.float32)
        return Weights(inputs, bias[:, 0].copy(), replace(drawn, values=values))


def recurrent_factor(seed: int, units: int, matrix: str, target: float) -> float:
    """Factor that gives a drawn recurrent matrix the spectral radius `target`.

    References
    ----------
    Gallicchio & Micheli, "Fast and deep graph neural networks", AAAI 2020.
    """
    radius = recurrent_radius(draw_recurrent(seed, units, matrix), seed)
    # A nilpotent matrix (tiny, sparse) has radius 0: scale by the target alone.
    return target / radius if radius > 0 else target


def side_by_side(parts: Sequence[Recurrent]) -> tuple[Recurrent, ...]:
    """The diagonal blocks of the W of independent reservoirs; sparse ones are one."""
    sparse = [part.columns for part in parts if part.columns is not None]
    if not sparse:
        return tuple(parts)
    # Zeros fill up rows with fewer non-zeros; a sum is never -0, so its bits stay.
    shape = sum(part.dim for part in parts), max(part.values.shape[1] for part in parts)
    values, columns = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    first = 0
    for part, there in zip(parts, sparse, strict=True):
        at = slice(first, first + part.dim), slice(there.shape[1])
        values[at], columns[at] = part.values, there + np.int32(first)
        first += part.dim
    return (Recurrent(values, columns),)


def block_seed(seed: int, block: int) -> int:
    """Seed of one of several independent reservoirs; the first has the seed itself."""
    if not block:
        return seed
    key = stream_key(seed, Purpose.RESERVOIRS_SIDE_BY_SIDE, block)
    return int(key.generate_state(1, np.uint64)[0] >> np.uint64(1))


def units_of_blocks(dim: int, count: int) -> list[int]:
    """Units of each of `count` reservoirs that share `dim`, as equal as possible.

    Examples
    --------
    >>> units_of_blocks(10, 4)
    [3, 3, 2, 2]
    """
    each, more = divmod(dim, count)
    return [each + (number < more) for number in range(count)]


def _uniform(
    seed: int, purpose: int, rows: int, columns: int, scale: float
) -> Floats32:
    """Uniform(-scale, scale), one random stream for every block of rows."""
    out = np.empty((rows, columns), dtype=np.float32)
    for first in range(0, rows, _BLOCK):
        block = out[first : first + _BLOCK]
        draws = stream(seed, purpose, first // _BLOCK).random(block.shape)
        block[:] = scale * (2.0 * draws - 1.0)
    return out


def draw_recurrent(seed: int, dim: int, matrix: str) -> Recurrent:
    """The recurrent matrix before scaling."""
    if matrix == "dense":
        return Recurrent(_uniform(seed, Purpose.RESERVOIR_DENSE, dim, dim, 1.0))
    nonzeros = min(NONZEROS, dim)
    values = np.empty((dim, nonzeros), dtype=np.float32)
    columns = np.empty(values.shape, dtype=np.int32)
    for row in range(dim):
        if row % _BLOCK == 0:
            random = stream(seed, Purpose.RESERVOIR_SPARSE, row // _BLOCK)
        chosen = random.choice(dim, size=nonzeros, replace=False, shuffle=False)
        columns[row] = np.sort(chosen)
        values[row] = 2.0 * random.random(nonzeros) - 1.0
    return Recurrent(values, columns)


def recurrent_radius(recurrent: Recurrent, seed: int) -> float:
    """Spectral radius of the unscaled recurrent matrix, to six significant digits.

    Up to `EIGEN_UNITS` units all eigenvalues are computed; for more, ARPACK computes
    those of largest modulus from a fixed start vector. It may not converge, because the
    largest moduli of a random matrix are close together. Then the growth rate of that
    vector under the matrix is used, with a relative error of about 1e-3.
    """
    matrix = recurrent.matrix()
    if recurrent.dim <= EIGEN_UNITS:
        full = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        radius = float(np.abs(np.linalg.eigvals(full)).max())
    else:
        radius = _largest_modulus(matrix, seed)
    return float(f"{radius:.6g}")


def _largest_modulus(matrix: Any, seed: int) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, aslinearoperator, eigs

    start = stream(seed, Purpose.GROWTH_START, 0).random(matrix.shape[0]) * 2.0 - 1.0
    try:
        eigenvalues: Any = eigs(
            aslinearoperator(matrix),
            k=8,
            ncv=96,
            which="LM",
            v0=start,
            tol=1e-8,
            maxiter=400,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence as stopped:
        log.info("spectral radius of W from the growth rate, because %s", stopped)
        return _growth(matrix, start)
    return float(np.abs(eigenvalues).max())


def _growth(matrix: Any, vector: Floats) -> float:
    """Mean growth of a vector under a matrix, which tends to its spectral radius.

    The error of its logarithm is at most about 1 / `_MEASURED` times the log condition
    of the eigenvectors. Unlike a power iteration, the mean also converges for complex
    pairs and equal moduli.
    """
    total = 0.0
    for step in range(_SETTLED + _MEASURED):
        vector = matrix @ vector
        length = float(np.linalg.norm(vector))
        if length == 0.0:
            return 0.0
        vector = vector / length
        if step >= _SETTLED:
            total += float(np.log(length))
    return float(np.exp(total / _MEASURED))
