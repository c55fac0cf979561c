"""Machine code of the gather for sm_90, by count: nothing runs.

Compiled by nvcc or NVRTC and read by nvdisasm (`pip install nvidia-cuda-nvdisasm`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.gpu.test_compile import COMPILERS, source_and_options

EDGES = 4
"""Edges whose states `gather_row` loads together, EDGES of superstep.cu."""
LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*)\s*([^;]*);")
"""An instruction: its name, then its operands."""
WIDTHS = {"128": 4, "64": 2}
"""Registers that a load of so many bits fills."""


def disassembler() -> str | None:
    """The program nvdisasm: of a toolkit, or of the package from PyPI."""
    spec = find_spec("nvidia")
    folders = (spec and spec.submodule_search_locations) or []
    found = [file for at in folders for file in Path(at).glob("*/bin/nvdisasm")]
    return shutil.which("nvdisasm") or (str(found[0]) if found else None)


NVDISASM = disassembler()


def machine_code(cubin: bytes, folder: Path) -> dict[str, str]:
    """Instructions of each kernel."""
    (folder / "kernels.cubin").write_bytes(cubin)
    done = subprocess.run(
        [str(NVDISASM), "-c", str(folder / "kernels.cubin")],
        capture_output=True,
        text=True,
        check=True,
    )
    pieces = re.split(r"^\.text\.(\w+):$", done.stdout, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def loads_in_flight(code: str, load: str) -> list[int]:
    """Largest number of loads on their way in each stretch of code without jumps.

    A load is on its way until an instruction names one of the registers that it fills.
    Stretches without such loads are left out.
    """
    found: list[int] = []
    waiting: list[set[int]] = []
    most = 0
    for line in [*code.splitlines(), ".L_end:"]:
        match = LINE.search(line)
        if line.startswith(".L") or (match and match[1].startswith(("BRA", "EXIT"))):
            found += [most] if most else []
            waiting, most = [], 0
        if match is None:
            continue
        name, operands = match.groups()
        filled = set()
        if name == load:
            first, operands = operands.split(",", 1)
            count = WIDTHS.get(name.rpartition(".")[2], 1)
            filled = {int(first.strip()[1:]) + more for more in range(count)}
        named = {int(number) for number in re.findall(r"\bR(\d+)", operands)} | filled
        waiting = [registers for registers in waiting if not registers & named]
        waiting += [filled] if filled else []
        most = max(most, len(waiting))
    return found


@pytest.mark.skipif(
    NVDISASM is None,
    reason="nvdisasm is not installed: pip install nvidia-cuda-nvdisasm",
)
@pytest.mark.parametrize("compiled", COMPILERS)
@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("superstep-float32-8", "LDG.E.128"),
        ("superstep-float16-8", "LDG.E.64"),
        ("superstep-bfloat16-8", "LDG.E.64"),
    ],
)
def test_states_of_four_edges_are_on_their_way_together(compiled, name, load, tmp_path):
    source, options = source_and_options(name)
    code = machine_code(compiled(source, options, "sm_90", tmp_path).cubin, tmp_path)
    for kernel in ("gather_add", "gather_round", "sparse_superstep"):
        # In half precision the row's two offsets are loads of this width too.
        weighted, unweighted = loads_in_flight(code[kernel], load)[-2:]
        assert (weighted, unweighted) == (EDGES, EDGES), kernel


def test_loads_between_uses_are_counted_apart():
    loop = """.L_x_1:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R18.64] ;
        /*0020*/              @!P1 LDG.E.128 R8, desc[UR4][R20.64] ;
        /*0030*/                   FADD R0, R0, R{} ;
        /*0040*/                   LDG.E.128 R12, desc[UR4][R22.64] ;
        /*0050*/               @P0 BRA `(.L_x_1) ;
        /*0060*/                   LDG.E.128 R4, desc[UR4][R18.64] ;
"""
    assert loads_in_flight(loop.format(30), "LDG.E.128") == [3, 1]
    assert loads_in_flight(loop.format(7), "LDG.E.128") == [2, 1]
    assert loads_in_flight(loop.format(30), "LDG.E.64") == []
