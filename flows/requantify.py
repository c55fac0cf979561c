"""The flow for new labels or memberships on existing embeddings."""

from functools import partial
from typing import Any

from prefect import flow
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from xnq_dist import jobs
from xnq_dist.jobs import Job, Request
from xnq_dist.monitor.on_prefect import stage, state_of

__all__ = ["requantify"]

relabel = stage("labels")
fit_readout = stage("readout")
posteriors = stage("posteriors")
quantify = stage("quantify")
publish = stage("publish")


@flow(name="xnq-requantify", persist_result=False, validate_parameters=True)
def requantify(
    run: str,
    out: str | None = None,
    memberships: str | None = None,
    labels: str | None = None,
    overrides: list[str] | None = None,
    retries: NonNegativeInt = 2,
    retry_delay: NonNegativeFloat = 60.0,
    timeout: PositiveFloat | None = None,
) -> Any:
    """Estimate with new labels or memberships; the embeddings of a run are reused.

    Parameters
    ----------
    run
        Run directory with embeddings.
    out
        Run directory for the results; None: `run` itself.
    memberships, labels
        New tables; None: those of the run.
    overrides
        Settings ``key=value`` that replace those of the run.
    retries, retry_delay, timeout
        As for the flow `nightly`.
    """
    request = partial(Request.of, run, out, memberships, labels, overrides or ())

    def stages(job: Job) -> None:
        relabel(job)
        fit_readout(job)
        posteriors(job)
        quantify(job)
        publish(job)

    return state_of(
        lambda _: jobs.requantify(request(), stages=stages),
        out=out or run,
        settings=lambda: request().settings,
        retries=retries,
        retry_delay=retry_delay,
        timeout=timeout,
    )
