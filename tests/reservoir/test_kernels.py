"""Kernels against plain NumPy, bit for bit; each also through its Python form."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.reservoir.reference import embed_reference, rational_tanh
from xnq_dist.core.products import product
from xnq_dist.graph.halo import Partition
from xnq_dist.reservoir import kernels
from xnq_dist.reservoir.drive import FeatureDrive, drive_width
from xnq_dist.reservoir.superstep import gather, superstep
from xnq_dist.reservoir.weights import Weights, draw_weights

RNG = np.random.default_rng(5)


def whole_partition(nodes=300, edges=1500, weighted=False):
    """One partition without a halo, and its adjacency matrix."""
    pairs = np.unique(RNG.integers(0, nodes, (edges, 2)), axis=0)
    data = RNG.random(len(pairs)).astype(np.float32) if weighted else None
    ones = np.ones(len(pairs), np.float32) if data is None else data
    matrix = csr_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(nodes, nodes))
    matrix.sort_indices()
    part = Partition(
        number=0,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        weights=matrix.data if weighted else None,
        halo=np.empty(0, np.int64),
        halo_offsets=np.zeros(2, np.int64),
        send_rows=np.empty(0, np.int32),
        send_offsets=np.zeros(2, np.int64),
    )
    return part, matrix


def after(part, states, drive, recurrent, threads=2, out=None):
    """States after one more superstep, in new memory or in `out`."""
    out = np.empty_like(states) if out is None else out
    blocks = recurrent if isinstance(recurrent, tuple) else (recurrent,)
    superstep(part, states, states[:0], drive, blocks, out, threads)
    return out


def test_tanh_error_is_below_four_ulp_of_one():
    x = np.concatenate([np.linspace(-12, 12, 400_001), np.logspace(-30, 0, 1000)])
    x = x.astype(np.float32)
    gap = np.abs(rational_tanh(x) - np.tanh(x.astype(np.float64)))
    assert gap.max() < 4e-7
    assert np.abs(rational_tanh(x)).max() <= 1.0
    assert rational_tanh(np.zeros(1, np.float32))[0] == 0.0
    assert np.isnan(rational_tanh(np.array([np.nan], np.float32))[0])


@pytest.mark.parametrize("form", ["compiled", "python"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gather_equals_sums_in_neighbour_order(form, weighted):
    part, matrix = whole_partition(60, 200, weighted)
    states = RNG.standard_normal((60, 9)).astype(np.float32)
    owned, halo = states[:40], states[40:]
    out = np.full((25, 9), np.nan, np.float32)
    weights = matrix.data if weighted else np.empty(0, np.float32)
    function = kernels.gather_add
    if form == "python":
        function = function.py_func
    function(part.indptr, part.indices, weights, owned, halo, 10, 35, out)
    expected = np.zeros((25, 9), np.float32)
    for row in range(10, 35):
        for edge in range(part.indptr[row], part.indptr[row + 1]):
            expected[row - 10] += matrix.data[edge] * states[part.indices[edge]]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("form", ["compiled", "python"])
def test_tanh_add_equals_numpy(form):
    product = RNG.standard_normal((7, 5)).astype(np.float32) * 4
    drive = RNG.standard_normal((7, 5)).astype(np.float32)
    expected = rational_tanh(product + drive)
    function = kernels.tanh_add if form == "compiled" else kernels.tanh_add.py_func
    scalar = kernels._tanh.py_func if form == "python" else None
    if scalar is not None:
        values = [scalar(a + b) for a, b in zip(product.flat, drive.flat, strict=True)]
        np.testing.assert_array_equal(np.reshape(values, expected.shape), expected)
    function(product, drive)
    np.testing.assert_array_equal(product, expected)


@pytest.mark.parametrize("dim", [7, 20, 32])
@pytest.mark.parametrize("rows", [1, 7, 32, 45])
def test_sparse_update_equals_dense_product(rows, dim):
    drawn = draw_weights(
        1,
        dim,
        3,
        matrix="sparse",
        nonzeros=4,
        recurrent_scale=1.0,
        input_scale=1.0,
        bias_scale=0.1,
        rho=1.0,
    )
    gathered = RNG.standard_normal((rows, dim)).astype(np.float32)
    drive = RNG.standard_normal((rows, dim)).astype(np.float32)
    expected = np.tanh(gathered @ drawn.recurrent.to_dense().T + drive)
    tile = np.zeros((dim, kernels.LANES), np.float32)
    kernels.sparse_update(
        gathered,
        drawn.recurrent.columns,
        drawn.recurrent.values,
        drive,
        tile,
        np.zeros((kernels.WIDTH, kernels.LANES), np.float32),
    )
    np.testing.assert_allclose(gathered, expected, atol=2e-6)


@pytest.mark.parametrize("form", ["compiled", "python"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gather_of_every_degree_keeps_the_order_of_the_sum(form, weighted):
    """Rows are added four, two and one at a time."""
    degrees = np.arange(12)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = RNG.integers(0, 30, indptr[-1]).astype(np.int32)
    # Of very different size: another order of the sum gives other bits.
    states = (
        RNG.standard_normal((30, 3)) * 10.0 ** RNG.integers(-4, 4, (30, 1))
    ).astype(np.float32)
    data = (RNG.random(indptr[-1]) if weighted else np.ones(indptr[-1])).astype(
        np.float32
    )
    function = kernels.gather_add
    if form == "python":
        function = function.py_func
    out = np.empty((12, 3), np.float32)
    weights = data if weighted else np.empty(0, np.float32)
    function(indptr, indices, weights, states[:20], states[20:], 0, 12, out)
    expected = np.zeros((12, 3), np.float32)
    for row in range(12):
        for edge in range(indptr[row], indptr[row + 1]):
            expected[row] += data[edge] * states[indices[edge]]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("nonzeros", [1, 8, 11, 16, 20])
def test_sparse_update_adds_nonzeros_one_after_the_other(nonzeros):
    """In registers, whole blocks transposed; rows beyond one tile of lanes."""
    rows, dim = kernels.LANES + 37, 20
    recurrent = draw("sparse", dim, nonzeros=nonzeros).recurrent
    gathered = RNG.standard_normal((rows, dim)).astype(np.float32)
    drive = RNG.standard_normal((rows, dim)).astype(np.float32)
    sums = np.zeros_like(gathered)
    for k in range(nonzeros):
        sums += recurrent.values[:, k] * gathered[:, recurrent.columns[:, k]]
    tile = np.zeros((dim, kernels.LANES), np.float32)
    total = np.zeros((kernels.WIDTH, kernels.LANES), np.float32)
    kernels.sparse_update(
        gathered, recurrent.columns, recurrent.values, drive, tile, total
    )
    np.testing.assert_array_equal(gathered, rational_tanh(sums + drive))


def draw(matrix, dim, scale=1.5, nonzeros=5) -> Weights:
    return draw_weights(
        2,
        dim,
        4,
        matrix=matrix,
        nonzeros=nonzeros,
        recurrent_scale=scale,
        input_scale=0.7,
        bias_scale=0.1,
        rho=3.0,
    )


def stored_drive(features, weights):
    return product(features, weights.inputs.T) + weights.bias


def drive_from_features(features, weights):
    return FeatureDrive.of(features, [weights])


DRIVES = pytest.mark.parametrize("drive_of", [stored_drive, drive_from_features])


@DRIVES
@pytest.mark.parametrize("matrix", ["dense", "sparse", "ring"])
@pytest.mark.parametrize("weighted", [False, True])
def test_supersteps_equal_the_numpy_twin_bit_for_bit(matrix, weighted, drive_of):
    part, adjacency = whole_partition(weighted=weighted)
    weights = draw(matrix, 18, scale=12.0)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 5)
    drive = drive_of(features, weights)
    states = np.zeros((300, 18), np.float32)
    for _ in range(5):
        states = after(part, states, drive, weights.recurrent)
    np.testing.assert_array_equal(states, expected)


@pytest.mark.parametrize("count", [0, 1, 4, 40])
def test_a_drive_from_features_has_the_bits_of_a_stored_one(count):
    """Two reservoirs side by side; rows together, in parts, and one by one."""
    features = RNG.standard_normal((700, count)).astype(np.float32)
    settings = {"nonzeros": 5, "recurrent_scale": 1.0, "rho": 3.0, "matrix": "dense"}
    scales = {"input_scale": 0.7, "bias_scale": 0.1}
    drawn = [draw_weights(s, 90, count, **settings, **scales) for s in (1, 2)]
    expected = np.hstack([stored_drive(features, weights) for weights in drawn])
    drive = FeatureDrive.of(features, drawn)
    assert drive.shape == expected.shape
    np.testing.assert_array_equal(drive.stored(threads=2), expected)
    np.testing.assert_array_equal(drive.part(300, 700).stored(), expected[300:])
    for first, last in [(0, 256), (255, 256), (444, 700)]:
        with drive.rows(first, last) as rows:
            np.testing.assert_array_equal(rows, expected[first:last])


def test_a_drive_is_stored_where_features_are_many():
    assert drive_width(0, 8) == 1
    assert drive_width(32, 128) == 33
    assert drive_width(33, 512) == 512
    assert drive_width(20, 64) == 64
    drive = FeatureDrive.of(np.zeros((10, 4), np.float32), [draw("dense", 64)])
    assert drive.nbytes == 10 * 4 * drive_width(4, 64)


def test_a_superstep_is_the_update_of_gathered_sums():
    part, _ = whole_partition()
    recurrent = draw("dense", 16).recurrent
    states = RNG.standard_normal((300, 16)).astype(np.float32)
    drive = RNG.standard_normal((300, 16)).astype(np.float32)
    sums = np.empty_like(states)
    gather(part, states, states[:0], sums)
    expected = rational_tanh(product(sums, recurrent.values.T) + drive)
    np.testing.assert_array_equal(after(part, states, drive, recurrent), expected)


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
    kernels.narrow.py_func(values[:, :3], out[:, :3])
    np.testing.assert_array_equal(out.view(np.float16), values.astype(np.float16))


@DRIVES
@pytest.mark.parametrize("matrix", ["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_float16_states_are_the_rounded_twins(matrix, weighted, drive_of):
    part, adjacency = whole_partition(weighted=weighted)
    weights = draw(matrix, 18, scale=12.0)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 5, "float16")
    drive = drive_of(features, weights)
    states = np.zeros((300, 18), np.float16)
    for _ in range(5):
        states = after(part, states, drive, weights.recurrent)
    np.testing.assert_array_equal(states.astype(np.float32), expected)


@pytest.mark.parametrize("matrix", ["dense", "sparse"])
def test_two_buffers_in_turn_give_the_bits_of_fresh_ones(matrix):
    """Earlier contents of buffers have no effect."""
    part, _ = whole_partition()
    recurrent = draw(matrix, 16, scale=12.0).recurrent
    drive = RNG.standard_normal((300, 16)).astype(np.float32)
    fresh = np.zeros((300, 16), np.float32)
    states, spare = fresh, np.full((300, 16), np.nan, np.float32)
    for _ in range(4):
        fresh = after(part, fresh, drive, recurrent)
        states, spare = after(part, states, drive, recurrent, out=spare), states
        np.testing.assert_array_equal(states, fresh)


def test_a_rows_product_is_independent_of_its_place_in_a_block():
    """The property that bits independent of the partition rest on."""
    for dim in (24, 128, 512):
        x = RNG.standard_normal((700, dim)).astype(np.float32)
        matrix = RNG.standard_normal((dim, dim)).astype(np.float32)
        whole = product(x, matrix)
        for shift in (1, 13, 100, 255, 300):
            np.testing.assert_array_equal(product(x[shift:], matrix), whole[shift:])


@pytest.mark.parametrize("half", [False, True])
def test_one_kernel_for_gather_and_update_gives_the_bits_of_two(half):
    part, _ = whole_partition(90, 400, weighted=False)
    recurrent = draw("sparse", 20).recurrent
    states = np.tanh(RNG.standard_normal((90, 20))).astype(np.float32)
    if half:
        states = states.astype(np.float16).view(np.uint16)
    edges = (part.indptr, part.indices, np.empty(0, np.float32))
    edges = (*edges, states[:70], states[70:])
    drive = RNG.standard_normal((55, 20)).astype(np.float32)
    tile = np.zeros((20, kernels.LANES), np.float32)
    total = np.zeros((kernels.WIDTH, kernels.LANES), np.float32)
    scratch = (recurrent.columns, recurrent.values, drive, tile, total)
    expected = np.empty_like(drive)
    kernels.gather_add(*edges, 9, 64, expected)
    kernels.sparse_update(expected, *scratch)
    for rows in (0, kernels.LANES):
        found = np.empty_like(drive)
        spare = np.empty((rows, 20), np.float32)
        kernels.sparse_superstep(*edges, 9, 64, *scratch, spare, found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("width", [1, 15, 40, 100])
@pytest.mark.parametrize("shift", [0, 3, 16])
def test_rows_written_past_the_caches_keep_every_element(width, shift):
    values = RNG.standard_normal((9, width)).astype(np.float32)
    around = np.full(9 * width + 64, 7, np.float32)
    out = around[shift : shift + 9 * width].reshape(9, width)
    kernels.stream(values, out)
    np.testing.assert_array_equal(out, values)
    np.testing.assert_array_equal(around[:shift], 7)
    np.testing.assert_array_equal(around[shift + 9 * width :], 7)


@pytest.mark.parametrize("matrix", ["dense", "sparse"])
def test_states_too_large_for_a_cache_have_the_same_bits(matrix, monkeypatch):
    part, _ = whole_partition(700, 3000, weighted=False)
    recurrent = draw(matrix, 24).recurrent
    states = np.tanh(RNG.standard_normal((700, 24))).astype(np.float32)
    drive = RNG.standard_normal((700, 24)).astype(np.float32)
    found = []
    for least in (2**28, 1):
        monkeypatch.setattr("xnq_dist.reservoir.superstep.STREAMED", least)
        found.append(after(part, states, drive, recurrent, threads=1))
    np.testing.assert_array_equal(*found)
