"""Copies between host and device memory, and page-locked buffers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from tests.gpu.conftest import make_backend
from xnq_dist.core import backend as backends

LATE = []
"""Copies from page-locked memory, which begin when the device is waited for."""


def wait():
    """All work of the device is done."""
    while LATE:
        LATE.pop(0)()


@dataclass
class There:
    """An array with CuPy's functions for copies, which is not a NumPy array."""

    rows: np.ndarray

    def __getattr__(self, name):
        return getattr(self.rows, name)

    def __getitem__(self, key):
        return There(self.rows[key])

    def reshape(self, *shape):
        """A view, as CuPy's of a contiguous array."""
        assert self.rows.flags.c_contiguous
        return There(self.rows.reshape(*shape))

    def get(self, out=None):
        """To the host, into an array of this shape and type; the copy is waited for."""
        wait()
        if out is None:
            return self.rows.copy()
        assert out.flags.c_contiguous
        assert (out.shape, out.dtype) == (self.rows.shape, self.rows.dtype)
        out[...] = self.rows
        return out

    def set(self, here):
        """From the host, at some time."""
        assert isinstance(here, np.ndarray)
        assert (here.shape, here.dtype) == (self.rows.shape, self.rows.dtype)
        LATE.append(lambda: np.copyto(self.rows, here))


def there(array):
    """On the device; an array that is there already is not copied."""
    return array if isinstance(array, There) else There(np.array(array))


@pytest.fixture
def locked(monkeypatch):
    """Sizes of page-locked buffers while NumPy stands in for CuPy."""
    sizes = []

    def empty_pinned(shape, dtype):
        sizes.append(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return np.full(shape, 255, dtype)

    cupy = SimpleNamespace(
        empty=lambda shape, dtype: There(np.empty(shape, dtype)),
        asarray=there,
        ascontiguousarray=lambda a: There(np.ascontiguousarray(a.rows)),
        cuda=SimpleNamespace(
            get_current_stream=lambda: SimpleNamespace(synchronize=wait)
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(
        sys.modules, "cupyx", SimpleNamespace(empty_pinned=empty_pinned)
    )
    return sizes


@pytest.fixture(params=["played", pytest.param("gpu", marks=pytest.mark.gpu)])
def copying(request):
    """The backend of a device, or the same with NumPy in the role of CuPy."""
    if request.param == "gpu":
        return make_backend("gpu")
    request.getfixturevalue("locked")
    return backends.GpuBackend()


@pytest.mark.parametrize("most", [64, 2**20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_])
@pytest.mark.parametrize("shape", [(7,), (16, 3), (0, 3), (1, 1)])
def test_copies_there_and_back_are_equal(copying, shape, dtype, most, monkeypatch):
    monkeypatch.setattr(backends, "LOCKED", most)
    rng = np.random.default_rng(1)
    here = (rng.random(shape) * 9).astype(dtype)
    moved = copying.to_device(here)
    back = copying.to_host(moved)
    assert type(back) is np.ndarray
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, here)
    # Columns of a wider array, from either side.
    if len(shape) == 2 and here.size:
        columns = here[:, :1]
        np.testing.assert_array_equal(
            copying.to_host(copying.to_device(columns)), columns
        )
        np.testing.assert_array_equal(copying.to_host(moved[:, :1]), columns)


def test_copies_keep_the_values_they_began_with(copying):
    here = copying.to_host(copying.to_device(np.arange(100.0)))  # page-locked
    moved = copying.to_device(here)
    here[:] = -1
    np.testing.assert_array_equal(copying.to_host(moved), np.arange(100.0))


def test_copies_lock_a_bounded_amount_of_memory(locked, monkeypatch):
    backend = backends.GpuBackend()
    monkeypatch.setattr(backends, "LOCKED", 4096)
    for count in range(1, 3000, 7):
        rows = np.arange(count, dtype=np.float64)
        backend.to_host(backend.to_device(rows))
    # CuPy keeps every size that was locked, so there are few sizes below a maximum.
    assert len(set(locked)) <= 11
    assert max(locked) == 4096
