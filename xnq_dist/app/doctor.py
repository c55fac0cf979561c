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
from xnq_dist.app.product_price import relative_time
from xnq_dist.core.backend import gpu_facts
from xnq_dist.core.cluster import connect, open_cluster, workers
from xnq_dist.core.clusters import local
from xnq_dist.core.errors import XnqError
from xnq_dist.core.failures import OPEN, stage_errors
from xnq_dist.core.limits import free_memory, processors
from xnq_dist.core.products import FORM, VECTOR_BYTES, has_fma
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import ClusterSettings, Settings
from xnq_dist.core.sizes import human
from xnq_dist.core.store import RUN, Folder, verify

__all__ = ["Check", "disk", "examine", "intact", "prefect"]


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
    checks = [_python(), *_packages(), _machine(), _products(), _gpu()]
    checks.append(disk(out))
    checks.append(
        _dask(
            ClusterSettings.model_validate(
                {"kind": "local", "workers": 1, "threads": 1}
            )
        )
    )
    if address is not None:
        checks.append(
            _dask(
                ClusterSettings.model_validate(
                    {"kind": "address", "address": address, "timeout": 10}
                )
            )
        )
    checks.append(prefect())
    if Folder.of(out).exists(RUN):
        checks += examine_directory(out, settings)
    return checks


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()}, xnq-dist {__version__}")


def _packages() -> list[Check]:
    versions = []
    for name in ("dask", "distributed", "prefect", "numba", "pyarrow", "scikit-learn"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            text = f"{name} is not installed: run pip install {name}"
            return [Check("packages", "fault", text)]
    return [Check("packages", "ok", ", ".join(versions))]


def _machine() -> Check:
    size = local.size(ClusterSettings())
    text = (
        f"{processors()} processors, {human(free_memory())} free memory: "
        f"{size.workers} workers of {size.threads} threads, {human(size.memory)} each"
    )
    return Check("machine", "ok", text)


def _products() -> Check:
    name = "dense products"
    if not has_fma():
        text = (
            "this processor has no fused multiply-add: products are correct but slow; "
            "set reservoir.matrix=sparse"
        )
        return Check(name, "note", text)
    text = (
        f"{FORM} in vectors of {VECTOR_BYTES} bytes, the same bits on every processor; "
        f"they take {relative_time():.2f} times as long as BLAS"
    )
    return Check(name, "ok", text)


def _gpu() -> Check:
    facts = gpu_facts()
    if facts.devices:
        present = [name for name, installed in facts.packages.items() if installed]
        text = f"{facts.devices} of {human(facts.memory)} each, {', '.join(present)}"
        missing = [name for name, installed in facts.packages.items() if not installed]
        if missing:
            text += f"; not installed: {', '.join(missing)}"
        return Check("gpu", "ok", text)
    return Check("gpu", "note", f"none ({facts.reason}); CPUs are used")


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


def _dask(settings: ClusterSettings) -> Check:
    name = f"dask {settings.address or 'local'}"
    began = time.perf_counter()
    try:
        with open_cluster(settings) as connection, connect(connection) as client:
            count = len(workers(client))
    except XnqError as error:
        return Check(name, "fault", str(error))
    seconds = time.perf_counter() - began
    return Check(name, "ok", f"{count} workers responded within {seconds:.1f} s")


def prefect() -> Check:
    """Check that the Prefect API of the active profile responds, if there is one."""
    if find_spec("prefect") is None:
        return Check("prefect", "ok", "not installed: runs are not reported to it")
    from prefect.exceptions import PrefectException
    from prefect.settings import get_current_settings

    url = redacted(get_current_settings().api.url)
    if not url:
        text = "no PREFECT_API_URL: runs are not reported to Prefect"
        return Check("prefect", "ok", text)
    from prefect.client.orchestration import get_client

    try:
        with get_client(sync_client=True) as client:
            problem = client.api_healthcheck()
    except (OSError, PrefectException) as error:
        problem = error
    if problem is not None:
        return Check(
            "prefect",
            "fault",
            f"{url} does not respond ({redacted(str(problem))}): run "
            "`prefect server start`, or unset PREFECT_API_URL",
        )
    return Check("prefect", "ok", f"{url} responds")


def intact(directory: str) -> Check:
    """Compare every byte of a run directory with its checksums.

    Raises
    ------
    RunDirectoryError
        When the folder is not a run directory.
    """
    shown = str(redacted(directory))
    with stage_errors(shown, OPEN):
        faults = verify(directory)
    if not faults:
        return Check("files", "ok", f"{shown}: all files are intact")
    lines = [f"{fault.path} {fault.what}" for fault in faults]
    lines.append(
        f"damaged files: {len(faults)}; the next run deletes their stages and computes "
        "them again"
    )
    return Check("files", "fault", "\n".join(lines))
