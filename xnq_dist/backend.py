"""Array backends: the only module that may import GPU packages."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["Backend", "GpuFacts", "cpu", "gpu_facts"]


@dataclass(frozen=True)
class Backend:
    """Where arrays live and which kernels work on them."""

    name: str
    """``cpu``: NumPy arrays and numba kernels."""
    kernels: str
    """Module with this backend's superstep kernels."""

    @property
    def xp(self) -> ModuleType:
        """The array module."""
        return np

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """An array of this backend, not filled."""
        return self.xp.empty(shape, dtype=dtype)

    def to_host(self, array: Any) -> np.ndarray:
        """The array as NumPy."""
        return np.asarray(array)


def cpu() -> Backend:
    """The NumPy / numba backend."""
    return Backend("cpu", "xnq_dist.reservoir.kernels")


@dataclass(frozen=True)
class GpuFacts:
    """What this machine offers for GPU work."""

    packages: dict[str, bool]
    """Package name -> installed."""
    devices: int
    reason: str
    """Why no device can be used; empty when one can."""


def gpu_facts() -> GpuFacts:
    """Look for GPU packages and devices without using them.

    All RAPIDS packages import on a machine without a GPU and fail at first use, so
    the devices are asked of CuPy.
    """
    names = ("cupy", "cudf", "cugraph", "dask_cuda", "rmm")
    packages = {name: importlib.util.find_spec(name) is not None for name in names}
    if not packages["cupy"]:
        return GpuFacts(packages, 0, "CuPy is not installed")
    try:
        import cupy
    except ImportError as error:
        return GpuFacts(packages, 0, f"CuPy does not import: {error}")
    if not cupy.cuda.is_available():
        return GpuFacts(packages, 0, "CuPy finds no CUDA device")
    return GpuFacts(packages, int(cupy.cuda.runtime.getDeviceCount()), "")
