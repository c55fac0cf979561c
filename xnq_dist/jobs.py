"""A complete run: its due stages in their order, with workers if a stage needs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.core.cluster import Connection
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES, following
from xnq_dist.core.store import Manifest, RunDirectory, deleting_damage, repaired
from xnq_dist.due import (
    due_stages,
    record_sources,
    require_embeddings,
    scratch_of,
    summary,
)
from xnq_dist.graph.sources import Sources
from xnq_dist.input_checks import check_inputs, check_request, check_sources
from xnq_dist.monitor.progress import expecting, in_view, watching
from xnq_dist.plan import Plan
from xnq_dist.reuse import Request, relabel, take_over

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "Job",
    "Request",
    "each_stage",
    "requantify",
    "run_all",
    "run_stages",
]


class Job(ExitStack):
    """The stages of a run in one run directory, and the workers that they share.

    Workers start when a stage first needs them, and stay for later ones until the block
    ends. Those of a caller's client run already, and keep running.

    Parameters
    ----------
    sized
        The settings with the planned workers.
    request
        New labels or memberships for existing embeddings; None: a run from its tables.
    client
        A caller's; None: workers are started.
    plan
        From `pipeline.plan_run`; None: `prepare` makes it.
    """

    def __init__(
        self,
        run: RunDirectory,
        sources: Sources,
        settings: Settings,
        sized: Settings,
        request: Request | None = None,
        client: Client | None = None,
        plan: Plan | None = None,
    ) -> None:
        super().__init__()
        self.run, self.sources, self.settings = run, sources, settings
        self.plan, self.request = plan, request
        self._cluster, self._given = sized.cluster, client
        self._connection: Connection | None = None
        self.first = "graph" if request is None else "labels"
        """Stage that also records tables and settings: it is due with any other."""
        self.due: Sequence[str] = ()
        """Stages of the run directory that are to be made."""
        self.made: dict[str, float | None] = {}
        """Stages of the job that were done, and their seconds where recorded."""

    def complete(self, stages: Callable[[Job], None]) -> dict[str, Any]:
        """Let `stages` do what is due, and again what is damaged; the summary."""

        def work() -> None:
            self.made, self.due = {}, [self.first]
            if self.request is None:
                self._find_due()
            stages(self)

        repaired(work)
        return {**summary(self.run), "stages": self.made}

    def client(self) -> AbstractContextManager[Client]:
        """A client of the workers, which start if they do not run."""
        if self._given is not None:
            return nullcontext(self._given)
        if self._connection is None:
            opened = cluster.open_cluster(self._cluster)
            self._connection = self.enter_context(opened)
        return cluster.connect(self._connection, self._cluster.timeout)

    def do(self, name: str, run: Callable[..., Any] = in_view) -> None:
        """Do a stage of the job, if it is due; `run` calls it, as `in_view` does.

        A method of its name does it; else the function of its name of `pipeline`,
        called with a client of the workers.
        """
        due = {self.first, *(STAGES[each].made_by for each in self.due)}
        if self.due and name in due:
            work = getattr(self, name, None)
            if work is None:
                work = partial(self._staged, name, getattr(pipeline, name))
            made = run(name, work)
            self.made[name] = made.seconds if made else None

    def graph(self, progress: Progress) -> Manifest:
        """Read and check the tables, partition the graph, code the labels."""
        made = pipeline.prepare(
            self.run,
            self.sources,
            self.settings,
            progress,
            self.plan,
            self.client,
        )
        self._find_due()
        return made

    def labels(self, _progress: Progress) -> Manifest:
        """Take over the embeddings of a run, and read its new labels."""
        assert self.request is not None  # noqa: S101 - see `requantify`
        with deleting_damage(self.run):
            check_request(self.run, self.request)
            take_over(self.run, self.request)
            made = relabel(self.run, self.request)
        later = following("readout")
        self.due = due_stages(self.run, self.sources, self.settings, later)
        if "embeddings" in self.due:
            require_embeddings(self.run)
        return made

    def readout(self, progress: Progress) -> Manifest:
        """Fit and calibrate the classifier on the labelled nodes."""
        return self._staged("readout", pipeline.fit_readout, progress)

    def quantify(self, progress: Progress) -> Manifest:
        """Estimate the communities, batches of them in parallel."""
        return self._staged("quantify", pipeline.quantify, progress, self.sources)

    def _staged(
        self, name: str, work: Callable[..., Manifest], progress: Progress, *more: Any
    ) -> Manifest:
        with stage_errors(self.run.uri, name), self.client() as client:
            return work(self.run, *more, self.settings, client, progress)

    def publish(self, _progress: Progress) -> None:
        """Stop the workers, then publish tables and report page."""
        self._connection = None
        self.close()
        pipeline.publish(self.run, self.settings)

    def _find_due(self) -> None:
        self.due = due_stages(self.run, self.sources, self.settings)


def each_stage(job: Job) -> None:
    """Do the due stages of a job in their order."""
    later = (stage.made_by for stage in STAGES.values())
    for name in dict.fromkeys([job.first, *later]):
        job.do(name)


def run_all(
    sources: Sources,
    out: str,
    settings: Settings,
    overwrite: bool = False,
    stages: Callable[[Job], None] = each_stage,
) -> dict[str, Any]:
    """Do all stages that are due, in order, in this process.

    Parameters
    ----------
    stages
        Does the stages of the job, such as a flow.

    Returns
    -------
    dict
        As `summary`, with ``stages`` (seconds of those that were done) and ``seconds``.
    """
    began = time.perf_counter()
    check_sources(sources, settings)
    with (
        pipeline.open_run(out, sources, overwrite) as run,
        sources.copied(scratch_of(run, settings)) as sources,
    ):
        check_inputs(run, sources, settings)
        plan, sized, seconds = None, settings, None
        due = due_stages(run, sources, settings)
        if not due:
            record_sources(run, sources)
        # Whatever is due before the publication, the estimates follow, on workers.
        if {*due} - {"published"}:
            plan = pipeline.plan_run(run, sources, settings)
            sized = plan.resolved(settings)
            if "graph" in due:
                seconds = plan.seconds
        job = Job(run, sources, settings, sized, plan=plan)
        with expecting(seconds), job:
            found = job.complete(stages)
        return {**found, "seconds": round(time.perf_counter() - began, 1)}


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
    with (
        watching(progress),
        sources.copied(scratch_of(run, settings)) as sources,
    ):
        check_inputs(run, sources, settings)
        job = Job(run, sources, settings, settings, client=client)
        return job.complete(each_stage)


def requantify(
    request: Request,
    client: Client | None = None,
    stages: Callable[[Job], None] = each_stage,
) -> dict[str, Any]:
    """Estimate with new labels or memberships from the embeddings of a run.

    Parameters
    ----------
    request
        From `Request.of`: the run, the new tables, and where the results go.
    client
        A Dask client of the workers to use; None: those of the settings.
    stages
        As for `run_all`.

    Returns
    -------
    dict
        As from `run_all`.

    Raises
    ------
    RunDirectoryError, StageError, SettingsError, InputError
        When the run, its embeddings, the settings or a table cannot be used.
    """
    began = time.perf_counter()
    settings = request.settings
    with (
        pipeline.open_run(request.out, request.sources, labels=request.labels) as run,
        request.sources.copied(scratch_of(run, settings)) as sources,
    ):
        request = replace(request, sources=sources)
        plan = Plan.read(RunDirectory(request.base))
        sized = plan.placed(settings) if plan else settings
        with Job(run, sources, settings, sized, request, client) as job:
            found = job.complete(stages)
        return {**found, "seconds": round(time.perf_counter() - began, 1)}
