"""Largest resident memory of this process, since last asked."""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_memory"]

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


def peak_memory(reset: bool = False) -> int | None:
    """Bytes of the largest resident size; None where the system does not tell.

    Parameters
    ----------
    reset
        Count from now on.
    """
    if not STATUS.exists():
        return None
    found = None
    for line in STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            found = int(line.split()[1]) * 1024
    if reset:
        try:
            RESET.write_text("5")
        except PermissionError:  # some containers forbid it: then since the start
            return found
    return found
