"""Complete jobs: all due stages in their order, with workers if a stage needs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xnq_dist.core import cluster
from xnq_dist.core.cluster import Connection
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import Manifest, RunDirectory, deleting_damage, repaired
from xnq_dist.due import due_after_embeddings, due_stages, summary
from xnq_dist.graph.tables import Sources
from xnq_dist.pipeline import (
    check_inputs,
    check_request,
    check_sources,
    embed,
    fit_readout,
    open_run,
    plan_run,
    prepare,
    publish,
    quantify_communities,
)
from xnq_dist.plan import Plan
from xnq_dist.reuse import Request, relabel, take_over

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Do", "Request", "requantify", "requantify_all", "run_all", "run_stages"]

T = TypeVar("T")
Planned = Callable[[float | None], None]
"""Takes the expected seconds of a complete run; None: not known."""


class Do(Protocol):
    """Runs the work of a stage, such as in a Prefect task."""

    def __call__(self, stage: str, work: Callable[[Progress], T]) -> T:
        """Call `work` with a progress, under the name `stage`; return its result."""


class Workers(Protocol):
    """Workers of a job."""

    def start(self) -> None:
        """Start them, unless they run."""

    def client(self) -> AbstractContextManager[Client]:
        """A client of the workers, which start if they do not run."""

    def stop(self) -> None:
        """Stop them if the job started them."""


class OwnWorkers:
    """Workers that start when a stage first needs them, and stay for later ones."""

    def __init__(self, sized: Settings, timeout: float) -> None:
        self._settings, self._timeout = sized.cluster, timeout
        self._held = ExitStack()
        self._connection: Connection | None = None

    def start(self) -> None:
        """Start them, unless they run."""
        self._started()

    def _started(self) -> Connection:
        if self._connection is None:
            opened = cluster.open_cluster(self._settings)
            self._connection = self._held.enter_context(opened)
        return self._connection

    def client(self) -> AbstractContextManager[Client]:
        """A client of the workers, which start if they do not run."""
        return cluster.connect(self._started(), self._timeout)

    def stop(self) -> None:
        """Stop them."""
        self._connection = None
        self._held.close()

    def __enter__(self) -> OwnWorkers:
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(*error)


class GivenWorkers:
    """Workers of a caller's client, which keep running."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def start(self) -> None:
        """They run."""

    def client(self) -> AbstractContextManager[Client]:
        """The caller's client."""
        return nullcontext(self._client)

    def stop(self) -> None:
        """They stay."""


def run_all(
    sources: Sources,
    out: str,
    settings: Settings,
    overwrite: bool = False,
    do: Do | None = None,
    planned: Planned = lambda seconds: None,
) -> dict[str, Any]:
    """Do all stages that are due, in order, in this process.

    Parameters
    ----------
    do
        Runs each stage, such as in a Prefect task; None: called directly, without
        progress.
    planned
        Called with the expected seconds of a run that begins with the graph, before it.

    Returns
    -------
    dict
        As `summary`, with ``stages`` (files, bytes and rows of each) and ``seconds``.
    """
    do = do or _plainly
    began = time.perf_counter()
    check_sources(sources, settings)
    with open_run(out, sources, overwrite) as run:
        check_inputs(run, sources, settings)
        plan = None
        due = due_stages(run, sources, settings)
        if _on_workers(due):
            plan = plan_run(run, sources, settings)
            if "graph" in due:
                planned(plan.planned.seconds)
        sized = settings if plan is None else plan.resolved(settings)
        with OwnWorkers(sized, settings.cluster.timeout) as workers:
            work = partial(_do_what_is_due, run, sources, settings, workers, do, plan)
            stages = repaired(work)
        seconds = round(time.perf_counter() - began, 1)
        if plan is not None and "graph" in due:
            plan.took(seconds)
        return {**summary(run), "stages": stages, "seconds": seconds}


def run_stages(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Do all stages of an open run that are due, on the workers of a client.

    Damaged files are deleted and made again.

    Returns
    -------
    dict
        Paths and counts of the results (see `summary`).

    Raises
    ------
    XnqError
        Raised by a stage; for damaged files only if repairs fail repeatedly.
    """
    check_inputs(run, sources, settings)
    do = partial(_plainly, progress=progress)
    workers = GivenWorkers(client)
    repaired(partial(_do_what_is_due, run, sources, settings, workers, do))
    return summary(run)


def _do_what_is_due(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    workers: Workers,
    do: Do,
    plan: Plan | None = None,
) -> dict[str, Any]:
    """Do the due stages; start workers only for those that need them.

    Returns files, bytes and rows of each stage, by its name.
    """
    if not due_stages(run, sources, settings):
        return {}
    made = do(
        "graph",
        lambda p: _written(prepare(run, sources, settings, p, plan, workers.client)),
    )
    due = due_stages(run, sources, settings)
    return {"graph": made, **_do_after_labels(run, sources, settings, due, workers, do)}


def _do_after_labels(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    names: Iterable[str],
    workers: Workers,
    do: Do,
) -> dict[str, Any]:
    """Do the due stages after ``graph`` and ``labels``."""
    due, stages = set(names), {}

    def on_workers(
        name: str, stage: Callable[[Client, Progress], Manifest]
    ) -> dict[str, Any]:
        def work(progress: Progress) -> dict[str, Any]:
            with stage_errors(run.uri, name), workers.client() as client:
                return _written(stage(client, progress))

        workers.start()
        return do(name, work)

    if due & {"select", "embeddings"}:
        stages["embeddings"] = on_workers(
            "embed", lambda client, p: embed(run, settings, client, p)
        )
    if due - {"labels", "quantify", "published"}:
        stages["readout"] = on_workers(
            "readout", lambda client, p: fit_readout(run, settings, client, p)
        )
    if _on_workers(due):
        stages["quantify"] = on_workers(
            "quantify",
            lambda client, p: quantify_communities(run, sources, settings, client, p),
        )
    workers.stop()

    def published(_progress: Progress) -> dict[str, Any]:
        publish(run, settings)
        return {"stage": "publish"}

    if due:
        stages["publish"] = do("publish", published)
    return stages


def _on_workers(names: Iterable[str]) -> bool:
    return any(STAGES[name].on_workers for name in names)


def _plainly(
    stage: str, work: Callable[[Progress], T], progress: Progress = silent
) -> T:
    return work(progress)


def _written(manifest: Manifest) -> dict[str, Any]:
    """Path and size of a stage, small enough for a task's result."""
    return {
        "stage": manifest.stage,
        "attempt": manifest.attempt,
        "files": len(manifest.files),
        "bytes": sum(record.bytes for record in manifest.files),
        "rows": sum(record.rows for record in manifest.files),
        "seconds": manifest.seconds,
    }


def requantify(
    request: Request, client: Client, progress: Progress = silent
) -> RunDirectory:
    """Estimate with new labels or memberships from the embeddings of a run.

    Parameters
    ----------
    request
        From `Request.of`: the run, the new tables, and where the results go.
    client
        A Dask client of the workers to use.

    Returns
    -------
    RunDirectory
        The directory with the published results.

    Raises
    ------
    RunDirectoryError, StageError, SettingsError, InputError
        When the run, its embeddings, the settings or a table cannot be used.
    """
    with open_run(request.out, request.sources, labels=request.labels) as run:
        do = partial(_plainly, progress=progress)
        repaired(partial(_estimate_again, run, request, GivenWorkers(client), do))
    return run


def requantify_all(request: Request, do: Do | None = None) -> dict[str, Any]:
    """`requantify` on the workers of the settings; `do` and result as in `run_all`."""
    began = time.perf_counter()
    settings = request.settings
    with open_run(request.out, request.sources, labels=request.labels) as run:
        plan = Plan.read(RunDirectory(request.base).folder)
        sized = plan.placed(settings) if plan else settings
        with OwnWorkers(sized, settings.cluster.timeout) as workers:
            stages = repaired(
                partial(_estimate_again, run, request, workers, do or _plainly)
            )
        seconds = round(time.perf_counter() - began, 1)
        return {**summary(run), "stages": stages, "seconds": seconds}


def _estimate_again(
    run: RunDirectory, request: Request, workers: Workers, do: Do
) -> dict[str, Any]:
    sources, settings = request.sources, request.settings
    with deleting_damage(run):
        check_request(run, request)
        take_over(run, request)
        made = do("labels", lambda p: _written(relabel(run, request, p)))
    due = due_after_embeddings(run, sources, settings)
    later = _do_after_labels(run, sources, settings, due, workers, do)
    return {"labels": made, **later}
