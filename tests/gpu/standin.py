"""A stand-in for a GPU on the CPU: NumPy for CuPy, g++ for NVRTC.

The source of the kernels is compiled with `emulate.h` and run block by block, with the
same grids, blocks and arguments as on a device; an argument of the wrong type or layout
is an error. It cannot show speed.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
import threading
import weakref
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from distributed import get_worker

from xnq_dist.core import backend as backends
from xnq_dist.core import cluster
from xnq_dist.core.backend import GpuBackend
from xnq_dist.plan import of_tables as tables

__all__ = ["DeviceArray", "HeldBytes", "StandinBackend", "places", "signatures"]

HERE = Path(__file__).parent
TYPES = {
    "int": np.int32,
    "long long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "unsigned char": np.uint8,
}
ONE_AT_A_TIME = threading.Lock()
"""Lock, since the emulated device has one set of thread and block indices."""


class HeldBytes:
    """Most bytes that the arrays of one worker took on the emulated device."""

    def __init__(self) -> None:
        self.peak = 0
        self._arrays: dict[int, tuple[str, weakref.ref[DeviceArray]]] = {}

    def add(self, array: DeviceArray) -> None:
        """Count an array as long as it exists; views count as what they are of."""
        try:
            worker = get_worker().address
        except ValueError:
            return
        self._arrays[id(array)] = worker, weakref.ref(array)

    def look(self) -> None:
        """Raise the peak to what is held now."""
        held: dict[str, dict[int, int]] = {}
        for worker, there in list(self._arrays.values()):
            array: Any = there()
            while array is not None and isinstance(array.base, np.ndarray):
                array = array.base
            if array is not None:
                held.setdefault(worker, {})[id(array)] = array.nbytes
        peaks = (sum(arrays.values()) for arrays in held.values())
        self.peak = max([self.peak, *peaks])


class DeviceArray(np.ndarray):
    """An array on the emulated device, of another type than the host's.

    Results of NumPy's functions on it are of its kind too; `asarray` makes a host's.
    """

    watch: HeldBytes | None = None
    """Counts the memory of all arrays, if it is set."""

    def __array_finalize__(self, _parent: Any) -> None:
        if DeviceArray.watch is not None:
            DeviceArray.watch.add(self)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        look()
        return found

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> Any:
        """As CuPy's, without a choice for indices that are out of range."""
        assert isinstance(indices, DeviceArray)
        assert not indices.size or indices.max() < self.shape[axis or 0]
        look()
        return super().take(indices, axis, out, "clip")  # "raise" copies `out`

    def __setitem__(self, key: Any, value: Any) -> None:
        assert not isinstance(value, np.ndarray) or isinstance(value, DeviceArray)
        look()
        super().__setitem__(key, value)


def look() -> None:
    """Note how much memory of the emulated device is held."""
    if DeviceArray.watch is not None:
        DeviceArray.watch.look()


class StandinArrays:
    """NumPy in the role of CuPy; it makes `DeviceArray`s."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = found(*args, **kwargs)
            if not isinstance(answer, np.ndarray):
                return answer
            return answer.view(DeviceArray)

        return call


@dataclass(frozen=True)
class StandinBackend(GpuBackend):
    """Emulates a GPU on the CPU."""

    @property
    def xp(self) -> ModuleType:
        """NumPy."""
        return StandinArrays()  # type: ignore[return-value]

    def empty(self, shape, dtype=np.float32):
        """An array of NaN or of the largest number, like uninitialised memory."""
        kind = np.dtype(dtype)
        rest = np.nan if kind.kind == "f" else np.iinfo(kind).max
        return np.full(shape, rest, kind).view(DeviceArray)

    def to_host(self, array):
        """The array, for the host."""
        return np.array(array, order="C", subok=False)

    def to_device(self, array):
        """The array, C-contiguous."""
        if isinstance(array, DeviceArray) and array.flags.c_contiguous:
            return array
        return np.array(array, order="C", subok=False).view(DeviceArray)

    def kernel(self, source, name, defines=()):
        """The kernel, compiled by g++."""
        return Emulated(source, name, tuple(defines))

    def synchronize(self):
        """Nothing runs."""


def places() -> list[tuple[ModuleType, str, Any]]:
    """Functions that look for a GPU, and their replacements."""
    facts = backends.GpuFacts(1, "", 2**30)
    return [
        (backends, "gpu", StandinBackend),
        (cluster, "device_share", lambda: ("played", 2**34)),
        *((module, "gpu_facts", lambda: facts) for module in (backends, cluster)),
        (tables, "gpu_facts", lambda: facts),
    ]


@dataclass(frozen=True)
class Emulated:
    """One kernel, called as CuPy calls it."""

    source: str
    name: str
    defines: tuple[str, ...]

    def __call__(self, grid, block, args, *, shared_mem=0):
        look()
        assert np.prod(block) <= 1024
        assert shared_mem <= 48 * 1024
        assert all(side <= 65535 for side in grid[1:])
        held = [
            self._argument(value, text, place)
            for place, (value, text) in enumerate(
                zip(args, signatures(self.source)[self.name], strict=True)
            )
        ]
        addresses = [value.ctypes.data for value in held]
        pointers = (ctypes.c_void_p * len(args))(*addresses)
        sides = [
            (ctypes.c_uint * 3)(*[*side, 1, 1][:3])
            for side in (map(int, grid), map(int, block))
        ]
        call = getattr(compiled(self.source, self.defines), f"launch_{self.name}")
        with ONE_AT_A_TIME:
            failed = call(*sides, ctypes.c_long(shared_mem), pointers)
        if failed:
            raise RuntimeError(f"{self.name}: threads came to different barriers")

    def _argument(self, value: Any, text: str, place: int) -> np.ndarray:
        """An argument as bytes, after a check that it is what the kernel declares."""
        kind, name = text.replace("const ", "").rsplit(" ", 1)
        expected = TYPES[kind.rstrip("* ")]
        what = f"{self.name}, argument {place}: {type(value)} for {text}"
        if not kind.endswith("*"):
            assert isinstance(value, expected), what
            return np.array(value)
        assert isinstance(value, DeviceArray), what
        bits = value.view(np.uint8) if value.dtype == np.bool_ else value
        assert bits.dtype == expected, f"{what}, {value.dtype}"
        assert value.size, f"{what}, empty"
        strided = f"{name}_stride" in "".join(signatures(self.source)[self.name])
        assert strided or value.flags.c_contiguous, f"{what}, not contiguous"
        return np.array(value.ctypes.data, np.uintp)


@cache
def signatures(source: str) -> dict[str, list[str]]:
    """Parameters of each kernel of a source."""
    bounds = r"(?:__launch_bounds__\(\d+, \d+\) )?"
    found = re.findall(rf'extern "C" __global__ void {bounds}(\w+)\(([^)]*)\)', source)
    return {name: [p.strip() for p in text.split(",")] for name, text in found}


@cache
def compiled(source: str, defines: tuple[str, ...]) -> ctypes.CDLL:
    """Compile the source to a library, with an entry point for each kernel."""
    text = f'#include "{HERE / "emulate.h"}"\n{source}\n'
    for name, given in signatures(source).items():
        kinds = [p.rsplit(" ", 1)[0] for p in given]
        passed = ", ".join(f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds))
        # A function that kernels share can synchronise too.
        seen = source[: source.index('extern "C"')] + body_of(source, name)
        barriers = "true" if "__sync" in seen else "false"
        text += (
            f"static void call_{name}(void** a) {{ {name}({passed}); }}\n"
            f'extern "C" int launch_{name}(const unsigned int* grid, const unsigned '
            f"int* block, long shared, void** a) {{ return launch(grid, block, shared, "
            f"{barriers}, call_{name}, a); }}\n"
        )
    folder = Path(tempfile.mkdtemp(prefix="xnq-standin-"))
    (folder / "kernels.cpp").write_text(text)
    subprocess.run(
        [
            *("g++", "-std=c++17", "-O1", "-ffp-contract=off", "-fno-fast-math"),
            *("-shared", "-fPIC", *defines, "-o", str(folder / "kernels.so")),
            str(folder / "kernels.cpp"),
        ],
        check=True,
        capture_output=True,
    )
    return ctypes.CDLL(str(folder / "kernels.so"))


def body_of(source: str, name: str) -> str:
    """The text from a kernel's name to the next kernel."""
    begin = source.index(f" {name}(")
    end = source.find('extern "C"', begin)
    return source[begin : end if end > 0 else None]
