"""Array backends: the only module that may import GPU packages."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from xnq_dist.core.errors import ClusterError, SettingsError

__all__ = [
    "Backend",
    "GpuBackend",
    "GpuFacts",
    "Kernel",
    "choose",
    "cuda_cluster",
    "device_share",
    "gpu",
    "gpu_facts",
    "missing",
    "need_cuda",
]

INSTALL = "pip install 'xnq-dist[gpu]'"
COMPILE = ("--std=c++14", "--fmad=false", "--prec-div=true", "--ftz=false")
"""Every sum and product is rounded separately, without fused multiply-add, so that the
bits of a row do not depend on compiler optimisations."""


Kernel = Callable[..., None]
"""A compiled kernel of ``superstep.cu``, called with grid, block, arguments and, for
some, ``shared_mem``; scalars are NumPy scalars of the types that it declares."""


@dataclass(frozen=True)
class Backend:
    """Arrays in the memory of the host: NumPy."""

    on_device: ClassVar[bool] = False
    """Whether arrays are in a device's memory."""

    @property
    def xp(self) -> ModuleType:
        """The array module."""
        return np

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """An uninitialised array of this backend."""
        return self.xp.empty(shape, dtype=dtype)

    def to_host(self, array: Any) -> np.ndarray:
        """The array as NumPy."""
        return np.asarray(array)

    def to_device(self, array: Any) -> Any:
        """The array in this backend's memory, C-contiguous."""
        return np.ascontiguousarray(array)


@dataclass(frozen=True)
class GpuBackend(Backend):
    """CuPy arrays on the current device, kernels compiled by NVRTC."""

    on_device = True

    @property
    def xp(self) -> ModuleType:
        """The array module."""
        import cupy

        return cupy  # type: ignore[no-any-return]

    def to_host(self, array: Any) -> np.ndarray:
        """The array as NumPy."""
        if isinstance(array, np.ndarray):
            return array
        host: np.ndarray = array.get()
        return host

    def to_device(self, array: Any) -> Any:
        """The array on the device, C-contiguous."""
        if not isinstance(array, np.ndarray):
            return self.xp.ascontiguousarray(self.xp.asarray(array))
        # `asarray` would lock as much memory as the array has and keep it locked.
        here = np.ascontiguousarray(array)
        there = self.xp.empty(here.shape, here.dtype)
        if here.size:
            there.set(here)
            self.synchronize()
        return there

    def kernel(self, source: str, name: str, defines: tuple[str, ...]) -> Kernel:
        """One kernel of a CUDA source, compiled once per process and device."""
        device = int(self.xp.cuda.runtime.getDevice())
        return _compiled(source, name, defines, device)

    def synchronize(self) -> None:
        """Wait until the device has finished all submitted work."""
        self.xp.cuda.get_current_stream().synchronize()


@lru_cache(maxsize=64)
def _compiled(source: str, name: str, defines: tuple[str, ...], _device: int) -> Kernel:
    import cupy

    module = cupy.RawModule(code=source, options=(*COMPILE, *defines))
    return module.get_function(name)  # type: ignore[no-any-return]


def gpu() -> GpuBackend:
    """CuPy and CUDA kernels on the current device.

    Raises
    ------
    SettingsError
        When a package or a device is missing; the message names it and what to do.
    """
    facts = gpu_facts()
    if not facts.devices:
        raise SettingsError(f"backend = gpu cannot be used: {facts.reason}")
    return GpuBackend()


def choose(requested: str) -> Backend:
    """The backend ``cpu`` or ``gpu``, which `cluster.settle` chose for all workers.

    Raises
    ------
    SettingsError
        When a GPU is requested and cannot be used.
    """
    return gpu() if requested == "gpu" else Backend()


@dataclass(frozen=True)
class GpuFacts:
    """GPU packages and devices of this machine."""

    devices: int
    reason: str
    """Why no device can be used, and what to do; empty if one can be used."""
    memory: int = 0
    """Bytes of the smallest device's memory."""


def gpu_facts() -> GpuFacts:
    """Look for GPU packages and devices without using them.

    RAPIDS packages import on a machine without a GPU and fail on first use, so CuPy is
    used to find devices.
    """
    try:
        import cupy
    except ImportError as error:
        return GpuFacts(0, f"CuPy cannot be imported ({error}): {INSTALL}")
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
        # `Device.mem_info` would allocate a context on every device.
        properties = cupy.cuda.runtime.getDeviceProperties
        memory = min(int(properties(k)["totalGlobalMem"]) for k in range(count))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        reason = (
            f"CuPy cannot use a CUDA device ({error}): check nvidia-smi and the "
            "driver, or set backend = cpu"
        )
        return GpuFacts(0, reason)
    return GpuFacts(count, "", memory)


def missing(*packages: str) -> list[str]:
    """Those of the packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def need_cuda() -> GpuFacts:
    """Check that a cluster of GPU workers can start; return this machine's GPU facts.

    Raises
    ------
    ClusterError
        When dask-cuda, RMM, CuPy or a device is missing.
    """
    facts = gpu_facts()
    if without := missing("cupy", "dask_cuda", "rmm"):
        raise ClusterError(
            f"cluster.kind = cuda needs {', '.join(without)}, not installed here: "
            f"{INSTALL}, or with CuPy alone set cluster.kind = local, "
            "cluster.workers = 1 and backend = gpu"
        )
    if not facts.devices:
        raise ClusterError(f"cluster.kind = cuda cannot start: {facts.reason}")
    return facts


def cuda_cluster(**options: Any) -> Any:
    """A `dask_cuda.LocalCUDACluster`: one worker for each GPU.

    Raises
    ------
    ClusterError
        When dask-cuda, RMM, CuPy or a device is missing.
    """
    need_cuda()
    from dask_cuda import LocalCUDACluster

    return LocalCUDACluster(**options)


def device_share() -> tuple[str, int]:
    """Host and PCI bus id of this process's device, and its memory in bytes.

    Raises
    ------
    SettingsError
        When there is no device.
    """
    device = gpu().xp.cuda.Device()
    return f"{os.uname().nodename} {device.pci_bus_id}", int(device.mem_info[1])
