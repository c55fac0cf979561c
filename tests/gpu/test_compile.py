"""Compilation of the kernels for real devices with nvcc or NVRTC, without a GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

import pytest

from tests.gpu.standin import signatures
from xnq_dist.core.backend import COMPILE
from xnq_dist.quantify.gpu.sets import sets_source
from xnq_dist.reservoir.gpu_kernels import defines, superstep_source

ARCHITECTURES = ["sm_80", "sm_90"]
NVCC = shutil.which("nvcc")
NVRTC = importlib.util.find_spec("cupy_backends") is not None
SOURCES = {
    **{
        f"superstep-{precision}-{rows}": (superstep_source, defines(precision, rows))
        for precision in ("float32", "float16", "bfloat16")
        for rows in (8, 1)
    },
    "superstep-odd-width": (superstep_source, defines("float32", 8, vector=1)),
    **{f"sets-{count}": (sets_source, (f"-DCLASSES={count}",)) for count in (2, 7)},
}
BY_NVCC = ["superstep-float32-8", "sets-2"]
"""nvcc takes seconds per source, so only some are compiled."""


@dataclass(frozen=True)
class Compiled:
    """Answers of a compiler."""

    ptx: str
    cubin: bytes
    log: str
    """Registers and spills of each kernel, from ptxas."""


def by_nvcc(source: str, options: tuple[str, ...], architecture: str, folder):
    """The source compiled by nvcc."""
    (folder / "kernels.cu").write_text(source)
    done = subprocess.run(
        [
            *(NVCC, *options, f"-arch={architecture}", "--Werror", "all-warnings"),
            *("-Xptxas", "-v", "-cubin", "-keep", "-o", "kernels.cubin", "kernels.cu"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    cubin = (folder / "kernels.cubin").read_bytes()
    return Compiled((folder / "kernels.ptx").read_text(), cubin, done.stderr)


def by_nvrtc(source: str, options: tuple[str, ...], architecture: str, _folder=None):
    """The source compiled by the NVRTC that CuPy uses."""
    from cupy_backends.cuda.libs import nvrtc

    try:
        program = nvrtc.createProgram(source, "kernels.cu", [], [])
    except RuntimeError as error:
        pytest.skip(f"NVRTC is not installed beside CuPy ({error})")
    here = (f"--gpu-architecture={architecture}", "--ptxas-options=-v")
    nvrtc.compileProgram(program, [*options, *here])
    ptx, log = nvrtc.getPTX(program), nvrtc.getProgramLog(program)
    # CuPy leaves out the last byte, which is 0, as if it ended a string.
    cubin = nvrtc.getCUBIN(program) + b"\0"
    return Compiled(ptx if isinstance(ptx, str) else ptx.decode(), cubin, log)


COMPILERS = [
    pytest.param(
        by_nvcc,
        marks=pytest.mark.skipif(NVCC is None, reason="nvcc is not installed"),
        id="nvcc",
    ),
    pytest.param(
        by_nvrtc,
        marks=pytest.mark.skipif(not NVRTC, reason="CuPy's NVRTC is not installed"),
        id="nvrtc",
    ),
]


@cache
def source_and_options(name: str) -> tuple[str, tuple[str, ...]]:
    source, defined = SOURCES[name]
    return source(), (*COMPILE, *defined)


def _check(found: Compiled, source: str) -> None:
    ptx = found.ptx
    kernels = set(re.findall(r"\.entry (\w+)\(", ptx))
    assert kernels == set(signatures(source))
    # A fused multiply-add rounds once where the CPU rounds twice; an atomic sum has no
    # order; an approximate quotient has other bits on another device.
    sums = re.findall(r"\b((?:fma|mad|add|mul|div|rcp)\.[\w.]*f(?:32|64))\b", ptx)
    assert sums
    assert {word for word in sums if ".rn." not in word} == set()
    assert not [word for word in sums if word.startswith(("fma", "mad"))]
    assert "atom." not in ptx
    assert not re.search(r"\bred\.", ptx)
    assert ".ftz" not in ptx
    used = resources(found.log)
    assert set(used) == kernels
    # Of 65,536 registers, blocks of eight warps take three times 80 or four times 64.
    bounds = {"sld": 96, "gather_add": 64, "gather_round": 64}
    assert {name for name in used if used[name] > bounds.get(name, 80)} == set()


def resources(log: str) -> dict[str, int]:
    """Registers of each kernel; none may have values in local memory."""
    found = re.findall(
        r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    assert [one for one in found if one[1:4] != ("0", "0", "0")] == []
    return {name: int(registers) for name, *_, registers in found}


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", BY_NVCC)
def test_nvcc_compiles_every_kernel_without_fused_sums_or_spills(name, tmp_path):
    source, options = source_and_options(name)
    _check(by_nvcc(source, options, ARCHITECTURES[-1], tmp_path), source)


@pytest.mark.skipif(not NVRTC, reason="CuPy's NVRTC is not installed")
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_kernel_without_fused_sums_or_spills(name, architecture):
    source, options = source_and_options(name)
    _check(by_nvrtc(source, options, architecture), source)


def test_a_kernel_with_spills_is_reported():
    log = """ptxas info    : Compiling entry function 'sld' for 'sm_90'
ptxas info    : Function properties for sld
    {} bytes stack frame, {} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers"""
    assert resources(log.format(0, 0)) == {"sld": 40}
    for frame, spilled in ((8, 8), (16, 0)):
        with pytest.raises(AssertionError, match="sld"):
            resources(log.format(frame, spilled))
