"""Which processor kernels are compiled for, where a filled cache of them is shipped.

Numba's cache holds kernels by the exact model of the processor, so that an image that
is built on one machine would compile again on most others. Kernels for a level of the
x86-64 architecture serve all processors of that level, with the same bits.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

__all__ = [
    "LEVELS",
    "cache_folder",
    "environment",
    "mark_shipped",
    "runs_here",
    "use_shipped_kernels",
]

MARK = "xnq-levels.json"
"""File of the cache folder that names the levels whose kernels it holds."""

_V3 = "cx8 cx16 fxsr mmx sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt sahf xsave avx avx2"
_V3 += " bmi bmi2 f16c fma lzcnt movbe"
LEVELS = {
    "x86-64-v4": f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl".split(),
    "x86-64-v3": _V3.split(),
}
"""LLVM's names of the instructions of each level, the highest level first."""

_FLAGS = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "sahf": "lahf_lm"}
_FLAGS |= {"bmi": "bmi1", "lzcnt": "abm"}
"""Linux's names of instructions where they differ from LLVM's."""


def cache_folder() -> Path | None:
    """The folder that ``NUMBA_CACHE_DIR`` names, if it is set."""
    name = os.environ.get("NUMBA_CACHE_DIR")
    return Path(name) if name else None


def environment(level: str) -> dict[str, str]:
    """Variables with which Numba compiles for a level."""
    features = ",".join(f"+{name}" for name in LEVELS[level])
    return {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": features}


def runs_here(level: str, cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Whether this machine's processor has all instructions of a level."""
    try:
        with open(cpuinfo, encoding="utf-8") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return {_FLAGS.get(name, name) for name in LEVELS[level]} <= set(flags.split())


def use_shipped_kernels() -> None:
    """Choose the highest level that the shipped kernels and the processor share.

    Called before Numba is imported. Without shipped kernels, or where the processor is
    already chosen, nothing changes.
    """
    folder = cache_folder()
    if folder is None or "numba" in sys.modules or "NUMBA_CPU_NAME" in os.environ:
        return
    try:
        shipped = json.loads((folder / MARK).read_text(encoding="utf-8"))["levels"]
    except (OSError, ValueError, KeyError):
        return
    for level in LEVELS:
        if level in shipped and runs_here(level):
            os.environ.update(environment(level))
            return


def mark_shipped(levels: list[str]) -> None:
    """Record in the cache folder which levels its kernels are for."""
    folder = cache_folder()
    if folder is not None:
        text = json.dumps({"levels": levels})
        (folder / MARK).write_text(text + "\n", encoding="utf-8")
