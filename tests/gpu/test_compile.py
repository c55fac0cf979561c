"""Compilation of the kernels for real devices with nvcc or NVRTC, without a GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import cache

import pytest

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
    **{f"sets-{count}": (sets_source, (f"-DCLASSES={count}",)) for count in (2, 7)},
}
BY_NVCC = ["superstep-float32-8", "sets-2"]
"""nvcc takes seconds per source, so only some are compiled."""


def _nvcc(source: str, options: tuple[str, ...], architecture: str, folder) -> str:
    (folder / "kernels.cu").write_text(source)
    done = subprocess.run(
        [
            *(NVCC, *options, f"-arch={architecture}", "--Werror", "all-warnings"),
            *("-cubin", "-keep", "-o", "kernels.cubin", "kernels.cu"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "kernels.ptx").read_text()


def _nvrtc(source: str, options: tuple[str, ...], architecture: str) -> str:
    from cupy_backends.cuda.libs import nvrtc

    try:
        program = nvrtc.createProgram(source, "kernels.cu", [], [])
    except RuntimeError as error:
        pytest.skip(f"NVRTC is not installed beside CuPy ({error})")
    nvrtc.compileProgram(program, [*options, f"--gpu-architecture={architecture}"])
    assert len(nvrtc.getCUBIN(program))
    ptx = nvrtc.getPTX(program)
    return ptx if isinstance(ptx, str) else ptx.decode()


@cache
def _text(name: str) -> tuple[str, tuple[str, ...]]:
    source, defined = SOURCES[name]
    return source(), (*COMPILE, *defined)


def _check(ptx: str, source: str) -> None:
    kernels = set(re.findall(r"\.entry (\w+)\(", ptx))
    assert kernels == set(re.findall(r'extern "C" __global__ void (\w+)\(', source))
    # A fused multiply-add rounds once where the CPU rounds twice; an atomic sum has no
    # order; an approximate quotient has other bits on another device.
    sums = re.findall(r"\b((?:fma|mad|add|mul|div|rcp)\.[\w.]*f(?:32|64))\b", ptx)
    assert sums
    assert {word for word in sums if ".rn." not in word} == set()
    assert not [word for word in sums if word.startswith(("fma", "mad"))]
    assert "atom." not in ptx
    assert not re.search(r"\bred\.", ptx)
    assert ".ftz" not in ptx


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", BY_NVCC)
def test_nvcc_compiles_every_kernel_without_fused_sums(name, tmp_path):
    source, options = _text(name)
    _check(_nvcc(source, options, ARCHITECTURES[-1], tmp_path), source)


@pytest.mark.skipif(not NVRTC, reason="CuPy's NVRTC is not installed")
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_kernel_without_fused_sums(name, architecture):
    source, options = _text(name)
    _check(_nvrtc(source, options, architecture), source)
