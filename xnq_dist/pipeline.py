"""The line as functions on a run directory: what the flows call, usable without them.

>>> import xnq_dist  # doctest: +SKIP
>>> with xnq_dist.pipeline.open_run(out, sources) as run:  # doctest: +SKIP
...     xnq_dist.prepare(run, sources, settings)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from xnq_dist import cluster
from xnq_dist.config import Settings
from xnq_dist.errors import DamagedError, RunDirectoryError, StageError
from xnq_dist.graph.tables import Sources
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
from xnq_dist.sizes import human
from xnq_dist.store import (
    QUARANTINE,
    RUN,
    STAGES,
    Manifest,
    Published,
    RunDirectory,
    clear,
    fingerprint,
    mend,
    read_published,
    repaired,
    set_aside,
    setting_aside,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "check_sources",
    "cluster_meanwhile",
    "embed",
    "estimate",
    "estimate_counts",
    "fit_readout",
    "free_memory",
    "import_stages",
    "open_run",
    "plan_of",
    "prepare",
    "publish",
    "published_rows",
    "quantify_communities",
    "read_published",
    "repaired",
    "run_stages",
    "size_of",
    "summary",
]

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

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


def _sets_aside(
    stage: Callable[Concatenate[RunDirectory, P], R],
) -> Callable[Concatenate[RunDirectory, P], R]:
    """Set aside what a stage finds damaged; `repaired` does it again."""

    @wraps(stage)
    def guarded(run: RunDirectory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with setting_aside(run):
            return stage(run, *args, **kwargs)

    return guarded


@contextmanager
def open_run(
    out: str, sources: Sources, overwrite: bool = False
) -> Iterator[RunDirectory]:
    """Hold a run directory; made when it is not there.

    Raises
    ------
    RunDirectoryError
        When it is in use, cannot be written, holds something else, or was made from
        other node or edge tables and `overwrite` is not set.
    """
    run = RunDirectory(out)
    folder = run.folder
    if folder.is_local and folder.exists() and not folder.is_folder():
        raise RunDirectoryError(f"{run.uri} is a file: choose another --out")
    for path in (sources.nodes, sources.edges, sources.memberships):
        if path is not None and f"{_absolute(path)}/".startswith(f"{run.uri}/"):
            raise RunDirectoryError(
                f"{path} lies in the run directory {run.uri}, whose files are "
                "replaced: copy it elsewhere, or choose another --out"
            )
    with RunLock(folder):
        paths = {"nodes": _absolute(sources.nodes), "edges": _absolute(sources.edges)}
        before = _made_from(run, paths)
        if before is None:
            others = [
                name
                for name in folder.names()
                if name not in (LOCK, QUARANTINE) and not name.endswith(".tmp")
            ]
            if others:
                raise RunDirectoryError(
                    f"{run.uri} holds {others[0]!r} and is not a run directory: "
                    "choose an empty or new folder for --out"
                )
        elif before != paths:
            if not overwrite:
                raise RunDirectoryError(
                    f"{run.uri} was made from {before.get('nodes')} and "
                    f"{before.get('edges')}: choose another --out, or give --overwrite"
                )
            log.warning("%s: removing the run made from other tables", run.uri)
        if overwrite:
            for name in STAGES:
                run.stage(name).folder.delete_folder()
        if before != paths:
            Published(run).begin_anew()
            folder.write_record(RUN, paths)
        mend(run)
        clear(run)
        yield run


def _made_from(run: RunDirectory, paths: dict[str, str]) -> dict[str, Any] | None:
    """What the run directory was made from; None when it is none of ours.

    A record that is damaged, or missing next to stages or results of ours, is made
    anew: whether these are of the same tables, their manifests say.
    """
    try:
        found = run.folder.read_record(RUN)
        ours = [*run.stages(), *Published(run).stages()]
        if found is not None or not any(stage.manifest() for stage in ours):
            return found
    except DamagedError as error:
        set_aside(run, RUN, error.what)
    run.folder.write_record(RUN, paths)
    log.warning(
        "%s/%s was missing or damaged: taken as a run of %s and %s",
        run.uri,
        RUN,
        paths["nodes"],
        paths["edges"],
    )
    return paths


@contextmanager
def cluster_meanwhile(sources: Sources, settings: Settings) -> Iterator[Opener[str]]:
    """Begin to start the local cluster; the block gets what waits for its address.

    Asked for once more, when damage has to be repaired, it is started again.

    Worker processes take seconds to start and to import what the stages need: that
    goes on beside `prepare`, which needs none of them, and stopping them beside
    `publish`. A cluster that runs already is looked for when its address is asked for,
    and so is one on GPUs, which are `prepare`'s until then.

    Raises
    ------
    ClusterError
        When the address is asked for and there is none.
    """
    if settings.cluster.kind != "local":
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
    with opened_meanwhile(make) as ahead:
        openers: Iterator[Opener[str]] = chain([ahead], repeat(make))
        yield lambda: next(openers)()


def import_stages() -> None:
    """Import what the stages will, for a caller who has to wait anyway."""
    for name in STAGE_MODULES:
        import_module(name)


@_sets_aside
def prepare(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    progress: Progress = silent,
) -> Manifest:
    """Stage ``graph``: ingest, partition, halo plan.

    Raises
    ------
    InputError
        When a table breaks the data contract.
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
    before = run.stage("graph").manifest()
    # Another number of workers tonight is no reason to cut the graph anew.
    cut = None if before is None else int(before.facts["partitions"])
    plan = estimate(sources, settings, partitions=cut)
    if before is None:
        check_client_fits(plan, free_memory())
        check_scratch_fits(plan, settings.scratch)
    if plan.worker_memory > plan.worker_limit and plan.partitions > 1:
        log.warning("by the bound of a random cut a worker may not hold its part")
    made = stage.prepare(run, sources, settings, plan.partitions, progress)
    # Now that the classes are known, and before hours of work.
    check_named(settings, run.uri, [str(name) for name in made.facts["classes"]])
    check_seed_runs(settings.intervals.seed_runs, run.uri, made)
    return made


@_sets_aside
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
        size = size_of(graph, settings, workers.count, run.stage("graph"))
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


@_sets_aside
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


@_sets_aside
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


@_sets_aside
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
    from xnq_dist.quantify.sources import choose_source
    from xnq_dist.report.earlier import check_named

    check_named(settings)
    check_seed_runs(settings.intervals.seed_runs)
    count_tables(sources, settings)
    if settings.input.engine == "cudf":
        uses_cudf(settings)
    if sources.memberships is not None:
        table_size(sources.memberships, settings, "memberships")
    source = choose_source(sources, settings)
    if source == "leiden":
        engine_of(settings)
    if source.startswith("column:"):
        column = settings.communities.removeprefix("column:")
        open_table(sources.nodes, "node table").require({"communities": column})


def summary(run: RunDirectory) -> dict[str, Any]:
    """Where the results of a whole run are, and their size."""
    graph = run.stage("graph").manifest()
    found = run.stage("quantify").manifest()
    if graph is None or found is None:
        raise StageError(f"{run.uri} is not a whole run: run it again to resume")
    more = {
        name: f"{run.uri}/{name}.parquet"
        for name in ("anomalies", "changes")
        if run.folder.exists(f"{name}.parquet")
    }
    published = Published(run).pointer()
    return {
        "run": run.uri,
        "run_id": published.get("run_id"),
        "nodes": graph.facts["n_nodes"],
        "edges": graph.facts["n_edges"],
        "communities": found.facts["n_communities"],
        "prevalence": f"{run.uri}/prevalence.parquet",
        "report": f"{run.uri}/report.html",
        **more,
    }


def published_rows(run: RunDirectory, count: int) -> list[dict[str, Any]]:
    """The first rows of the published prevalence table."""
    table = read_published(run.uri).read("prevalence")
    rows: list[dict[str, Any]] = table.slice(0, count).to_pylist()
    return rows


def run_stages(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> dict[str, Any]:
    """All stages, from the tables to what is published; damage is repaired.

    Returns
    -------
    dict
        As `summary`.

    Raises
    ------
    XnqError
        As the stages raise it; for damage only when it comes again and again.
    """

    def once() -> dict[str, Any]:
        prepare(run, sources, settings, progress)
        embed(run, settings, client, progress)
        fit_readout(run, settings, client, progress)
        quantify_communities(run, sources, settings, client, progress)
        publish(run, settings)
        return summary(run)

    return repaired(once)


def _bytes_in(folder: str) -> int:
    from pathlib import Path

    return sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())


def _readout_is_whole(
    run: RunDirectory, settings: Settings, embeddings: Manifest | None
) -> bool:
    """Whether readout and posteriors are those of these embeddings and settings."""
    from xnq_dist.readout.run import posteriors_inputs, readout_inputs

    graph = run.stage("graph").manifest()
    readout = run.stage("readout").manifest()
    posteriors = run.stage("posteriors").manifest()
    if not (graph and embeddings and readout and posteriors):
        return False
    wanted = fingerprint(readout_inputs(graph, embeddings, settings))
    return readout.fingerprint == wanted and posteriors.fingerprint == fingerprint(
        posteriors_inputs(readout)
    )


def _absolute(path: str) -> str:
    from pathlib import Path

    return path if "://" in path else str(Path(path).expanduser().absolute())
