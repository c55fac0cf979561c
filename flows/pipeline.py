"""The nightly job: prepare -> embed -> read out -> quantify -> publish.

One Prefect task a stage. A stage that is whole for the same inputs and settings is not
done again: the run directory's fingerprints decide that, not Prefect's cache, which
would also skip a scheduled run whose parameters are last night's but whose tables are
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.states import Failed

from flows.progress import StageProgress, artifact_faults_logged
from xnq_dist import pipeline as line
from xnq_dist.cluster import connect
from xnq_dist.config import Settings
from xnq_dist.errors import ConnectionLostError, XnqError
from xnq_dist.failures import stage_errors
from xnq_dist.graph.tables import Sources
from xnq_dist.meanwhile import Opener
from xnq_dist.store import Manifest, RunDirectory

__all__ = ["client_of", "pipeline", "run_pipeline", "stage_task", "value_of"]

R = TypeVar("R")
ROWS_SHOWN = 50
"""Rows of the table artifact; the whole table is in the run directory."""


def _transient(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether a failed stage is worth another try: the network, not the data."""
    import httpx

    error = state.result(raise_on_failure=False)
    return isinstance(error, ConnectionLostError | httpx.TransportError)


def stage_task(function: Callable[..., R]) -> Any:
    """A Prefect task of a stage; a user's error is a failed state, no traceback."""

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except XnqError as error:
            return Failed(message=str(error), data=error)

    make = task(
        name=function.__name__.replace("_", "-"),
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=2,
        retry_delay_seconds=5,
        retry_condition_fn=_transient,
    )
    return make(guarded)


@contextmanager
def client_of(address: str, settings: Settings) -> Iterator[Any]:
    """A client of the cluster, closed again."""
    with connect(address, settings.cluster.timeout) as client:
        yield client


def _facts(manifest: Manifest) -> dict[str, Any]:
    """What a task returns: where the stage is and how large, never arrays."""
    return {
        "stage": manifest.stage,
        "attempt": manifest.attempt,
        "files": len(manifest.files),
        "bytes": sum(record.bytes for record in manifest.files),
        "rows": sum(record.rows for record in manifest.files),
        "seconds": manifest.seconds,
    }


@stage_task
def prepare_graph(out: str, sources: Sources, settings: Settings) -> dict[str, Any]:
    """Ingest, partition, halo plan."""
    run = RunDirectory(out)
    manifest = line.prepare(run, sources, settings, StageProgress("graph"))
    return _facts(manifest)


@stage_task
def embed_nodes(out: str, settings: Settings, address: str) -> dict[str, Any]:
    """Reservoir supersteps on the partitions."""
    with stage_errors(out, "embeddings"), client_of(address, settings) as client:
        progress = StageProgress("embed")
        return _facts(line.embed(RunDirectory(out), settings, client, progress))


@stage_task
def read_out(out: str, settings: Settings, address: str) -> dict[str, Any]:
    """Train the readout, write the posteriors."""
    with stage_errors(out, "readout"), client_of(address, settings) as client:
        progress = StageProgress("readout")
        return _facts(line.fit_readout(RunDirectory(out), settings, client, progress))


@stage_task
def quantify_communities(
    out: str, sources: Sources, settings: Settings, address: str
) -> dict[str, Any]:
    """Prevalence of every community."""
    with stage_errors(out, "quantify"), client_of(address, settings) as client:
        progress = StageProgress("quantify")
        run = RunDirectory(out)
        return _facts(
            line.quantify_communities(run, sources, settings, client, progress)
        )


@stage_task
def publish(out: str, settings: Settings) -> dict[str, Any]:
    """Publish the tables and the report."""
    run = RunDirectory(out)
    line.publish(run, settings)
    rows = line.published_rows(run, ROWS_SHOWN)
    with artifact_faults_logged():
        create_table_artifact(rows, key="xnq-prevalence", description=f"first of {out}")
    return {"rows": len(rows)}


def value_of(state: State[Any]) -> Any:
    """A task's result; its error is raised."""
    return state.result(raise_on_failure=True)


CLUSTER: ContextVar[Opener[str] | None] = ContextVar("CLUSTER", default=None)
"""The cluster of a flow started from the command line, which is ahead of the flow."""


@contextmanager
def _cluster(sources: Sources, settings: Settings) -> Iterator[Opener[str]]:
    """The cluster that is started already, or one that starts now."""
    ahead = CLUSTER.get()
    if ahead is not None:
        yield ahead
        return
    with line.cluster_meanwhile(sources, settings) as opened:
        yield opened


@flow(name="xnq-dist", persist_result=False, validate_parameters=True)
def pipeline(
    nodes: str,
    edges: str,
    out: str,
    memberships: str | None = None,
    settings: Settings | None = None,
    overwrite: bool = False,
) -> Any:
    """Prevalence of every community of a graph.

    Parameters
    ----------
    nodes, edges, memberships
        The user's tables: a file, folder, glob or URI each.
    out
        Run directory.
    settings
        All settings; None: the defaults.
    overwrite
        Do every stage again, also in a directory made from other tables.
    """
    chosen = settings or Settings()
    sources = Sources(nodes, edges, memberships)
    began = time.perf_counter()
    try:
        line.check_sources(sources, chosen)
        with (
            line.open_run(out, sources, overwrite) as run,
            _cluster(sources, chosen) as opened,
        ):
            stages = {
                "graph": value_of(
                    prepare_graph(run.uri, sources, chosen, return_state=True)
                )
            }
            with opened() as address:
                stages["embeddings"] = value_of(
                    embed_nodes(run.uri, chosen, address, return_state=True)
                )
                stages["readout"] = value_of(
                    read_out(run.uri, chosen, address, return_state=True)
                )
                stages["quantify"] = value_of(
                    quantify_communities(
                        run.uri, sources, chosen, address, return_state=True
                    )
                )
            stages["publish"] = value_of(publish(run.uri, chosen, return_state=True))
            return {
                **line.summary(run),
                "stages": stages,
                "seconds": round(time.perf_counter() - began, 1),
            }
    except XnqError as error:
        return Failed(message=str(error), data=error)


def run_pipeline(
    sources: Sources,
    out: str,
    settings: Settings,
    overwrite: bool = False,
    ready: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Run the flow here and now; raises what a stage raised.

    Parameters
    ----------
    ready
        Waits for a Prefect API that is coming up (`flows.server.start_api`).

    Returns
    -------
    dict
        Summary of the run.
    """
    with line.cluster_meanwhile(sources, settings) as opened:
        if ready is not None:
            line.import_stages()
            ready()
        token = CLUSTER.set(opened)
        try:
            state: Any = pipeline(
                nodes=sources.nodes,
                edges=sources.edges,
                out=out,
                memberships=sources.memberships,
                settings=settings,
                overwrite=overwrite,
                return_state=True,
            )
        finally:
            CLUSTER.reset(token)
        # In here: a stage's error comes before one of a cluster nobody asked for.
        result: dict[str, Any] = state.result(raise_on_failure=True)
    return result
