"""Facts about the machine on which benchmarks ran."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from xnq_dist._version import __version__
from xnq_dist.core.limits import free_memory, processors

__all__ = ["machine_facts"]

PACKAGES = (
    "dask",
    "distributed",
    "numba",
    "numpy",
    "prefect",
    "pyarrow",
    "quapy",
    "scikit-learn",
    "scipy",
)


def machine_facts() -> dict[str, Any]:
    """Processor, cores, memory, versions, BLAS and date; JSON values."""
    import psutil
    from threadpoolctl import threadpool_info

    versions = dict.fromkeys(PACKAGES, "not installed")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    blas = [
        {"library": pool["internal_api"], "threads": pool["num_threads"]}
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    ]
    return {
        "processor": _processor_name(),
        "cores": processors(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "free_memory_bytes": free_memory(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "blas": blas,
        "versions": {"xnq-dist": __version__, **versions},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor_name() -> str:
    """Name of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
