"""The pipeline stages as plain functions on a run directory.

The flows and the command line call these; so can your own code.

>>> import xnq_dist  # doctest: +SKIP
>>> with xnq_dist.open_run(out, sources) as run:  # doctest: +SKIP
...     xnq_dist.prepare(run, sources, settings)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
)
from functools import partial
from typing import TYPE_CHECKING

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import RunDirectoryError
from xnq_dist.core.failures import OPEN, TEMPORARY, in_stage, stage_errors
from xnq_dist.core.leftovers import scratch_folder, sweep_run
from xnq_dist.core.lock import LOCK, run_lock
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.records import METHODS
from xnq_dist.core.redaction import within
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    POINTER,
    RUN,
    Manifest,
    RunDirectory,
    delete_damage,
)
from xnq_dist.core.tasks import Tasks, tasks_on
from xnq_dist.due import elsewhere, scratch_of
from xnq_dist.graph.profile.inputs import read_contents
from xnq_dist.graph.sources import Sources, absolute
from xnq_dist.input_checks import check_inputs, check_request, check_sources
from xnq_dist.plan import (
    Plan,
    check_client_fits,
    check_fits,
    check_scratch_fits,
)
from xnq_dist.plan.checks import settled
from xnq_dist.plan.of_tables import estimate, estimate_counts
from xnq_dist.reservoir.needs import EMBEDDER

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "check_inputs",
    "check_request",
    "check_sources",
    "embed",
    "estimate",
    "estimate_counts",
    "fit_readout",
    "open_run",
    "plan_run",
    "posteriors",
    "prepare",
    "publish",
    "quantify",
]

log = logging.getLogger(__name__)


@contextmanager
def open_run(
    out: str, sources: Sources, overwrite: bool = False, labels: str | None = None
) -> Iterator[RunDirectory]:
    """Lock a run directory, creating it if needed; a context manager.

    Raises
    ------
    InfrastructureError
        When another run has locked it, or its disk is full, read-only or failing.
    RunDirectoryError
        When it cannot be written or is not a run directory. A directory with another
        graph is refused by `prepare`, which reads the tables.
    """
    run = RunDirectory(out)
    with ExitStack() as held:
        with stage_errors(run.uri, OPEN):
            _check_place(run, (*sources.paths.values(), labels))
            held.enter_context(run_lock(run))
            _take(run, overwrite)
        yield run


def _check_place(run: RunDirectory, tables: Iterable[str | None]) -> None:
    for path in tables:
        if path and within(absolute(path), run.uri):
            raise RunDirectoryError(
                f"{path} lies in the run directory {run.uri}, whose files are "
                "replaced: copy it elsewhere, or choose another --out"
            )


def _take(run: RunDirectory, overwrite: bool) -> None:
    """Make a locked folder a run directory; repair damage and remove leftovers."""
    if not (run.exists(RUN) or run.exists(POINTER)):
        others = [
            name
            for name in run.names()
            if name != LOCK
            and not (name.startswith(TEMPORARY) or name.endswith(".tmp"))
        ]
        if others:
            raise RunDirectoryError(
                f"{run.uri} holds {others[0]!r} and is not a run directory: "
                "choose an empty or new folder for --out"
            )
    if overwrite:
        run.remove("graph")  # and all that is made from it
        RunRecord().write(run)
    delete_damage(run)
    if RunRecord.read(run) == RunRecord():
        graph = run.stage("graph").manifest()
        RunRecord(nodes=graph.inputs["nodes"] if graph else None).write(run)
    sweep_run(run)


@in_stage("graph")
def plan_run(run: RunDirectory, sources: Sources, settings: Settings) -> Plan:
    """The plan of a run, made once at its start; `prepare` records it."""
    before = run.stage("graph").manifest()
    # A change in the number of workers alone must not partition the graph again.
    partitions = None if before is None else int(before.facts["partitions"])
    plan = estimate(sources, settings, partitions=partitions)
    if plan.kind == "local":
        CLUSTERS.module_of("local").check_program()
    return plan


@in_stage("graph")
def prepare(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    progress: Progress = silent,
    plan: Plan | None = None,
    connect: Callable[[], AbstractContextManager[Client]] | None = None,
) -> Manifest:
    """Stages ``graph``, ``labels`` and ``scores``: ingest, partition, halo plan.

    Parameters
    ----------
    plan
        From `plan_run`; None: made here. It is written to ``plan.json`` in the run
        directory, where the later stages read it.
    connect
        Opens a client of the workers, which read and sort the edges where the plan
        expects that this pays; None: this process does, with the same result.

    Raises
    ------
    InputError
        When a table breaks the data contract.
    RunDirectoryError
        When the directory holds the graph of other nodes.
    DoesNotFitError
        When the plan needs more memory or disk than is available.
    """
    from xnq_dist.graph import prepare as stage

    tables = read_contents(run, sources, settings)
    nodes = tables["nodes"]
    RunRecord.read(run).belongs(nodes, run.uri)
    RunRecord(nodes, sources.absolute(), settings.model_dump(mode="json")).write(run)
    plan = plan or plan_run(run, sources, settings)
    plan.write(run)
    _check_planned(run, plan, settings)
    workers: Callable[[], AbstractContextManager[Tasks | None]] = nullcontext
    if plan.ingest_workers and connect is not None:
        workers = partial(_tasks, run, plan.placed(settings), plan, connect)
    return stage.prepare(
        run, sources, settings, plan.partitions, progress, tables, workers
    )


def _check_planned(run: RunDirectory, plan: Plan, settings: Settings) -> None:
    """Refuse a plan that does not fit, as far as its stages are due."""
    if run.stage("graph").manifest() is None:
        check_client_fits(plan)
        check_scratch_fits(plan, settings.scratch)
    due = run.stage("quantify").manifest() is None
    if due and plan.worker_limit < EMBEDDER:  # no worker could start
        check_fits(plan)


@contextmanager
def _tasks(
    run: RunDirectory,
    settings: Settings,
    plan: Plan,
    connect: Callable[[], AbstractContextManager[Client]],
) -> Iterator[Tasks | None]:
    """Tasks on the workers, and a folder that they share; None if there is none."""
    where = scratch_of(run, settings)
    if where is None and elsewhere(settings):
        log.warning(
            "edges are read in one process: set scratch to a folder that all workers "
            "can access"
        )
        yield None
        return
    check_scratch_fits(plan, where)
    with scratch_folder(where) as folder, connect() as client:
        yield tasks_on(client, folder, settings.input.memory_bytes)


@in_stage("embeddings")
def embed(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Stages ``select`` (when scales are to be selected) and ``embeddings``.

    Raises
    ------
    DoesNotFitError
        When the partitioned graph needs more memory or disk than is available.
    """
    settings = settled(run, settings, client)
    made: Manifest = METHODS.module_of(settings.method).embed(
        run, settings, client, progress
    )
    return made


@in_stage("readout")
def fit_readout(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Stage ``readout``: the classifier of the embeddings, fitted and calibrated."""
    from xnq_dist.readout import stage

    settings = settled(run, settings, client, "readout", "quantify")
    return stage.fit_readout(run, settings, client, progress)


@in_stage("posteriors")
def posteriors(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Stage ``posteriors``: the class probabilities of every node.

    With ``embeddings.write = false`` the embeddings are removed once the posteriors
    are complete; the stage's manifest stays and records the removal.
    """
    from xnq_dist.readout import stage

    settings = settled(run, settings, client, "readout", "quantify")
    written = stage.write_posteriors(run, settings, client, progress)
    if not settings.embeddings.write:
        run.stage("embeddings").release(run.complete("embeddings"))
    return written


@in_stage("quantify")
def quantify(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Stage ``quantify``: the prevalence of every community, batches in parallel."""
    from xnq_dist.quantify import stage

    settings = settled(run, settings, client, "quantify")
    return stage.quantify(run, sources, settings, client, progress)


@in_stage("publish")
def publish(run: RunDirectory, settings: Settings) -> None:
    """Publish tables and the report page at the top of the run directory."""
    from xnq_dist.steps import publish as stage

    stage.publish(run, settings)
