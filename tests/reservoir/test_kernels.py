"""Kernels against plain NumPy, bit for bit."""

from unittest.mock import patch

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.reservoir import reference
from tests.reservoir.reference import (
    embed_reference,
    one_partition,
    rational_tanh,
)
from xnq_dist.core.products import product
from xnq_dist.reservoir import kernels
from xnq_dist.reservoir.superstep import FeatureDrive, OnHost
from xnq_dist.reservoir.weights import Weights

RNG = np.random.default_rng(5)


def whole_partition(nodes=300, edges=1500, weighted=False):
    """One partition without a halo, and its adjacency matrix."""
    pairs = np.unique(RNG.integers(0, nodes, (edges, 2)), axis=0)
    data = RNG.random(len(pairs)).astype(np.float32) if weighted else None
    ones = np.ones(len(pairs), np.float32) if data is None else data
    matrix = csr_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(nodes, nodes))
    matrix.sort_indices()
    weights = matrix.data if weighted else None
    part = one_partition(matrix.indptr, matrix.indices, weights)
    return part, matrix


def after(part, states, drive, recurrent, threads=2):
    """States after one more superstep, in memory that held something else."""
    out = np.full_like(states, np.nan)
    parts = recurrent if isinstance(recurrent, list) else [recurrent]
    on_host = OnHost(parts, threads)
    on_host.superstep(part, states, states[:0], drive, out)
    return out


def test_tanh_error_is_below_four_ulp_of_one():
    x = np.concatenate([np.linspace(-12, 12, 400_001), np.logspace(-30, 0, 1000)])
    x = x.astype(np.float32)
    gap = np.abs(rational_tanh(x) - np.tanh(x.astype(np.float64)))
    assert gap.max() < 4e-7
    assert np.abs(rational_tanh(x)).max() <= 1.0
    assert rational_tanh(np.zeros(1, np.float32))[0] == 0.0
    assert np.isnan(rational_tanh(np.array([np.nan], np.float32))[0])


def draw(matrix, dim, scale=1.5, nonzeros=5) -> Weights:
    with patch("xnq_dist.reservoir.weights.NONZEROS", nonzeros):
        return reference.draw(2, dim, 4, matrix, scale, 0.7, 3.0)


def stored_drive(features, weights):
    return product(features, weights.inputs.T) + weights.bias


def drive_from_features(features, weights):
    return FeatureDrive.of(features, [weights])


@pytest.mark.parametrize(
    ("matrix", "dim", "nonzeros", "weighted", "drive_of", "dtype"),
    [
        ("dense", 18, 5, False, stored_drive, "float32"),
        ("dense", 18, 5, True, drive_from_features, "float16"),
        ("sparse", 7, 4, True, stored_drive, "float32"),
        ("sparse", 20, 1, False, drive_from_features, "float32"),
        ("sparse", 20, 20, True, drive_from_features, "float16"),
        ("sparse", 32, 8, False, stored_drive, "float32"),
        ("sparse", 33, 16, True, stored_drive, "float16"),
    ],
)
def test_supersteps_equal_the_numpy_twin_bit_for_bit(
    matrix, dim, nonzeros, weighted, drive_of, dtype
):
    """Rows of many degrees, and more than one tile of them; whatever the memory of the
    new states held before."""
    part, adjacency = whole_partition(weighted=weighted)
    weights = draw(matrix, dim, scale=12.0, nonzeros=nonzeros)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 5, dtype)
    drive = drive_of(features, weights)
    states = np.zeros((300, dim), dtype)
    for _ in range(5):
        states = after(part, states, drive, weights.recurrent)
    np.testing.assert_array_equal(states.astype(np.float32), expected)


@pytest.mark.parametrize("count", [0, 1, 4, 40])
def test_a_drive_from_features_has_the_bits_of_a_stored_one(count):
    """Two reservoirs side by side; rows together, in parts, and one by one."""
    features = RNG.standard_normal((700, count)).astype(np.float32)
    drawn = [reference.draw(s, 90, count, "dense", 1.0, 0.7, 3.0) for s in (1, 2)]
    expected = np.hstack([stored_drive(features, weights) for weights in drawn])
    drive = FeatureDrive.of(features, drawn)
    assert drive.shape == expected.shape
    np.testing.assert_array_equal(drive.stored(threads=2), expected)
    for first, last in [(0, 256), (255, 256), (444, 700)]:
        np.testing.assert_array_equal(drive[first:last], expected[first:last])


def test_halves_are_widened_as_numpy_does():
    """All 65,536 of them, NaN and infinities too, in sums of one neighbour."""
    bits = np.arange(1 << 16, dtype=np.uint16)[None, :]
    out = np.empty(bits.shape, np.float32)
    nothing = np.empty(0, np.float32)
    pointers, sources = np.array([0, 1]), np.zeros(1, np.int32)
    halo = np.empty((0, bits.shape[1]), np.uint16)
    kernels.gather_add(pointers, sources, nothing, bits, halo, 0, 1, out)
    np.testing.assert_array_equal(out, bits.view(np.float16).astype(np.float32))


def test_states_are_narrowed_as_numpy_does():
    halves = np.arange(0x3C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / 2
    near = [np.nextafter(ties, np.float32(way)) for way in (-2, 2)]
    sizes = np.concatenate([halves, ties, *near, RNG.random(10_000, np.float32)])
    values = np.concatenate([sizes, -sizes, [np.nan]]).astype(np.float32)[None, :]
    out = np.empty(values.shape, np.uint16)
    kernels.narrow(values, out)
    np.testing.assert_array_equal(out.view(np.float16), values.astype(np.float16))
