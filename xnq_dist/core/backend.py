"""Array backends: the only module that may import GPU packages."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np

from xnq_dist.core.errors import ClusterError, SettingsError

__all__ = [
    "Backend",
    "GpuBackend",
    "GpuFacts",
    "Kernel",
    "Precision",
    "choose",
    "cpu",
    "cuda_cluster",
    "cugraph",
    "data_frames",
    "device_share",
    "gpu",
    "gpu_facts",
    "need_cuda",
]

Precision = Literal["float32", "tf32", "float16", "bfloat16"]

GPU_PACKAGES = ("cupy", "cudf", "cugraph", "dask_cuda", "rmm")
INSTALL = "pip install 'xnq-dist[gpu]'"
COMPILE = ("--std=c++14", "--fmad=false", "--prec-div=true", "--ftz=false")
"""Every sum and product is rounded on its own: no fused multiply-add, so that a row's
bits do not depend on what the compiler saw around it."""

LOCKED = 64 * 2**20
"""Bytes of page-locked memory that a copy to the host takes at most."""

# cuBLAS: types of matrices and how they are multiplied, by precision.
_REAL32, _REAL16, _BRAIN16 = 0, 2, 14
_COMPUTE32, _COMPUTE_TF32 = 68, 77
_MATRIX = {
    "float32": (_REAL32, _COMPUTE32),
    "tf32": (_REAL32, _COMPUTE_TF32),
    "float16": (_REAL16, _COMPUTE32),
    "bfloat16": (_BRAIN16, _COMPUTE32),
}


class Kernel(Protocol):
    """A compiled kernel of `gpu_kernels`."""

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        """Launch it; scalars are NumPy scalars of the kernel's own types."""


@dataclass(frozen=True)
class Backend:
    """Where arrays live and which kernels work on them."""

    name: str
    """``cpu``: NumPy and numba; ``gpu``: CuPy and CUDA kernels."""
    kernels: str
    """Module with this backend's superstep kernels."""
    precision: Precision = "float32"
    """Of states and products; the CPU knows float32 alone."""

    @property
    def on_device(self) -> bool:
        """Whether arrays live outside the host's memory."""
        return False

    @property
    def xp(self) -> ModuleType:
        """The array module."""
        return np

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """What a state is kept in; bfloat16 as its 16 bits."""
        kinds = {"float16": np.float16, "bfloat16": np.uint16}
        return np.dtype(kinds.get(self.precision, np.float32))

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """An array of this backend, not filled."""
        return self.xp.empty(shape, dtype=dtype)

    def to_host(self, array: Any) -> np.ndarray:
        """The array as NumPy."""
        return np.asarray(array)

    def to_device(self, array: Any) -> Any:
        """The array where this backend works on it, C-contiguous."""
        return np.ascontiguousarray(array)


@dataclass(frozen=True)
class GpuBackend(Backend):
    """CuPy arrays on the current device, kernels compiled by NVRTC, cuBLAS."""

    @property
    def on_device(self) -> bool:
        """Whether arrays live outside the host's memory."""
        return True

    @property
    def xp(self) -> ModuleType:
        """The array module."""
        import cupy

        return cupy  # type: ignore[no-any-return]

    def to_host(self, array: Any) -> np.ndarray:
        """The array as NumPy, through page-locked memory."""
        if isinstance(array, np.ndarray):
            return array
        if not array.ndim or not array.size:
            return np.asarray(array.get())
        there = self.xp.ascontiguousarray(array)
        if there.nbytes <= LOCKED:
            whole = _locked(there.nbytes)[: there.nbytes].view(there.dtype)
            host: np.ndarray = whole.reshape(there.shape)
            there.get(out=host)
            return host
        # Locking all of a large array takes longer than copying it once more.
        host = np.empty(there.shape, there.dtype)
        source, target = there.reshape(-1), host.reshape(-1)
        piece = _locked(LOCKED).view(there.dtype)
        for first in range(0, len(target), len(piece)):
            part = target[first : first + len(piece)]
            source[first : first + len(part)].get(out=piece[: len(part)])
            part[...] = piece[: len(part)]
        return host

    def to_device(self, array: Any) -> Any:
        """The array on the device, C-contiguous."""
        if not isinstance(array, np.ndarray):
            return self.xp.ascontiguousarray(self.xp.asarray(array))
        # Not `asarray`: it locks as much memory as the array has and keeps it locked.
        here = np.ascontiguousarray(array)
        there = self.xp.empty(here.shape, here.dtype)
        if here.size:
            there.set(here)
            # What is page-locked is not copied yet, and may be written to or freed.
            self.synchronize()
        return there

    def kernel(self, source: str, name: str, defines: tuple[str, ...] = ()) -> Kernel:
        """One kernel of a CUDA source, compiled once a process and device."""
        device = int(self.xp.cuda.runtime.getDevice())
        return _compiled(source, name, defines, device)

    def multiply(self, x: Any, matrix: Any, out: Any) -> None:
        """``out = x matrix^T`` on the tensor or CUDA cores, by `precision`.

        Parameters
        ----------
        x, matrix
            In `state_dtype`, C-contiguous, shapes (n, k) and (m, k).
        out
            float32, C-contiguous, shape (n, m).
        """
        from cupy.cuda import cublas, device

        kind, compute = _MATRIX[self.precision]
        one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        rows, inner = x.shape
        columns = matrix.shape[0]
        # cuBLAS reads rows as columns: out^T = matrix x^T, `matrix` transposed back.
        cublas.gemmEx(
            device.get_cublas_handle(),
            *(1, 0, columns, rows, inner),
            one.ctypes.data,
            *(matrix.data.ptr, kind, inner),
            *(x.data.ptr, kind, inner),
            zero.ctypes.data,
            *(out.data.ptr, _REAL32, columns),
            *(compute, -1),
        )

    def held_bytes(self) -> int:
        """Bytes that CuPy's pool has ever needed since `release`."""
        return int(self.xp.get_default_memory_pool().total_bytes())

    def free_bytes(self) -> int:
        """Bytes of the device's memory that nobody holds."""
        return int(self.xp.cuda.runtime.memGetInfo()[0])

    def release(self) -> None:
        """Give what the pools hold and no array needs back to device and host."""
        self.xp.get_default_memory_pool().free_all_blocks()
        self.xp.get_default_pinned_memory_pool().free_all_blocks()

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        self.xp.cuda.get_current_stream().synchronize()


def _locked(size: int) -> np.ndarray:
    """Page-locked bytes, at least so many.

    CuPy keeps what was locked, for arrays of the same size alone: of powers of two
    there are few.
    """
    import cupyx

    found: np.ndarray = cupyx.empty_pinned((1 << (size - 1).bit_length(),), np.uint8)
    return found


@lru_cache(maxsize=64)
def _compiled(source: str, name: str, defines: tuple[str, ...], _device: int) -> Kernel:
    import cupy

    module = cupy.RawModule(code=source, options=(*COMPILE, *defines))
    return module.get_function(name)  # type: ignore[no-any-return]


def cpu() -> Backend:
    """The NumPy / numba backend."""
    return Backend("cpu", "xnq_dist.reservoir.kernels")


def gpu(precision: Precision = "float32") -> GpuBackend:
    """The CuPy / CUDA backend.

    Raises
    ------
    SettingsError
        When a package or a device is missing; the message says which and what to do.
    """
    facts = gpu_facts()
    if not facts.devices:
        raise SettingsError(f"backend = gpu cannot be used: {facts.reason}")
    return GpuBackend("gpu", "xnq_dist.reservoir.gpu_kernels", precision)


def choose(wanted: str, precision: Precision = "float32") -> Backend:
    """The backend of this process.

    Parameters
    ----------
    wanted
        ``cpu``, ``gpu``, or ``auto``: the GPU where there is one.
    precision
        Of states and products on the GPU.

    Raises
    ------
    SettingsError
        When a GPU is asked for and cannot be used, or the CPU is to compute in
        anything but float32.
    """
    if wanted == "gpu" or (wanted == "auto" and gpu_facts().devices):
        return gpu(precision)
    if precision != "float32":
        raise SettingsError(
            f"reservoir.precision = {precision} is for GPUs, and the work runs on the "
            "CPU: set reservoir.precision = float32, or backend = gpu on a machine "
            "with one"
        )
    return cpu()


@dataclass(frozen=True)
class GpuFacts:
    """What this machine offers for GPU work."""

    packages: dict[str, bool]
    """Package name -> installed."""
    devices: int
    reason: str
    """Why no device can be used, and what to do; empty when one can."""
    memory: int = 0
    """Bytes of the smallest device's memory."""


def gpu_facts() -> GpuFacts:
    """Look for GPU packages and devices without using them.

    All RAPIDS packages import on a machine without a GPU and fail at first use, so
    the devices are asked of CuPy.
    """
    packages = {name: _installed(name) for name in GPU_PACKAGES}
    if not packages["cupy"]:
        return GpuFacts(packages, 0, f"CuPy is not installed: {INSTALL}")
    try:
        import cupy
    except ImportError as error:
        return GpuFacts(packages, 0, f"CuPy does not import ({error}): {INSTALL}")
    if not cupy.cuda.is_available():
        reason = (
            "CuPy finds no CUDA device: check nvidia-smi and the driver, or set "
            "backend = cpu"
        )
        return GpuFacts(packages, 0, reason)
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
        # Not `Device.mem_info`: it would take memory for a context on every device.
        about = cupy.cuda.runtime.getDeviceProperties
        memory = min(int(about(number)["totalGlobalMem"]) for number in range(count))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        reason = f"CuPy cannot use the CUDA device ({error}): check nvidia-smi"
        return GpuFacts(packages, 0, reason)
    return GpuFacts(packages, count, "", memory)


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def need_cuda() -> GpuFacts:
    """What a cluster of GPU workers stands on.

    Raises
    ------
    ClusterError
        When dask-cuda, RMM, CuPy or a device is missing.
    """
    facts = gpu_facts()
    missing = [name for name in ("cupy", "dask_cuda", "rmm") if not _installed(name)]
    if missing:
        raise ClusterError(
            f"cluster.kind = cuda needs {', '.join(missing)}, not installed here: "
            f"{INSTALL}, or with CuPy alone set cluster.kind = local, "
            "cluster.workers = 1 and backend = gpu"
        )
    if not facts.devices:
        raise ClusterError(f"cluster.kind = cuda cannot start: {facts.reason}")
    return facts


def cuda_cluster(**options: Any) -> Any:
    """A `dask_cuda.LocalCUDACluster`: one worker a GPU.

    Raises
    ------
    ClusterError
        When dask-cuda, RMM, CuPy or a device is missing.
    """
    need_cuda()
    from dask_cuda import LocalCUDACluster

    return LocalCUDACluster(**options)


def device_share() -> tuple[str, int]:
    """The device of this process, named by its bus, and its memory in bytes.

    Raises
    ------
    SettingsError
        When there is none.
    """
    device = gpu().xp.cuda.Device()
    return str(device.pci_bus_id), int(device.mem_info[1])


def data_frames() -> ModuleType:
    """The package cuDF.

    Raises
    ------
    SettingsError
        When it is missing or there is no device.
    """
    return _rapids("cudf")


def cugraph() -> ModuleType:
    """The package cuGraph.

    Raises
    ------
    SettingsError
        When it is missing or there is no device.
    """
    return _rapids("cugraph")


def _rapids(name: str) -> ModuleType:
    if not _installed(name):
        raise SettingsError(f"{name} is not installed: {INSTALL}")
    facts = gpu_facts()
    if not facts.devices:
        raise SettingsError(f"{name} cannot be used: {facts.reason}")
    return importlib.import_module(name)
