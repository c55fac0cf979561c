"""The line as functions on a run directory: what the flows call, usable without them.

>>> import xnq_dist  # doctest: +SKIP
>>> with xnq_dist.pipeline.open_run(out, sources) as run:  # doctest: +SKIP
...     xnq_dist.prepare(run, sources, settings)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from xnq_dist import cluster
from xnq_dist.config import Settings
from xnq_dist.due import ON_WORKERS, answers_due, due_stages, summary
from xnq_dist.errors import RunDirectoryError
from xnq_dist.graph.contents import read_contents
from xnq_dist.graph.tables import Sources
from xnq_dist.inputs import choose_source, posteriors_inputs, readout_inputs
from xnq_dist.lock import LOCK, RunLock
from xnq_dist.meanwhile import Opener, opened_meanwhile
from xnq_dist.plan import (
    Workers,
    check_client_fits,
    check_fits,
    check_scratch_fits,
    make_plan,
)
from xnq_dist.plan.tables import (
    count_tables,
    estimate,
    estimate_counts,
    free_memory,
    plan_of,
    size_of,
)
from xnq_dist.progress import Progress, silent
from xnq_dist.requantify import Request, relabel, take_over
from xnq_dist.run_record import RUN, RunRecord
from xnq_dist.sizes import human
from xnq_dist.store import (
    PREVIOUS,
    STAGES,
    Folder,
    Manifest,
    RunDirectory,
    fingerprint,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "ON_WORKERS",
    "Request",
    "answers_due",
    "check_sources",
    "cluster_meanwhile",
    "due_stages",
    "embed",
    "estimate",
    "estimate_counts",
    "fit_readout",
    "free_memory",
    "import_stages",
    "needs_workers",
    "open_run",
    "plan_of",
    "prepare",
    "publish",
    "published_rows",
    "quantify_communities",
    "relabel",
    "requantify",
    "size_of",
    "summary",
    "take_over",
]

log = logging.getLogger(__name__)

PRELOAD = "xnq_dist.preload"
"""What workers of our own import before they join."""

STAGE_MODULES = (
    "igraph",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "pyarrow.dataset",
    "pymetis",
    "xnq_dist.graph.prepare",
    "xnq_dist.quantify.run",
    "xnq_dist.readout.plus",
    "xnq_dist.readout.run",
    "xnq_dist.readout.select",
    "xnq_dist.report.run",
    "xnq_dist.reservoir.embed",
)
"""What the stages import in the client's process, at first use."""


@contextmanager
def open_run(
    out: str, sources: Sources, overwrite: bool = False, labels: str | None = None
) -> Iterator[RunDirectory]:
    """Hold a run directory; made when it is not there.

    Raises
    ------
    RunDirectoryError
        When it is in use, cannot be written or holds something else. Whether it
        holds another graph shows when the tables are read: `prepare` refuses it.
    """
    run = RunDirectory(out)
    folder = run.folder
    if folder.is_local and folder.exists() and not _is_folder(folder):
        raise RunDirectoryError(f"{run.uri} is a file: choose another --out")
    for path in (*asdict(sources).values(), labels):
        if path and f"{_absolute(path)}/".startswith(f"{run.uri}/"):
            raise RunDirectoryError(
                f"{path} lies in the run directory {run.uri}, whose files are "
                "replaced: copy it elsewhere, or choose another --out"
            )
    with RunLock(folder):
        known = folder.exists(RUN)
        if not known:
            others = [
                name
                for name in folder.names()
                if name not in (LOCK, RUN) and not name.endswith(".tmp")
            ]
            if others:
                raise RunDirectoryError(
                    f"{run.uri} holds {others[0]!r} and is not a run directory: "
                    "choose an empty or new folder for --out"
                )
        if overwrite:
            _remove(run)
        elif not known:
            RunRecord().write(folder)
        yield run


def _remove(run: RunDirectory) -> None:
    """Take a run away; whose graph it held is kept, to know whether it is another."""
    before = run.folder.read_json(RUN)
    nodes = before.get("nodes") if isinstance(before, dict) else None
    run.retire()
    for name in STAGES:
        run.stage(name).folder.delete_folder()
    RunRecord(replaces=nodes if isinstance(nodes, dict) else None).write(run.folder)


@contextmanager
def cluster_meanwhile(
    sources: Sources, settings: Settings, out: str | None = None
) -> Iterator[Opener[str]]:
    """Begin to start the local cluster; the block gets what waits for its address.

    Worker processes take seconds to start and to import what the stages need: that
    goes on beside `prepare`, which needs none of them, and stopping them beside
    `publish`. A cluster that runs already is looked for when its address is asked for,
    and so is one on GPUs, which are `prepare`'s until then.

    Parameters
    ----------
    out
        The run directory: where no stage of it needs workers, none are started before
        the address is asked for. None: they are needed.

    Raises
    ------
    ClusterError
        When the address is asked for and there is none.
    """
    idle = out is not None and not needs_workers(RunDirectory(out), sources, settings)
    if idle or settings.cluster.kind != "local":
        yield partial(cluster.open_cluster, settings.cluster)
        return
    # With the memory of workers on auto: less what `prepare` is yet to take.
    plan = estimate(sources, settings)
    if plan.worker_memory > plan.worker_limit:
        # Workers too small for the run may not even hold what they would import.
        yield partial(cluster.open_cluster, settings.cluster)
        return
    make = partial(cluster.open_cluster, settings.cluster, PRELOAD, plan.client_memory)
    # Here, not in the thread: where modules import each other, one of two threads that
    # import them at once may find a half of one.
    import_module("distributed")
    with opened_meanwhile(make) as opened:
        yield opened


def import_stages() -> None:
    """Import what the stages will, for a caller who has to wait anyway."""
    for name in STAGE_MODULES:
        import_module(name)


def prepare(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    progress: Progress = silent,
) -> Manifest:
    """Stages ``graph`` and ``labels``: ingest, partition, halo plan.

    Raises
    ------
    InputError
        When a table breaks the data contract.
    RunDirectoryError
        When the directory holds the graph of other nodes.
    SettingsError
        When the run is to be compared with one of other classes.
    DoesNotFitError
        When the plan needs more than there is.
    """
    from xnq_dist.graph import prepare as stage
    from xnq_dist.quantify.seed_runs import check_seed_runs
    from xnq_dist.report.earlier import check_named

    check_named(settings, run.uri)
    check_seed_runs(settings.intervals.seed_runs, run.uri)
    tables = read_contents(run.folder, sources, settings)
    _claim(run, sources, settings, tables["nodes"])
    before = run.stage("graph").manifest()
    # Another number of workers tonight is no reason to cut the graph anew.
    cut = None if before is None else int(before.facts["partitions"])
    plan = estimate(sources, settings, partitions=cut)
    if before is None:
        check_client_fits(plan, free_memory())
        check_scratch_fits(plan, settings.scratch)
    if plan.worker_memory > plan.worker_limit and plan.partitions > 1:
        log.warning("by the bound of a random cut a worker may not hold its part")
    made = stage.prepare(run, sources, settings, plan.partitions, progress, tables)
    labels = run.stage("labels").manifest()
    classes = labels.facts["classes"] if labels else []
    # Now that the classes are known, and before hours of work.
    check_named(settings, run.uri, [str(name) for name in classes])
    check_seed_runs(settings.intervals.seed_runs, run.uri, made)
    return made


def _claim(
    run: RunDirectory, sources: Sources, settings: Settings, nodes: dict[str, Any]
) -> None:
    """Note whose graph the directory holds, unless it is another's."""
    record = RunRecord.read(run.folder) or RunRecord()
    record.belongs(nodes, run.uri)
    if record.replaces is not None and dict(record.replaces) != nodes:
        run.stage(PREVIOUS).folder.delete_folder()  # results of another graph
    RunRecord(
        nodes=nodes,
        sources=absolute_paths(sources),
        settings=settings.model_dump(mode="json"),
    ).write(run.folder)


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
        When the partitioned graph needs more memory or disk than there is.
    """
    from xnq_dist.readout.select import select_scales
    from xnq_dist.reservoir.embed import embed_scaled

    settings = cluster.settle(client, settings)
    graph = run.stage("graph").manifest()
    if graph is not None:
        threads = cluster.workers(client)
        workers = Workers(
            max(1, len(threads)),
            max(threads.values(), default=1),
            cluster.smallest_memory(client),
            cluster.device_memory(client, settings.cluster)
            if settings.backend == "gpu" and not settings.exchange.on_cpus
            else 0,
        )
        labels = run.stage("labels").manifest()
        size = size_of(graph, settings, workers.count, run.stage("graph"), labels)
        plan = make_plan(size, settings, graph.facts["partitions"], workers)
        if run.stage("embeddings").manifest() is None:
            out = run.folder.path() if run.folder.is_local else None
            check_fits(plan, out, _bytes_in(out) if out else 0)
        states = settings.exchange.model_copy(update={"states": plan.states})
        settings = settings.model_copy(update={"exchange": states})
        if plan.states == "disk":
            log.info("states are kept in files: %s of them", human(plan.state_disk))
    before = run.stage("embeddings").manifest()
    released = before is not None and before.facts.get("released")
    if released and (
        settings.embeddings.write or not _readout_is_whole(run, settings, before)
    ):
        # They are needed once more.
        run.stage("embeddings").folder.delete_folder()
    recurrent_scale, input_scale = select_scales(run, settings, client, progress)
    return embed_scaled(run, settings, client, recurrent_scale, input_scale, progress)


def fit_readout(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Stages ``readout`` and ``posteriors``.

    Without ``embeddings.write`` the embeddings are removed once the posteriors are
    whole; the stage's manifest stays and says so.
    """
    from xnq_dist.readout import run as stage

    settings = _settled(settings, client)
    embeddings = run.stage("embeddings").manifest()
    written = run.stage("posteriors").manifest()
    if embeddings is not None and embeddings.facts.get("released") and written:
        return written  # `embed` has made sure that they are what is asked for
    written = stage.fit_readout(run, settings, client, progress)
    embeddings = run.stage("embeddings").manifest()
    if not settings.embeddings.write and embeddings is not None:
        run.stage("embeddings").release(embeddings)
    return written


def quantify_communities(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Stage ``quantify``: the prevalence of every community."""
    from xnq_dist.quantify import run as stage

    settings = _settled(settings, client)
    return stage.quantify(run, sources, settings, client, progress)


def _settled(settings: Settings, client: Client) -> Settings:
    """The settings with the backend of all workers, in float32."""
    wanted = settings.backend
    found = wanted if wanted == "cpu" else cluster.settle_backend(client, wanted)
    return settings.model_copy(update={"backend": found})


def requantify(
    request: Request, client: Client, progress: Progress = silent
) -> RunDirectory:
    """New labels or memberships on the embeddings of a run; nothing is embedded.

    Parameters
    ----------
    request
        Of `Request.of`: the run, the tables that are new, and where results go.

    Returns
    -------
    RunDirectory
        With published results.

    Raises
    ------
    RunDirectoryError, StageError, SettingsError, InputError
        Each in one sentence.
    """
    sources, settings = request.sources, request.settings
    with open_run(request.out, sources, labels=request.labels) as run:
        take_over(run, request)
        relabel(run, request, progress)
        due = answers_due(run, sources, settings)
        if not {"readout", "posteriors"}.isdisjoint(due):
            fit_readout(run, settings, client, progress)
        if "quantify" in due:
            quantify_communities(run, sources, settings, client, progress)
        if due:
            publish(run, settings)
    return run


def publish(run: RunDirectory, settings: Settings) -> None:
    """Publish the tables, plots and page at the top of the run directory."""
    from xnq_dist.report import run as stage

    stage.report(run, settings)


def check_sources(sources: Sources, settings: Settings) -> None:
    """Refuse what the tables' heads already show: missing files, columns, rows.

    Earlier results that are named for comparison, and runs with other seeds, are
    looked at as well.

    Raises
    ------
    InputError, SettingsError
        Naming the table and what to do.
    """
    from xnq_dist.graph.gpu_ingest import uses_cudf
    from xnq_dist.graph.head import table_size
    from xnq_dist.graph.tables import open_table
    from xnq_dist.quantify.detection import engine_of
    from xnq_dist.quantify.seed_runs import check_seed_runs
    from xnq_dist.report.earlier import check_named

    check_named(settings)
    check_seed_runs(settings.intervals.seed_runs)
    count_tables(sources, settings)
    if settings.input.engine == "cudf":
        uses_cudf(settings)
    if sources.memberships is not None:
        table_size(sources.memberships, settings, "memberships")
    source = choose_source(sources.memberships, settings)
    if source == "leiden":
        engine_of(settings)
    if source.startswith("column:"):
        column = settings.communities.removeprefix("column:")
        open_table(sources.nodes, "node table").require({"communities": column})


def published_rows(run: RunDirectory, count: int) -> list[dict[str, Any]]:
    """The first rows of the published prevalence table."""
    with run.folder.open_input("prevalence.parquet") as stream:
        batches = pq.ParquetFile(stream).iter_batches(batch_size=count)
        rows: list[dict[str, Any]] = next(batches).to_pylist()
    return rows


def _bytes_in(folder: str) -> int:
    from pathlib import Path

    return sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())


def _readout_is_whole(
    run: RunDirectory, settings: Settings, embeddings: Manifest | None
) -> bool:
    """Whether readout and posteriors are those of these embeddings and settings."""
    names = ("graph", "labels", "readout", "posteriors")
    graph, labels, readout, posteriors = (run.stage(n).manifest() for n in names)
    if not (graph and embeddings and labels and readout and posteriors):
        return False
    wanted = fingerprint(readout_inputs(graph, embeddings, labels, settings))
    return readout.fingerprint == wanted and posteriors.fingerprint == fingerprint(
        posteriors_inputs(readout)
    )


def _is_folder(folder: Folder) -> bool:
    import pyarrow.fs as pafs

    info = folder.filesystem.get_file_info(folder.path())
    return bool(info.type == pafs.FileType.Directory)


def needs_workers(run: RunDirectory, sources: Sources, settings: Settings) -> bool:
    """Whether a stage that needs a cluster is due."""
    return not ON_WORKERS.isdisjoint(due_stages(run, sources, settings))


def absolute_paths(sources: Sources) -> dict[str, str | None]:
    """Where the tables are, whatever the working directory."""
    return {
        name: None if path is None else _absolute(path)
        for name, path in asdict(sources).items()
    }


def _absolute(path: str) -> str:
    from pathlib import Path

    return path if "://" in path else str(Path(path).expanduser().absolute())
