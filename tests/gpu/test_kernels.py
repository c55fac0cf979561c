"""The GPU's kernels against the CPU's bits, on a stand-in or a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.reservoir.reference import embed_reference, rational_tanh
from tests.reservoir.test_kernels import after, draw, whole_partition
from xnq_dist.core.products import product
from xnq_dist.reservoir import device as on_device
from xnq_dist.reservoir.superstep import first_states, gather

RNG = np.random.default_rng(11)


def run_on(backend, part, weights, features, steps):
    """States after some supersteps, on the host."""
    drive = product(features, weights.inputs.T) + weights.bias
    return run_driven(backend, part, weights.recurrent, drive, steps)


def run_driven(backend, part, recurrent, drive, steps):
    parts = recurrent if isinstance(recurrent, list) else [recurrent]
    there = on_device.OnDevice(backend, parts)
    part = on_device.move_partition(backend, part)
    states = backend.to_device(first_states(drive))
    drive = backend.to_device(drive)
    halo = backend.empty((0, drive.shape[1]))
    for _ in range(steps - 1):
        out = backend.empty(drive.shape)
        there.superstep(part, states, halo, drive, out)
        states = out
    return backend.to_host(states)


@pytest.mark.parametrize("width", [139, 64], ids=["odd", "loaded-by-four"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gather_has_the_cpus_bits_with_and_without_a_halo(device, weighted, width):
    whole, _ = whole_partition(90, 900, weighted)
    states = RNG.standard_normal((90, width)).astype(np.float32)
    for owned in (90, 60):
        # Owned rows are the first of a partition; the others are its halo.
        last = whole.indptr[owned]
        weights = None if whole.weights is None else whole.weights[:last]
        part = replace(
            whole,
            indptr=whole.indptr[: owned + 1],
            indices=whole.indices[:last],
            weights=weights,
        )
        given, found, expected = states[:owned], *np.empty((2, owned, width), "f4")
        gather(part, given, states[owned:], expected)
        moved = on_device.move_partition(device, part)
        on_device.gather(device, moved, given, states[owned:], found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_supersteps_have_the_numpy_twins_bits(device, weighted, monkeypatch):
    part, adjacency = whole_partition(weighted=weighted)
    weights = draw("sparse", 150, scale=12.0)
    features = RNG.standard_normal((300, 4)).astype(np.float32)
    expected = embed_reference(adjacency, features, weights, 4)
    # Shared memory for eight rows, and for one.
    for shared in (on_device.SHARED, 700):
        monkeypatch.setattr(on_device, "SHARED", shared)
        found = run_on(device, part, weights, features, 4)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("matrix", ["dense", "sparse"])
def test_a_reservoir_next_to_others_equals_itself_alone(device, matrix):
    part, _ = whole_partition()
    drawn = [draw(matrix, dim).recurrent for dim in (20, 13)]
    drive = RNG.standard_normal((300, 33)).astype(np.float32)
    both = run_driven(device, part, drawn, drive, 3)
    for columns, recurrent in zip((slice(0, 20), slice(20, 33)), drawn, strict=True):
        local = np.ascontiguousarray(drive[:, columns])
        alone = run_driven(device, part, recurrent, local, 3)
        np.testing.assert_array_equal(both[:, columns], alone)


@pytest.mark.parametrize("dims", [(16, 16, 16, 16), (20, 20, 20, 19)], ids=str)
@pytest.mark.parametrize("matrix", ["dense", "sparse"])
def test_four_reservoirs_have_the_cpus_bits_or_dense_its_digits(device, matrix, dims):
    part, _ = whole_partition(weighted=True)
    drawn = [
        draw(matrix, dim, scale=1.0 + number, nonzeros=3 + number).recurrent
        for number, dim in enumerate(dims)
    ]
    drive = RNG.standard_normal((300, sum(dims))).astype(np.float32)
    states = first_states(drive)
    for _ in range(2):
        states = after(part, states, drive, drawn)
    found = run_driven(device, part, drawn, drive, 3)
    rounding = 1e-5 if matrix == "dense" else 0
    np.testing.assert_allclose(found, states, rtol=0, atol=rounding)


@pytest.mark.parametrize("matrix", ["dense", "sparse"])
def test_kernels_launch_without_rows_edges_or_halo(device, matrix):
    whole, _ = whole_partition(5, 1)
    for rows in (5, 0):
        indptr, indices = np.zeros(rows + 1, np.int64), np.empty(0, np.int32)
        part = replace(whole, indptr=indptr, indices=indices)
        drive = RNG.standard_normal((rows, 8)).astype(np.float32)
        found = run_driven(device, part, draw(matrix, 8).recurrent, drive, 3)
        np.testing.assert_array_equal(found, rational_tanh(drive))


def test_copies_keep_the_values_they_began_with(device):
    here = np.arange(100, dtype=np.float32).reshape(20, 5)
    moved, column = device.to_device(here), device.to_device(here[:, :1])
    here.fill(-1)
    expected = np.arange(100).reshape(20, 5)
    for found, values in ((moved, expected), (column, expected[:, :1])):
        np.testing.assert_array_equal(device.to_host(found), values)
    np.testing.assert_array_equal(device.to_host(moved[:, :1]), expected[:, :1])
