"""Commands of the tests: in this process, or in one of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from xnq_dist.app.cli import main

__all__ = ["PROGRAM", "SHORT", "SMALL", "ended", "executed", "run_words"]

PROGRAM = [sys.executable, "-m", "xnq_dist.app.cli"]
SHORT = (
    *("reservoir.dim=8", "reservoir.supersteps=2", "readout.C=1.0"),
    *("reservoir.recurrent_scale=1.0", "reservoir.input_scale=0.5"),
)
"""Settings of a short run."""
SMALL = (
    *SHORT,
    *("method=xnq", "quantifier=sld", "cluster.workers=1", "cluster.threads=1"),
)
"""Settings of a run in one process, of the shortest method."""


def ended(*words: str) -> int:
    """Exit status of a command in this process."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


def executed(
    *words: str, env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, when it has ended."""
    options = {"capture_output": True, "text": True, "timeout": 600, "check": False}
    return subprocess.run([*PROGRAM, *words], env=env, **options | more)


def run_words(tables: Path, out: Path, *settings: str) -> list[str]:
    """Words of a run of the tables ``nodes`` and ``edges`` in a folder."""
    names = [f"--{name}={tables / name}.parquet" for name in ("nodes", "edges")]
    return ["run", *names, f"--out={out}", *(f"--set={each}" for each in settings)]
