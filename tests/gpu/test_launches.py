"""Launches of a superstep and lines of memory of a load, counted on the stand-in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.gpu.made import GENIUS, made_partition
from tests.gpu.standin import DeviceArray, StandinBackend
from xnq_dist.reservoir import device
from xnq_dist.reservoir.weights import BlockDiagonal, draw_recurrent, units_of_blocks

MOST = 160
"""Launches of a superstep of xnq+, four reservoirs, on a graph of Genius' size."""
LINE = 128
"""Bytes of memory that a GPU reads at once."""


@dataclass(frozen=True)
class CountingBackend(StandinBackend):
    """Counts launches instead of running them; arrays hold no values."""

    launches: Counter[str] = field(default_factory=Counter)

    def empty(self, shape, dtype=np.float32):
        """Memory that nobody writes to, so that it takes none."""
        return np.empty(shape, dtype).view(DeviceArray)

    def to_device(self, array):
        """The array itself."""
        return np.asarray(array).view(DeviceArray)

    def kernel(self, source, name, defines=()):
        """Counts the launches of a kernel."""
        return lambda *_args, **_options: self.launches.update([name])

    def multiply(self, x, matrix, out):
        """Counts the launch of a product."""
        self.launches["product"] += 1


def reservoirs(matrix: str, dim: int) -> BlockDiagonal:
    """Four reservoirs that share the units."""
    drawn = (draw_recurrent(0, units, matrix, 16) for units in units_of_blocks(dim, 4))
    return BlockDiagonal(tuple(drawn))


def launches_of_a_superstep(matrix: str, dim: int) -> Counter[str]:
    backend = CountingBackend("gpu", "xnq_dist.reservoir.gpu_kernels")
    part = device.move_partition(backend, made_partition(GENIUS))
    weights = device.move_weights(backend, reservoirs(matrix, dim))
    states = backend.empty((GENIUS.nodes, dim))
    device.superstep(backend, part, states, states[:0], states, weights)
    return backend.launches


def test_four_dense_reservoirs_take_three_launches_for_a_block_of_rows():
    found = launches_of_a_superstep("dense", GENIUS.dim)
    blocks = -(-GENIUS.nodes // device.GEMM_ROWS)
    assert found == dict.fromkeys(("gather_add", "product", "tanh_add"), blocks)
    assert found.total() <= MOST


def test_reservoirs_of_two_sizes_take_one_product_more():
    found = launches_of_a_superstep("dense", GENIUS.dim - 2)
    assert found["product"] == 2 * found["gather_add"] == 2 * found["tanh_add"]


def test_four_sparse_reservoirs_take_one_launch():
    assert launches_of_a_superstep("sparse", GENIUS.dim) == {"sparse_superstep": 1}


@pytest.mark.parametrize(("matrix", "nonzeros"), [("sparse", 16), ("ring", 1)])
def test_threads_of_a_warp_read_one_line_of_non_zeros(matrix, nonzeros):
    backend = CountingBackend("gpu", "xnq_dist.reservoir.gpu_kernels")
    weights = device.move_weights(backend, reservoirs(matrix, 512))
    for array in (weights.columns, weights.values):
        assert array.shape == (nonzeros, 512)
        # Thread t of a warp reads non-zero k of unit t.
        lines = np.arange(512).reshape(-1, 32) * array.strides[1] // LINE
        assert (lines.min(axis=1) == lines.max(axis=1)).all()
