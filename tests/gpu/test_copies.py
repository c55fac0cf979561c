"""Copies between host and device memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from tests.gpu.conftest import make_backend
from xnq_dist.core import backend as backends

LATE = []
"""Copies to the device, which begin when it is waited for."""


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

    def get(self):
        """To the host; the copy is waited for."""
        wait()
        return self.rows.copy(order="C")

    def set(self, here):
        """From the host, at some time."""
        assert isinstance(here, np.ndarray)
        assert (here.shape, here.dtype) == (self.rows.shape, self.rows.dtype)
        LATE.append(lambda: np.copyto(self.rows, here))


def there(array):
    """On the device; an array that is there already is not copied."""
    return array if isinstance(array, There) else There(np.array(array))


@pytest.fixture
def played(monkeypatch):
    """NumPy stands in for CuPy."""
    cupy = SimpleNamespace(
        empty=lambda shape, dtype: There(np.empty(shape, dtype)),
        asarray=there,
        ascontiguousarray=lambda a: There(np.ascontiguousarray(a.rows)),
        cuda=SimpleNamespace(
            get_current_stream=lambda: SimpleNamespace(synchronize=wait)
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)


@pytest.fixture(params=["played", pytest.param("gpu", marks=pytest.mark.gpu)])
def copying(request):
    """The backend of a device, or the same with NumPy in the role of CuPy."""
    if request.param == "gpu":
        return make_backend("gpu")
    request.getfixturevalue("played")
    return backends.GpuBackend()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_])
@pytest.mark.parametrize("shape", [(7,), (16, 3), (0, 3), (1, 1)])
def test_copies_there_and_back_are_equal(copying, shape, dtype):
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
    here = copying.to_host(copying.to_device(np.arange(100.0)))
    moved = copying.to_device(here)
    here[:] = -1
    np.testing.assert_array_equal(copying.to_host(moved), np.arange(100.0))
