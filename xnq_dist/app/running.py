"""Runs of the command line: stages in this process, optionally reported to Prefect."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from xnq_dist.app.environment import prepare_environment
from xnq_dist.app.recording import recorded
from xnq_dist.app.run_progress import current_watch, on_console
from xnq_dist.app.run_status import RunStatus
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.tables import Sources
from xnq_dist.jobs import Do, Request, requantify_all, run_all

if TYPE_CHECKING:
    from xnq_dist.app.reporting import RunReport

__all__ = ["reporting", "run_pipeline", "run_requantify"]

log = logging.getLogger(__name__)


@contextmanager
def reporting(
    prefect: bool, flow: str, parameters: Mapping[str, Any], name: str | None = None
) -> Iterator[tuple[Do, RunReport | None]]:
    """Yield the function that runs stages, and the report to Prefect's API or None.

    The run reports if `prefect` is true or ``PREFECT_API_URL`` is set. An API that does
    not respond delays the end by a few seconds and has no other effect.
    """
    if not _reports(prefect):
        yield on_console, None
        return
    prepare_environment()
    from xnq_dist.app.reporting import check_api, reported

    check_api()
    with reported(flow, parameters, name) as report:
        yield report.do, report


def _reports(prefect: bool) -> bool:
    """Whether a run reports to Prefect; `prefect` asks for it."""
    if not prefect and not os.environ.get("PREFECT_API_URL"):
        return False
    if find_spec("prefect") is not None:
        return True
    install = "is not installed: run pip install 'xnq-dist[prefect]'"
    if prefect:
        raise SettingsError(f"--prefect needs Prefect, which {install}")
    log.warning("PREFECT_API_URL is set, but Prefect %s", install)
    return False


@contextmanager
def _shown(
    report: RunReport | None, out: str, settings: Settings, status: RunStatus
) -> Iterator[None]:
    """Show the block on Prefect's page, if the run reports; its table at the end."""
    if report is None:
        yield
        return
    from xnq_dist.app.run_page import RunPage

    run = RunDirectory(out)
    page = RunPage(report.artifacts, run, status, settings.watch.address)
    with page.shown():
        yield
    report.artifacts.prevalence(run)
    report.message = page.message()


def run_pipeline(
    sources: Sources,
    out: str,
    settings: Settings,
    overwrite: bool = False,
    prefect: bool = False,
) -> dict[str, Any]:
    """Run the complete pipeline; errors of stages are raised.

    Parameters
    ----------
    prefect
        Report to the Prefect API of the active profile; if false, report only if
        ``PREFECT_API_URL`` is set.

    Returns
    -------
    dict
        Summary of the run.
    """
    parameters = {**vars(sources), "out": out, "overwrite": overwrite}
    with (
        recorded(out, settings) as status,
        reporting(prefect, "xnq-dist", parameters, status.run_id) as (do, report),
        _shown(report, out, settings, status),
    ):
        planned = current_watch().left.plan
        return run_all(sources, out, settings, overwrite, do, planned)


def run_requantify(request: Request, prefect: bool = False) -> dict[str, Any]:
    """Estimate with new labels or memberships; errors of stages are raised."""
    shown = {"run": request.base, "out": request.out, "labels": request.labels}
    shown["memberships"] = request.sources.memberships
    settings = request.settings
    with (
        recorded(request.out, settings, "requantify") as status,
        reporting(prefect, "xnq-requantify", shown, status.run_id) as (do, report),
        _shown(report, request.out, settings, status),
    ):
        return requantify_all(request, do)
