"""The complete pipeline as a Prefect flow with one task per stage.

A stage that is complete for the same inputs and settings is skipped. Fingerprints in
the run directory decide that, not Prefect's cache, which compares parameters only: it
would also skip a scheduled run whose tables have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.context import FlowRunContext, TaskRunContext
from prefect.states import Failed
from pydantic import NonNegativeFloat, NonNegativeInt

from xnq_dist.app.deployed import (
    check_starts,
    deployed_settings,
    repeated,
    warn_of_credentials,
)
from xnq_dist.app.events import emit_news
from xnq_dist.app.lineage import lineage
from xnq_dist.app.reporting import Artifacts, LogLines, ReportOutbox
from xnq_dist.app.run_progress import StageProgress
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import ConnectionLostError, XnqError
from xnq_dist.core.progress import Progress
from xnq_dist.core.store import Published, RunDirectory
from xnq_dist.graph.tables import Sources
from xnq_dist.jobs import run_all

__all__ = ["TaskPerStage", "pipeline"]

T = TypeVar("T")


def _transient(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether a stage failed because of the network, so that a retry can help."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, ConnectionLostError | httpx.TransportError)


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
    def reported(self, out: str | None = None) -> Iterator[None]:
        """Send the package's log lines of the block; what it publishes at its end.

        Parameters
        ----------
        out
            Run directory of the first rows shown as an artifact and of the events;
            None: neither.
        """
        try:
            with LogLines(self._outbox, lambda _client: self._flow_run).attached():
                if out is None:
                    yield
                    return
                run = RunDirectory(out)
                before = Published(run).pointer().get("run_id")
                yield
                self._artifacts().prevalence(run)
                emit_news(run, before)
        finally:
            self._outbox.flush()

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
    """
    warn_of_credentials(
        nodes=nodes, edges=edges, memberships=memberships, out=out, settings=settings
    )
    do = TaskPerStage()
    sources = Sources(nodes, edges, memberships)
    try:
        check_starts()
        chosen = deployed_settings(settings)
        with do.reported(out), lineage(sources, out, chosen):
            summary = repeated(
                lambda: run_all(sources, out, chosen, overwrite, do),
                retries,
                retry_delay,
            )
    except XnqError as error:
        return Failed(message=str(error), data=error)
    return summary
