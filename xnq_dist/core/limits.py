"""Memory and processors of this process: how much there is, and how glibc keeps it.

Containers, systemd units and jobs of batch systems are limited by control groups. The
limits of outer groups hold too, so all are read, from the process's group up to the
root of the mounted tree. (Dask reads memory at the root alone, processors in the
innermost group alone, and neither subtracts what the group uses already.)

glibc takes all memory from one heap, and keeps what is free until `release`. Else each
array from 32 MiB on (in a Dask nanny's worker: from 128 KiB on) is made of new pages,
which the system clears first; a virtual machine may have to get them from its host.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ALLOCATOR", "free_memory", "keep_free_memory", "processors", "release"]

TREE = Path("/sys/fs/cgroup")
"""Where control groups are mounted."""
MEMBERSHIP = Path("/proc/self/cgroup")
"""The groups of this process."""

# The option's number in glibc's malloc.h, and its value; -1 is the highest threshold.
_OPTIONS = {
    "MALLOC_MMAP_MAX_": (-4, 0),
    "MALLOC_ARENA_MAX": (-8, 1),
    "MALLOC_TRIM_THRESHOLD_": (-1, -1),
}
ALLOCATOR = {name: str(value) for name, (_, value) in _OPTIONS.items()}
"""The same options as environment variables, for processes that are started."""


def free_memory() -> int:
    """Bytes of memory that are free: on the machine and under each limit."""
    import psutil

    free = float(psutil.virtual_memory().available)
    for group in _groups("memory"):
        limit = _lowest(group, "memory.max", "memory.high", "memory.limit_in_bytes")
        used = _lowest(group, "memory.current", "memory.usage_in_bytes")
        if math.inf not in (limit, used):
            # The kernel drops these cached pages before it refuses memory.
            free = min(free, limit - max(0.0, used - _cached(group)))
    return max(0, int(free))


def processors() -> int:
    """Processors that this process may use: its affinity mask and quotas, rounded up.

    Batch systems set the mask, containers a quota of processor time.
    """
    count = len(os.sched_getaffinity(0))
    for group in _groups("cpu"):
        quota, period = (*_words(group / "cpu.max"), "", "")[:2]
        if not period:
            quota = "".join(_words(group / "cpu.cfs_quota_us"))
            period = "".join(_words(group / "cpu.cfs_period_us"))
        # "max", -1 or no file: no quota.
        if quota.isdigit() and period.isdigit():
            count = min(count, max(1, math.ceil(int(quota) / int(period))))
    return count


def keep_free_memory() -> None:
    """Have glibc keep free memory in this process, before it has threads."""
    for option, value in _OPTIONS.values():
        ctypes.CDLL(None).mallopt(option, value)


def release() -> None:
    """Give free memory back to the system."""
    ctypes.CDLL(None).malloc_trim(0)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the process's groups with a controller: the innermost, its parents."""
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Version 1 has a tree for each controller, version 2 one tree. In a container
        # the innermost folder may be missing: then its group is the root.
        tree = TREE / controller if controllers else TREE
        inner = tree / path.lstrip("/")
        for group in (inner, *inner.parents):
            if group.is_relative_to(tree):
                yield group


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


def _lowest(group: Path, *names: str) -> float:
    """The lowest number in these files; infinity if none has one."""
    words = [word for name in names for word in _words(group / name)]
    return min((int(word) for word in words if word.isdigit()), default=math.inf)


def _cached(group: Path) -> int:
    words = _words(group / "memory.stat")
    facts = dict(zip(words[::2], words[1::2], strict=False))
    return int(facts.get("total_inactive_file", facts.get("inactive_file", 0)))
