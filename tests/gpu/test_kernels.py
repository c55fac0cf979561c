"""The GPU's kernels against the CPU's and NumPy, on a stand-in or a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.gpu.conftest import make_backend
from tests.gpu.standin import decode, encode, tf32
from tests.reservoir.reference import embed_reference, rational_tanh
from tests.reservoir.test_kernels import draw, no_halo, whole_partition
from xnq_dist.core.backend import cpu
from xnq_dist.core.products import product
from xnq_dist.reservoir import device as on_device
from xnq_dist.reservoir import gpu_kernels
from xnq_dist.reservoir.superstep import column_tiles, first_states, superstep
from xnq_dist.reservoir.weights import BlockDiagonal

RNG = np.random.default_rng(11)
HALF = ["float16", "bfloat16"]
PRECISIONS = ["float32", "tf32", *HALF]


def run_on(backend, part, weights, features, steps, tile=None):
    """States after some supersteps, float32, on the host."""
    dim = weights.inputs.shape[0]
    drive = product(features, weights.inputs.T) + weights.bias
    return run_driven(backend, part, weights.recurrent, drive, steps, dim, tile)


def run_driven(backend, part, recurrent, drive, steps, dim, tile=None):
    part = on_device.move_partition(backend, part)
    recurrent = on_device.move_weights(backend, recurrent)
    tiles = column_tiles(dim, tile)
    if len(tiles) == 1:
        drive = backend.to_device(drive)
    states = on_device.first_states(backend, drive, len(tiles) == 1)
    for _ in range(steps - 1):
        states = superstep(
            backend,
            part,
            states,
            lambda columns: np.empty((0, columns.stop - columns.start), np.float32),
            drive,
            recurrent,
            tiles,
        )
    return on_device.decode(backend.to_host(states))


@pytest.mark.parametrize("weighted", [False, True])
def test_gather_equals_sums_in_neighbour_order_on_a_gpu(device, weighted):
    backend = device()
    part, matrix = whole_partition(60, 200, weighted)
    states = RNG.standard_normal((60, 139)).astype(np.float32)
    topology = gpu_kernels.Topology(
        backend.to_device(part.indptr),
        backend.to_device(part.indices),
        backend.to_device(matrix.data),
        weighted,
    )
    # Owned rows are the first 60 of a partition: the rest of the graph is its halo.
    out = backend.empty((25, 139))
    owned, halo = backend.to_device(states), backend.to_device(states[:1])
    gpu_kernels.gather_add(backend, topology, owned, halo, 10, 35, out)
    expected = np.zeros((25, 139), np.float32)
    for row in range(10, 35):
        for edge in range(part.indptr[row], part.indptr[row + 1]):
            expected[row - 10] += matrix.data[edge] * states[part.indices[edge]]
    np.testing.assert_array_equal(backend.to_host(out), expected)


def test_tanh_has_the_cpus_bits(device):
    backend = device()
    x = np.concatenate([np.linspace(-12, 12, 4000), np.logspace(-30, 0, 96)])
    x = x.astype(np.float32).reshape(64, 64)
    drive = RNG.standard_normal((64, 70)).astype(np.float32)
    out = backend.to_device(np.full((64, 80), np.nan, np.float32))
    pushed = backend.to_device(drive)[:, 3:67]
    gpu_kernels.tanh_add(backend, backend.to_device(x), pushed, out[:, 5:69])
    found = backend.to_host(out)
    np.testing.assert_array_equal(found[:, 5:69], rational_tanh(x + drive[:, 3:67]))
    assert np.isnan(found[:, :5]).all()
    assert np.isnan(found[:, 69:]).all()


@pytest.mark.parametrize("matrix", ["sparse", "ring"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_supersteps_have_the_numpy_twins_bits(device, matrix, weighted):
    part, adjacency = whole_partition(weighted=weighted)
    weights = draw(matrix, 150, scale=12.0)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 4)
    found = run_on(device(), part, weights, features, 4)
    np.testing.assert_array_equal(found, expected)


def test_rows_too_wide_for_shared_memory_agree(device, monkeypatch):
    part, adjacency = whole_partition(90, 300)
    weights = draw("sparse", 40)
    features = RNG.standard_normal((90, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 3)
    for shared in (0, 200, 400):
        monkeypatch.setattr(gpu_kernels, "SHARED", shared)
        found = run_on(device(), part, weights, features, 3)
        np.testing.assert_array_equal(found, expected)


def test_dense_supersteps_agree_with_the_numpy_twin(device):
    part, adjacency = whole_partition()
    weights = draw("dense", 48, scale=1.2)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 5)
    found = run_on(device(), part, weights, features, 5)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("matrix", ["dense", "sparse"])
@pytest.mark.parametrize("precision", ["float32", *HALF])
def test_column_tiles_keep_the_states(device, matrix, precision):
    part, _ = whole_partition(weighted=True)
    weights = draw(matrix, 36)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    whole = run_on(device(precision), part, weights, features, 4)
    tiled = run_on(device(precision), part, weights, features, 4, tile=11)
    np.testing.assert_array_equal(tiled, whole)


@pytest.mark.parametrize("matrix", ["dense", "sparse"])
def test_a_reservoir_next_to_others_equals_itself_alone(device, matrix):
    part, _ = whole_partition()
    backend = device()
    drawn = [draw(matrix, dim).recurrent for dim in (20, 13)]
    drive = RNG.standard_normal((300, 33)).astype(np.float32)
    both = run_driven(backend, part, BlockDiagonal(tuple(drawn)), drive, 3, 33)
    for columns, recurrent in zip((slice(0, 20), slice(20, 33)), drawn, strict=True):
        own = np.ascontiguousarray(drive[:, columns])
        alone = run_driven(backend, part, recurrent, own, 3, recurrent.dim)
        np.testing.assert_array_equal(both[:, columns], alone)
    tiled = run_driven(backend, part, BlockDiagonal(tuple(drawn)), drive, 3, 33, tile=7)
    np.testing.assert_array_equal(tiled, both)


@pytest.mark.parametrize("dims", [(16, 16, 16, 16), (20, 20, 20, 19)], ids=str)
@pytest.mark.parametrize("matrix", ["dense", "sparse", "ring"])
def test_four_reservoirs_in_several_row_blocks_have_the_cpus_bits(
    monkeypatch, matrix, dims
):
    """On the stand-in, whose product is the CPU's."""
    monkeypatch.setattr(on_device, "GEMM_ROWS", 64)
    part, _ = whole_partition(weighted=True)
    drawn = [
        draw(matrix, dim, scale=1.0 + number, nonzeros=3 + number).recurrent
        for number, dim in enumerate(dims)
    ]
    both = BlockDiagonal(tuple(drawn))
    drive = RNG.standard_normal((300, both.dim)).astype(np.float32)
    states = first_states(drive, both)
    for _ in range(2):
        states = superstep(
            cpu(), part, states, no_halo, drive, both, column_tiles(both.dim, None)
        )
    backend = make_backend("standin")
    for tile in (None, 7):
        found = run_driven(backend, part, both, drive, 3, both.dim, tile)
        np.testing.assert_array_equal(found, states)


ERRORS = {"tf32": 2e-3, "float16": 5e-3, "bfloat16": 4e-2}
"""Largest error of a state after 10 supersteps of 64 units at a contractive scale."""


@pytest.mark.parametrize("precision", ERRORS)
def test_lower_precision_stays_within_its_documented_error(device, precision):
    part, adjacency = whole_partition()
    weights = draw("dense", 64, scale=0.9)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 10)
    found = run_on(device(precision), part, weights, features, 10)
    gap = np.abs(found - expected).max()
    assert 0 < gap < ERRORS[precision]


def test_rounding_on_the_host_is_that_of_the_kernels(device):
    values = np.concatenate(
        [RNG.standard_normal(4000) * 10.0 ** RNG.integers(-9, 1, 4000), [0.0, -0.0]]
    ).astype(np.float32)
    values = np.clip(values, -1, 1).reshape(-1, 2)
    for precision in HALF:
        backend = device(precision)
        out = backend.empty(values.shape, backend.state_dtype)
        zero = np.zeros_like(values)
        moved = backend.to_device(values), backend.to_device(zero)
        gpu_kernels.tanh_add(backend, *moved, out)
        host = encode(rational_tanh(values + zero), backend.state_dtype)
        np.testing.assert_array_equal(backend.to_host(out), host)
        back = decode(host)
        assert back.dtype == np.float32
        np.testing.assert_array_equal(encode(back, backend.state_dtype), host)


def test_a_rows_product_is_independent_of_its_place_on_a_gpu(device):
    """The property that bits independent of the partition rest on."""
    alone, together = (96, 96), (4, 24, 24)
    for precision, shape in itertools.product(PRECISIONS, (alone, together)):
        backend = device(precision)
        dtype = backend.state_dtype
        x = encode(RNG.standard_normal((512, 96)).astype(np.float32), dtype)
        matrix = encode(RNG.standard_normal(shape).astype(np.float32), dtype)
        moved = backend.to_device(matrix)
        answers = []
        for shift in (0, 1, 13, 255):
            out = backend.empty((512, 96))
            rolled = backend.to_device(np.roll(x, shift, axis=0))
            backend.multiply(rolled, moved, out)
            answers.append(np.roll(backend.to_host(out), -shift, axis=0))
        for answer in answers[1:]:
            np.testing.assert_array_equal(answer, answers[0])


def test_kernels_launch_without_rows_edges_or_halo(device):
    for matrix in ("dense", "sparse"):
        weights = draw(matrix, 8)
        part, _ = whole_partition(5, 1)
        part = part.__class__(
            **{
                **part.__dict__,
                "indptr": np.zeros(6, np.int64),
                "indices": np.empty(0, np.int32),
            }
        )
        drive = RNG.standard_normal((5, 8)).astype(np.float32)
        found = run_driven(device(), part, weights.recurrent, drive, 3, 8)
        np.testing.assert_array_equal(found, rational_tanh(drive))


def test_tf32_of_the_stand_in_keeps_ten_bits():
    assert tf32(np.float32([1 + 2**-10, 1 + 2**-12]))[0] == np.float32(1 + 2**-10)
    assert tf32(np.float32([1 + 2**-12]))[0] == 1.0


def test_backends_know_whether_they_are_on_a_device(device):
    assert not cpu().on_device
    assert device().on_device
