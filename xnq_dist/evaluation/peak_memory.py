"""Largest resident memory of this process, since last asked."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

__all__ = ["peak_memory"]

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


def peak_memory(reset: bool = False) -> int:
    """Bytes of the largest resident size; with `reset`, count from now on."""
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                found = int(line.split()[1]) * 1024
        if reset:
            with suppress(PermissionError):  # some containers: then since the start
                RESET.write_text("5")
    return found
