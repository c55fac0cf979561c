"""Peak resident memory of this process."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["peak_memory"]

STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """Peak resident bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1]) * 1024
    return peak
