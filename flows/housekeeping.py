"""The deployment that removes what is no longer needed."""

import logging
import os
import re
import shutil
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterTags,
)
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from pydantic import PositiveFloat

from xnq_dist.core.errors import InfrastructureError, RunDirectoryError
from xnq_dist.core.leftovers import sweep_run, sweep_scratch
from xnq_dist.core.lock import run_lock
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Published, RunDirectory
from xnq_dist.monitor.on_prefect import PrefectRun

log = logging.getLogger("xnq_dist.housekeeping")

__all__ = ["housekeeping"]

TAG = "xnq"
"""Tag of the deployments in `deploy/prefect.yaml`."""
BATCH = 200
WORKSPACES = "prefect-workspace-attempt-*"
"""Folders of flow runs that a worker of Prefect leaves behind when it is killed."""
SHARED, SEMAPHORES = "/dev/shm", "sem.mp-*"  # noqa: S108
"""Names of semaphores, which stay when all processes of a run are killed at once."""


@flow(name="xnq-housekeeping", persist_result=False, validate_parameters=True)
def housekeeping(
    runs: list[str],
    keep_versions: int = 30,
    keep_flow_runs_days: float = 30.0,
    scratch: str | None = None,
    timeout: PositiveFloat | None = None,
) -> Any:
    """Remove old versions of results, temporary files, and old records of Prefect.

    Parameters
    ----------
    runs
        Run directories whose old versions and temporary files are removed. A directory
        that a run holds is left for the next time.
    keep_versions
        Versions to keep; the current one and the one before it always stay.
    keep_flow_runs_days
        Flow runs with the tag ``xnq`` that ended earlier are deleted, and what
        killed processes left then in the folder for temporary files and in shared
        memory. Log lines and artifacts of these flow runs go when the server cleans up
        orphans: see the guide.
    scratch
        Folder for temporary files; None: the system's.
    timeout
        Seconds after which the flow run ends; None: never.
    """
    shown = PrefectRun()

    def work(_: Settings) -> dict[str, int]:
        shown.task("directories", lambda _: _clean(runs, keep_versions))
        sweep_scratch(scratch)
        _sweep_of_killed(scratch, keep_flow_runs_days)
        deleted = shown.task("flow runs", lambda _: _forget(keep_flow_runs_days))
        return {"flow_runs_deleted": deleted}

    return shown.state_of(work, timeout=timeout)


def _clean(runs: list[str], keep: int) -> None:
    """Remove old versions and temporary files of run directories."""
    for directory in map(RunDirectory, runs):
        if RunRecord.read(directory.folder) is None:
            raise RunDirectoryError(
                f"{directory.uri} is not a run directory: correct the parameter runs"
            )
        try:
            with run_lock(directory.folder):
                sweep_run(directory.folder)
                Published(directory).trim(keep)
        except InfrastructureError as error:
            log.warning("%s is left for the next time: %s", directory.uri, error)


def _sweep_of_killed(scratch: str | None, days: float) -> None:
    """Remove what killed processes of Prefect and Python left `days` days ago."""
    before = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    folders = Path(scratch or tempfile.gettempdir()).glob(WORKSPACES)
    used = _mapped()
    unused = (path for path in Path(SHARED).glob(SEMAPHORES) if str(path) not in used)
    for path in (*folders, *unused):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if status.st_uid != os.getuid() or status.st_mtime >= before:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _mapped() -> set[str]:
    """Files in shared memory that a process of this user has mapped."""
    found: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            found.update(re.findall(rf"{SHARED}/\S+", maps.read_text()))
    return found


def _forget(days: float) -> int:
    """Delete flow runs that ended more than `days` days ago; return their number.

    Those that a busy server does not delete, although the client has asked several
    times, are left for the next time.
    """
    before = datetime.now(UTC) - timedelta(days=days)
    old = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[TAG]),
        end_time=FlowRunFilterEndTime(before_=before),
    )
    deleted = 0
    with get_client(sync_client=True) as client:
        try:
            while found := client.read_flow_runs(flow_run_filter=old, limit=BATCH):
                for each in found:
                    with suppress(ObjectNotFound):  # the server's retention was faster
                        client.delete_flow_run(each.id)
                    deleted += 1
        except PrefectHTTPStatusError as error:
            answer = f"{error.response.status_code} {error.response.reason_phrase}"
            if not deleted:
                raise InfrastructureError(
                    f"Prefect's server deletes no flow runs (it answers {answer}): "
                    "look at its log and its disk, then run the housekeeping again"
                ) from error
            log.warning("other flow runs are left for the next time: %s", answer)
    log.info("%d flow runs that ended before %s are deleted", deleted, before.date())
    return deleted
