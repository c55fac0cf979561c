"""The nightly flow: from tables to the published prevalence of every community.

A stage that is complete for the same inputs and settings is skipped. Fingerprints in
the run directory decide that, not Prefect's cache, which compares parameters only: it
would also skip a scheduled run whose tables have changed.
"""

from typing import Any

from prefect import flow
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from xnq_dist.core.settings import Settings
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import Job, run_all
from xnq_dist.monitor.on_prefect import deployed_settings, stage, state_of

__all__ = ["nightly"]

# Each is a Prefect task, which does the stage of a `Job` of this name by a function of
# `pipeline`.
prepare = stage("graph")
embed = stage("embed")
fit_readout = stage("readout")
posteriors = stage("posteriors")
quantify = stage("quantify")
publish = stage("publish")


@flow(name="xnq-nightly", persist_result=False, validate_parameters=True)
def nightly(
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
    tables = Sources(nodes, edges, memberships)

    def stages(job: Job) -> None:
        nonlocal overwrite
        overwrite = False  # the old stages are gone: another start resumes
        # Below xnq_dist/:
        prepare(job)  # tables, partitions, halo plan: graph/prepare.py
        embed(job)  # message passing on the Dask workers: reservoir/superstep.py
        fit_readout(job)  # a calibrated classifier of labelled nodes: readout/stage.py
        posteriors(job)  # class probabilities of every node: readout/stage.py
        quantify(job)  # intervals: quantify/default/auto.py; SLD: .../classic/sld.py
        publish(job)  # tables and report page: steps/publish.py

    return state_of(
        lambda chosen: run_all(tables, out, chosen, overwrite, stages),
        out=out,
        settings=lambda: deployed_settings(settings),
        retries=retries,
        retry_delay=retry_delay,
        timeout=timeout,
    )
