"""A stand-in for a GPU on the CPU: NumPy for CuPy, g++ for NVRTC.

The source of the kernels is compiled with `emulate.h` and run block by block, with the
same grids, blocks and arguments as on a device; an argument of the wrong type or layout
is an error. It cannot show speed, cuBLAS's bits and memory on a device.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from xnq_dist.core import backend as backends
from xnq_dist.core import cluster
from xnq_dist.core.backend import GpuBackend
from xnq_dist.core.products import product
from xnq_dist.plan import of_tables as tables
from xnq_dist.reservoir.device import decode, encode

HERE = Path(__file__).parent
TYPES = {
    "int": np.int32,
    "long long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "unsigned char": np.uint8,
    "signed char": np.int8,
}
ONE_AT_A_TIME = threading.Lock()
"""Lock, since the emulated device has one set of thread and block indices."""
STATES = {"32": np.float32, "16": np.float16, "8": np.uint16}


class DeviceArray(np.ndarray):
    """An array on the emulated device, of another type than the host's.

    Results of NumPy's functions on it are of its kind too; `asarray` makes a host's.
    """


class StandinArrays:
    """NumPy in the role of CuPy; it makes `DeviceArray`s."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = found(*args, **kwargs)
            return (
                answer.view(DeviceArray) if isinstance(answer, np.ndarray) else answer
            )

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
        return np.array(array, order="C", subok=False).view(DeviceArray)

    def kernel(self, source, name, defines=()):
        """The kernel, compiled by g++."""
        return Emulated(source, name, tuple(defines))

    def multiply(self, x, matrix, out):
        """``out = x matrix^T`` of rounded values, sums in float32."""
        assert x.strides[1] == x.itemsize
        assert matrix.flags.c_contiguous
        assert out.dtype == np.float32
        assert out.strides[1] == out.itemsize
        columns, inner = matrix.shape[-2:]
        for number, block in enumerate(matrix.reshape(-1, columns, inner)):
            part = x[:, number * inner : (number + 1) * inner]
            left, right = decode(np.ascontiguousarray(part)), decode(np.asarray(block))
            if self.precision == "tf32":
                left, right = tf32(left), tf32(right)
            at = slice(number * columns, (number + 1) * columns)
            out[:, at] = product(np.asarray(left), right.T)

    def free_bytes(self):
        """The memory of a small device."""
        return 2**34

    def held_bytes(self):
        """Nothing is held."""
        return 0

    def release(self):
        """Nothing is held."""

    def synchronize(self):
        """Nothing runs."""


class StandinFrames:
    """Pandas in the role of cuDF, with the functions that we use."""

    def __init__(self):
        import pandas

        self.DataFrame = pandas.DataFrame
        self.pieces = []
        """Row groups of each piece that was read."""

    def read_parquet(self, path, columns, row_groups, use_pandas_metadata):
        """Some row groups of one file."""
        import pyarrow.parquet as pq

        assert not use_pandas_metadata
        (groups,) = row_groups
        self.pieces.append((path, tuple(groups)))
        found = pq.ParquetFile(path).read_row_groups(groups, columns=columns)
        return found.to_pandas(ignore_metadata=True)


def standin(precision: str = "float32") -> StandinBackend:
    """The stand-in with the name of the GPU."""
    return StandinBackend("gpu", "xnq_dist.reservoir.gpu_kernels", precision)


def places() -> list[tuple[ModuleType, str, Any]]:
    """Functions that look for a GPU, and their replacements."""
    facts = backends.GpuFacts({}, 1, "", 2**30)
    told = [
        (module, "gpu_facts", lambda: facts) for module in (backends, cluster, tables)
    ]
    return [
        (backends, "gpu", standin),
        (cluster, "device_share", lambda: ("played", 2**34)),
        *told,
    ]


def take_the_gpus_place() -> Callable[[str], StandinBackend]:
    """Replace the GPU by the stand-in in this process, permanently."""
    for module, name, value in places():
        setattr(module, name, value)
    return standin


def tf32(values: np.ndarray) -> np.ndarray:
    """Values with the ten bits of a TF32 mantissa."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0xFFF) + ((bits >> 13) & np.uint32(1))
    return (rounded & np.uint32(0xFFFFE000)).view(np.float32)


@dataclass(frozen=True)
class Emulated:
    """One kernel, called as CuPy calls it."""

    source: str
    name: str
    defines: tuple[str, ...]

    def __call__(self, grid, block, args, *, shared_mem=0):
        kinds = parameters(self.source, self.name, self.defines)
        assert len(args) == len(kinds), f"{self.name}: {len(args)} of {len(kinds)}"
        assert np.prod(block) <= 1024
        assert shared_mem <= 48 * 1024
        assert all(side <= 65535 for side in grid[1:])
        names = [p.rsplit(" ", 1)[1] for p in signatures(self.source)[self.name]]
        held, addresses = [], []
        for place, (value, (pointer, kind)) in enumerate(zip(args, kinds, strict=True)):
            what = f"{self.name}, argument {place}: {type(value)} for {kind}"
            if pointer:
                assert isinstance(value, DeviceArray), what
                bits = value.view(np.uint8) if value.dtype == np.bool_ else value
                assert bits.dtype == kind, f"{what}, {value.dtype}"
                assert value.size, f"{what}, empty"
                strided = f"{names[place]}_stride" in names
                assert strided or value.flags.c_contiguous, f"{what}, not contiguous"
                held.append(np.array(value.ctypes.data, np.uintp))
            else:
                assert isinstance(value, kind), what
                held.append(np.array(value))
            addresses.append(held[-1].ctypes.data)
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


@cache
def signatures(source: str) -> dict[str, list[str]]:
    """Parameters of each kernel of a source."""
    bounds = r"(?:__launch_bounds__\(\d+, \d+\) )?"
    found = re.findall(rf'extern "C" __global__ void {bounds}(\w+)\(([^)]*)\)', source)
    return {name: [p.strip() for p in text.split(",")] for name, text in found}


def parameters(
    source: str, name: str, defines: tuple[str, ...]
) -> list[tuple[bool, Any]]:
    """Whether a parameter is a pointer, and the NumPy type it takes."""
    state = [d.removeprefix("-DSTATE=") for d in defines if d.startswith("-DSTATE=")]
    found = []
    for text in signatures(source)[name]:
        kind = text.replace("const ", "").rsplit(" ", 1)[0].strip()
        base = kind.rstrip("*").strip()
        there = STATES[state[0]] if base == "state_t" else TYPES[base]
        found.append((kind.endswith("*"), there))
    return found


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


__all__ = [
    "DeviceArray",
    "StandinBackend",
    "StandinFrames",
    "decode",
    "encode",
    "places",
    "standin",
    "take_the_gpus_place",
    "tf32",
]
