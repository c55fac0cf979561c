"""Peak resident memory of this process."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

__all__ = ["peak_memory"]

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


def peak_memory(reset: bool = False) -> int:
    """Peak resident bytes since the last reset; `reset` starts a new measurement."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1]) * 1024
        if reset:
            with suppress(PermissionError):  # in some containers: the peak is kept
                RESET.write_text("5")
    return peak
