"""Checks of this machine: what a run needs, and whether it works."""

from __future__ import annotations

import os
import platform
import shutil
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from xnq_dist._version import __version__
from xnq_dist.app.directory_checks import Check, examine_directory
from xnq_dist.core.backend import gpu_facts
from xnq_dist.core.cluster import connect, open_cluster, workers
from xnq_dist.core.clusters import local
from xnq_dist.core.errors import XnqError
from xnq_dist.core.limits import free_memory, processors
from xnq_dist.core.products import FORM, VECTOR_BYTES, has_fma
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import ClusterSettings, Settings
from xnq_dist.core.sizes import human
from xnq_dist.core.store import RUN, Folder

__all__ = ["disk", "examine", "prefect"]


def examine(
    address: str | None = None, out: str = ".", settings: Settings | None = None
) -> list[Check]:
    """Check each part that a run needs, and `out` if it is a run directory.

    Parameters
    ----------
    address
        Address of a Dask scheduler to check as well.
    out
        Folder that runs will be written to.
    settings
        Settings of the next run in it; None: those of the last one.
    """
    python = f"{platform.python_version()}, xnq-dist {__version__}"
    checks = [Check("python", "ok", python), _packages(), _machine(), _products()]
    checks += [_gpu(), disk(out), _dask(kind="local", workers=1, threads=1)]
    if address is not None:
        checks.append(_dask(kind="address", address=address, timeout=10))
    checks.append(prefect())
    if Folder.of(out).exists(RUN):
        checks += examine_directory(out, settings)
    return checks


def _packages() -> Check:
    names = ("dask", "distributed", "numba", "pyarrow", "scikit-learn")
    versions = [f"{name} {metadata.version(name)}" for name in names]
    return Check("packages", "ok", ", ".join(versions))


def _machine() -> Check:
    size = local.size(ClusterSettings())
    text = (
        f"{processors()} processors, {human(free_memory())} free memory: "
        f"{size.count} workers of {size.threads} threads, {human(size.memory)} each"
    )
    return Check("machine", "ok", text)


def _products() -> Check:
    if has_fma():
        text = f"{FORM} in vectors of {VECTOR_BYTES} bytes, the same bits everywhere"
        return Check("dense products", "ok", text)
    text = (
        "this processor has no fused multiply-add: products are correct but slow; set "
        "reservoir.matrix=sparse"
    )
    return Check("dense products", "note", text)


def _gpu() -> Check:
    facts = gpu_facts()
    if not facts.devices:
        return Check("gpu", "note", f"none ({facts.reason}); CPUs are used")
    present = [name for name, installed in facts.packages.items() if installed]
    missing = [name for name, installed in facts.packages.items() if not installed]
    text = f"{facts.devices} of {human(facts.memory)} each, {', '.join(present)}"
    if missing:
        text += f"; not installed: {', '.join(missing)}"
    return Check("gpu", "ok", text)


def disk(out: str) -> Check:
    """Check that a folder, or the one it would be made in, can be written."""
    folder = probe = Folder.of(out)
    if folder.is_local:
        existing = Path(folder.path())
        while not existing.exists():
            existing = existing.parent
        probe = Folder.of(existing)
    try:
        name = f"_doctor-{os.getpid()}"
        probe.write_bytes(name, b"")
        probe.delete(name)
    except XnqError as error:
        text = f"{error}: make the folder writable, or choose another --out"
        return Check("disk", "fault", text)
    free = f", {human(shutil.disk_usage(probe.path()).free)} free"
    text = f"{folder.uri} can be written{free if folder.is_local else ''}"
    return Check("disk", "ok", text)


def _dask(**settings: object) -> Check:
    chosen = ClusterSettings.model_validate(settings)
    name = f"dask {chosen.address or 'local'}"
    began = time.perf_counter()
    try:
        with open_cluster(chosen) as connection, connect(connection) as client:
            count = len(workers(client))
    except XnqError as error:
        return Check(name, "fault", str(error))
    seconds = time.perf_counter() - began
    return Check(name, "ok", f"{count} workers responded within {seconds:.1f} s")


def prefect() -> Check:
    """Check that the Prefect API of the active profile responds, if there is one."""
    if find_spec("prefect") is None:
        return Check("prefect", "ok", "not installed: runs are not reported to it")
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException
    from prefect.settings import get_current_settings

    url = redacted(get_current_settings().api.url)
    if not url:
        text = "no PREFECT_API_URL: runs are not reported to Prefect"
        return Check("prefect", "ok", text)
    try:
        with get_client(sync_client=True) as client:
            problem = client.api_healthcheck()
    except (OSError, PrefectException) as error:
        problem = error
    if problem is None:
        return Check("prefect", "ok", f"{url} responds")
    text = (
        f"{url} does not respond ({redacted(str(problem))}): run "
        "`prefect server start`, or unset PREFECT_API_URL"
    )
    return Check("prefect", "fault", text)
