"""Workers as jobs of a SLURM cluster; the scheduler runs in this process."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from xnq_dist.core.cluster import NO_PAGES, PLANNED, TERMINATE, local_size
from xnq_dist.core.errors import InfrastructureError, SettingsError
from xnq_dist.core.leftovers import scratch_folder
from xnq_dist.core.limits import ALLOCATOR
from xnq_dist.core.need import Workers, parse_bytes
from xnq_dist.core.sections import ClusterSettings

__all__ = ["check", "size", "start", "wait"]


log = logging.getLogger(__name__)

NANNY = 256
"""MiB of a job for the process that supervises its worker."""
POLL = 5.0
"""Seconds between two looks at SLURM's queue, which lists ended jobs for minutes."""
ANSWER = 60.0
"""Seconds that a command of SLURM may take; most give up before."""
ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,TO"
"""SLURM's states of jobs that have ended."""


def size(settings: ClusterSettings, free: int | None = None) -> Workers:
    """The size from the settings, which name the number and memory of the workers."""
    device = settings.device_memory
    bytes_of = 0 if device == "auto" else parse_bytes(device)
    return local_size(settings, int(settings.workers), 1, free, bytes_of)


def check(settings: ClusterSettings) -> Path:
    """The folder shared with jobs; a `SettingsError` if none can be submitted here."""
    if importlib.util.find_spec("dask_jobqueue") is None:
        raise SettingsError(
            "cluster.kind = slurm needs dask-jobqueue: run "
            "pip install 'xnq-dist[slurm]'"
        )
    if shutil.which("sbatch") is None:
        raise SettingsError(
            "cluster.kind = slurm needs the command sbatch, which is not on PATH: run "
            "this on a machine of the SLURM cluster, or set cluster.kind = local"
        )
    folder = Path(settings.slurm.folder or Path.home()).absolute()
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(
            f"{folder} cannot be written: set cluster.slurm.folder to a folder that "
            "this machine and the jobs share"
        )
    return folder


def start(settings: ClusterSettings, size: Workers, stack: ExitStack) -> Any:
    """Start a scheduler here, with a private folder until the stack is closed."""
    shared = check(settings)
    from dask_jobqueue import SLURMCluster

    folder = stack.enter_context(scratch_folder(str(shared), "cluster.slurm.folder"))
    cluster = SLURMCluster(
        cores=size.threads,
        processes=1,
        memory=f"{size.memory} B",
        job_mem=f"{math.ceil(size.memory * TERMINATE / 2**20) + NANNY}M",
        job_name=folder.name,
        # Without its own default, half an hour.
        job_directives_skip=["#SBATCH -t "],
        job_extra_directives=list(settings.slurm.directives),
        job_script_prologue=[*_exports(), *settings.slurm.setup],
        # Dask-jobqueue would round the memory.
        worker_extra_args=["--memory-limit", str(size.memory), "--no-dashboard"],
        death_timeout=settings.timeout,
        log_directory=str(folder),
        security=_credentials(folder),
        scheduler_options=NO_PAGES,
    )
    cluster.folder = folder
    return cluster


def wait(cluster: Any, settings: ClusterSettings, size: Workers) -> None:
    """Submit a job for each worker, and wait until all workers have joined.

    The plan needs their memory. It is a `SettingsError` if SLURM refuses the jobs, and
    an `InfrastructureError` if it does not answer, or one ends before or is too late.
    Jobs that end afterwards are replaced.
    """
    _check_accepted(cluster.job_script())
    cluster.adapt(minimum_jobs=size.count, maximum_jobs=size.count)
    end, folder = time.monotonic() + settings.slurm.wait, cluster.folder
    log.info("waiting for %d SLURM jobs", size.count)
    while (there := len(cluster.scheduler_info["workers"])) < size.count:
        if time.monotonic() > end:
            raise InfrastructureError(
                f"{there} of {size.count} SLURM jobs have started within "
                f"{settings.slurm.wait:g} s: run again later, reduce cluster.workers "
                "or increase cluster.slurm.wait"
            )
        time.sleep(POLL)
        named = f"--name={folder.name}", f"--states={ENDED}", "--format=job %i %T %r"
        faults = _call("squeue", "--me", "--noheader", *named).stdout.splitlines()
        # Dask only logs that SLURM refuses one, such as more than a user may have.
        faults += ["not accepted" for job in cluster.workers.values() if not job.job_id]
        if faults:
            raise InfrastructureError(
                f"a SLURM job ended before its worker joined ({faults[0]}: "
                f"{_last_line(folder)}): check cluster.slurm, and that the jobs can "
                "use the same Python environment"
            )


def _exports() -> list[str]:
    """Shell commands that set Dask's configuration in a job, as it is here."""
    # As for local workers, nothing is imported from the folder that a job starts in.
    values = {"PYTHONSAFEPATH": "1", **ALLOCATOR}
    for name, value in PLANNED.items():
        values["DASK_" + name.upper().replace(".", "__").replace("-", "_")] = value
    return [f"export {name}='{value}'" for name, value in values.items()]


def _credentials(folder: Path) -> Any:
    """New credentials; the workers' are files, which only this user can read.

    Dask-jobqueue's own files would be deleted late, with messages at the end.
    """
    from distributed import Security

    security = Security.temporary()
    for name in ("tls_ca_file", "tls_worker_cert", "tls_worker_key"):
        file = folder / f"{name}.pem"
        file.touch(mode=0o600)
        file.write_text(getattr(security, name), encoding="ascii")
        setattr(security, name, str(file))
    return security


def _check_accepted(script: str) -> None:
    """Ask SLURM whether it would take the jobs: Dask would only log its refusal."""
    done = _call("sbatch", "--test-only", text=script)
    if done.returncode:
        words = " ".join(done.stderr.split())
        lost = any(each in words for each in ("contact", "timed out", "connect"))
        raise (InfrastructureError if lost else SettingsError)(
            f"SLURM refuses the jobs ({words}): check sinfo, and correct "
            "cluster.slurm, cluster.threads or cluster.memory_limit"
        )


def _call(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - SLURM's own commands
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=ANSWER,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{command[0]} has not answered for {ANSWER:g} s: check sinfo, run again"
        raise InfrastructureError(text) from error


def _last_line(folder: Path) -> str:
    """The last line that a job wrote."""
    text = "".join(file.read_text(errors="replace") for file in folder.glob("*.err"))
    return (text.strip() or "it wrote no log").splitlines()[-1]
