"""The superstep in plain NumPy: the reference for all implementations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xnq_dist.core.products import product
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir.kernels import TANH_CLIP, TANH_DENOMINATOR, TANH_NUMERATOR
from xnq_dist.reservoir.weights import (
    Recurrent,
    Reservoir,
    Weights,
    recurrent_factor,
)

__all__ = ["dense", "draw", "embed_reference", "one_partition", "rational_tanh"]


def draw(
    seed: int,
    units: int,
    features: int,
    matrix: str,
    recurrent_scale: float,
    input_scale: float,
    rho: float,
) -> Weights:
    """Weights of one reservoir on a graph of spectral radius `rho`."""
    factor = recurrent_factor(seed, units, matrix, recurrent_scale / rho)
    return Reservoir(seed, units, matrix, factor, input_scale).draw(features)


def one_partition(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    weights: NDArray[np.float32] | None = None,
) -> Partition:
    """A graph in CSR form as one partition, without a halo."""
    none = np.empty(0, np.int64)
    return Partition(
        number=0,
        indptr=indptr.astype(np.int64),
        indices=indices.astype(np.int32),
        weights=weights,
        halo=none,
        halo_offsets=np.zeros(2, np.int64),
        send_rows=none.astype(np.int32),
        send_offsets=np.zeros(2, np.int64),
    )


def dense(recurrent: Recurrent) -> NDArray[np.float64]:
    """The recurrent matrix, shape (d', d')."""
    matrix = recurrent.matrix()
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def rational_tanh(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The kernels' tanh: x P(x^2) / Q(x^2), clipped to [-1, 1]."""
    x = np.clip(x, -TANH_CLIP, TANH_CLIP)
    t = x * x
    numerator = np.full_like(t, TANH_NUMERATOR[-1])
    denominator = np.full_like(t, TANH_DENOMINATOR[-1])
    for p, q in zip(TANH_NUMERATOR[-2::-1], TANH_DENOMINATOR[-2::-1], strict=True):
        numerator = numerator * t + p
        denominator = denominator * t + q
    one = np.float32(1.0)
    return np.clip(x * numerator / denominator, -one, one)


def embed_reference(
    adjacency: csr_array,
    features: NDArray[np.float32],
    weights: Weights,
    supersteps: int,
    exchange_dtype: str = "float32",
) -> NDArray[np.float32]:
    """States after `supersteps` updates, for the whole graph in one process.

    Parameters
    ----------
    adjacency
        Row v holds the weights of v's in-neighbours, columns ascending; shape (N, N).
    features
        Shape (N, f).
    weights
        The reservoir's weights.
    supersteps
        L.
    exchange_dtype
        Every state is rounded to it after an update.

    Returns
    -------
    ndarray
        Float32, shape (N, d').
    """
    nodes = features.shape[0]
    recurrent = weights.recurrent
    drive = product(features, weights.inputs.T) + weights.bias
    state = np.zeros((nodes, recurrent.dim), dtype=np.float32)
    for _ in range(supersteps):
        gathered = np.zeros_like(state)
        for node in range(nodes):
            for edge in range(adjacency.indptr[node], adjacency.indptr[node + 1]):
                weight = np.float32(adjacency.data[edge])
                gathered[node] += weight * state[adjacency.indices[edge]]
        if recurrent.columns is None:
            mixed = product(gathered, recurrent.values.T)
        else:
            mixed = np.zeros_like(gathered)
            for k in range(recurrent.columns.shape[1]):
                mixed += recurrent.values[:, k] * gathered[:, recurrent.columns[:, k]]
        state = rational_tanh(mixed + drive)
        state = state.astype(exchange_dtype).astype(np.float32)
    return state
