"""The complete pipeline as a Prefect flow with one task per stage.

A stage that is complete for the same inputs and settings is skipped. Fingerprints in
the run directory decide that, not Prefect's cache, which compares parameters only: it
would also skip a scheduled run whose tables have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.context import FlowRunContext, TaskRunContext
from prefect.states import Completed, Failed
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from xnq_dist.app.deployed import (
    check_starts,
    deployed_settings,
    limited,
    repeated,
    warn_of_credentials,
)
from xnq_dist.app.events import emit_news
from xnq_dist.app.json_lines import attached
from xnq_dist.app.recording import recorded
from xnq_dist.app.reporting import Artifacts, LogLines, ReportOutbox, await_api
from xnq_dist.app.run_page import RunPage
from xnq_dist.app.run_progress import StageProgress, current_watch
from xnq_dist.app.run_status import NEXT
from xnq_dist.core.errors import ConnectionLostError, XnqError
from xnq_dist.core.progress import Progress
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Published, RunDirectory
from xnq_dist.graph.tables import Sources
from xnq_dist.jobs import run_all

__all__ = ["TaskPerStage", "failed", "pipeline"]

log = logging.getLogger(__name__)

T = TypeVar("T")


def _transient(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether a stage failed because of the network, so that a retry can help."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, ConnectionLostError | httpx.TransportError)


def failed(error: XnqError) -> State[Any]:
    """The state of a flow run that an error ended: its cause, and what to do next."""
    todo = NEXT[error.exit_code]
    return Failed(message=f"{error}. Next: {todo}.", data=error)


class TaskPerStage:
    """Runs stages as Prefect tasks of the current flow run."""

    def __init__(self) -> None:
        context = FlowRunContext.get()
        self._flow_run = str(context and context.flow_run and context.flow_run.id)
        self._outbox = ReportOutbox()

    def __call__(self, stage: str, work: Callable[[Progress], T]) -> T:
        """Run a stage; an `XnqError` becomes a failed state without a traceback."""

        def guarded() -> Any:
            context = TaskRunContext.get()
            shown = self._artifacts(context and context.task_run.id)
            try:
                return work(StageProgress(stage, shown.progress))
            except XnqError as error:
                return Failed(message=str(error), data=error)

        made: Any = task(
            name=stage,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=2,
            retry_delay_seconds=5,
            retry_condition_fn=_transient,
        )(guarded)
        value: T = made(return_state=True).result(raise_on_failure=True)
        return value

    @contextmanager
    def reported(
        self, out: str | None = None, settings: Settings | None = None
    ) -> Iterator[RunPage | None]:
        """Send the package's log lines of the block; what it publishes at its end.

        Parameters
        ----------
        out, settings
            Run directory whose state is shown as an artifact, with the first rows of
            its results and the events, and the run's settings; None: none of these.
        """
        try:
            with attached(LogLines(self._outbox, lambda _client: self._flow_run)):
                if out is None or settings is None:
                    yield None
                    return
                run = RunDirectory(out)
                before = Published(run).pointer().get("run_id")
                with recorded(out, settings, run_id=self._flow_run) as status:
                    address = settings.watch.address
                    page = RunPage(self._artifacts(), run, status, address)
                    try:
                        with page.shown():
                            yield page
                    except XnqError as error:
                        log.error("%s. Next: %s", error, NEXT[error.exit_code])
                        raise
                self._artifacts().prevalence(run)
                emit_news(run, before)
        finally:
            self._outbox.flush()
            await_api()

    def _artifacts(self, task_run: Any = None) -> Artifacts:
        return Artifacts(self._outbox, lambda _client: self._flow_run, task_run)


@flow(name="xnq-dist", persist_result=False, validate_parameters=True)
def pipeline(
    nodes: str,
    edges: str,
    out: str,
    memberships: str | None = None,
    settings: Settings | None = None,
    overwrite: bool = False,
    retries: NonNegativeInt = 2,
    retry_delay: NonNegativeFloat = 60.0,
    timeout: PositiveFloat | None = None,
) -> Any:
    """Estimate the prevalence of every class in every community of a graph.

    Parameters
    ----------
    nodes, edges, memberships
        The input tables: a file, folder, glob or URI each.
    out
        Run directory.
    settings
        Settings; those of the deployment and the defaults hold for what is not given.
    overwrite
        Compute every stage again, also in a run directory made from other tables.
    retries, retry_delay
        How often the run starts again when workers or a connection were lost, and
        seconds to wait before; it resumes at its last checkpoint.
    timeout
        Seconds, all starts together, after which the run fails; None: no limit.
    """
    warn_of_credentials(
        nodes=nodes, edges=edges, memberships=memberships, out=out, settings=settings
    )
    do = TaskPerStage()
    sources = Sources(nodes, edges, memberships)
    try:
        check_starts()
        chosen = deployed_settings(settings)
        with do.reported(out, chosen) as page, limited(timeout):
            planned = current_watch().left.plan
            summary = repeated(
                lambda: run_all(sources, out, chosen, overwrite, do, planned),
                retries,
                retry_delay,
            )
    except XnqError as error:
        return failed(error)
    return Completed(message=page and page.message(), data=summary)
