"""Has glibc take all memory from one heap, and keep what is free until `release`.

Else each array from 32 MiB on (in a Dask nanny's worker: from 128 KiB on) is made of
new pages, which the system clears first; a virtual machine may have to get them from
its host.
"""

from __future__ import annotations

import ctypes

__all__ = ["ALLOCATOR", "keep_free_memory", "release"]

# The option's number in glibc's malloc.h, and its value; -1 is the highest threshold.
_OPTIONS = {
    "MALLOC_MMAP_MAX_": (-4, 0),
    "MALLOC_ARENA_MAX": (-8, 1),
    "MALLOC_TRIM_THRESHOLD_": (-1, -1),
}
ALLOCATOR = {name: str(value) for name, (_, value) in _OPTIONS.items()}
"""Environment variables of processes that are started."""


def keep_free_memory() -> None:
    """Set the options in this process, before it has threads."""
    for option, value in _OPTIONS.values():
        ctypes.CDLL(None).mallopt(option, value)


def release() -> None:
    """Give free memory back to the system."""
    ctypes.CDLL(None).malloc_trim(0)
