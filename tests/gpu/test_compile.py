"""Compilation of the kernels for real devices with nvcc or NVRTC, without a GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess

import pytest

from tests.conftest import rest_in
from tests.gpu.standin import signatures
from xnq_dist.core.backend import COMPILE
from xnq_dist.reservoir.device import defines, superstep_source

NVCC = shutil.which("nvcc")
NVRTC = importlib.util.find_spec("cupy_backends") is not None
SOURCES = {
    "superstep": (superstep_source, defines(8)),
    "superstep-wide": (superstep_source, defines(1)),
    "superstep-odd-width": (superstep_source, defines(8, vector=1)),
}
REGISTERS = {"gather_add": 64}
"""Of 65,536 registers, blocks of eight warps take three times 80 or four times 64."""


def by_nvcc(source: str, options: list[str], folder) -> tuple[str, str]:
    """PTX and the log of ptxas from nvcc."""
    (folder / "kernels.cu").write_text(source)
    done = subprocess.run(
        [
            *(NVCC, *options, "-arch=sm_90", "--Werror", "all-warnings"),
            *("-Xptxas", "-v", "-cubin", "-keep", "-o", "kernels.cubin", "kernels.cu"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "kernels.ptx").read_text(), done.stderr


def by_nvrtc(source: str, options: list[str], _folder) -> tuple[str, str]:
    """The same from the NVRTC that CuPy uses."""
    from cupy_backends.cuda.libs import nvrtc

    try:
        program = nvrtc.createProgram(source, "kernels.cu", [], [])
    except RuntimeError as error:
        pytest.skip(f"NVRTC is not installed beside CuPy ({error})")
    here = ["--gpu-architecture=sm_90", "--ptxas-options=-v"]
    nvrtc.compileProgram(program, [*options, *here])
    ptx = nvrtc.getPTX(program)
    ptx = ptx if isinstance(ptx, str) else ptx.decode()
    return ptx, nvrtc.getProgramLog(program)


def registers(log: str) -> dict[str, int]:
    """Registers of each kernel; none may have values in local memory."""
    found = re.findall(
        r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    assert [one for one in found if one[1:4] != ("0", "0", "0")] == []
    return {name: int(count) for name, *_, count in found}


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(
            by_nvcc,
            marks=pytest.mark.skipif(NVCC is None, reason="nvcc is not installed"),
        ),
        pytest.param(
            by_nvrtc,
            marks=pytest.mark.skipif(not NVRTC, reason="CuPy's NVRTC is missing"),
        ),
    ],
)
@pytest.mark.parametrize("name", rest_in("standin", SOURCES, "superstep"))
def test_kernels_compile_without_fused_sums_or_spills(compiler, name, tmp_path):
    make, defined = SOURCES[name]
    ptx, log = compiler(make(), [*COMPILE, *defined], tmp_path)
    kernels = set(re.findall(r"\.entry (\w+)\(", ptx))
    assert kernels == set(signatures(make()))
    # A fused multiply-add rounds once where the CPU rounds twice; an atomic sum has no
    # order; an approximate quotient has other bits on another device.
    sums = re.findall(r"\b((?:fma|mad|add|mul|div|rcp)\.[\w.]*f(?:32|64))\b", ptx)
    assert sums
    assert {word for word in sums if ".rn." not in word} == set()
    assert not [word for word in sums if word.startswith(("fma", "mad"))]
    assert not re.search(r"\batom\.|\bred\.|\.ftz", ptx)
    used = registers(log)
    assert set(used) == kernels
    assert {name for name in used if used[name] > REGISTERS.get(name, 80)} == set()
