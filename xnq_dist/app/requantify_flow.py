"""Estimation with new labels or memberships on given embeddings, as a Prefect flow."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.states import Completed
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from xnq_dist.app.deployed import (
    check_starts,
    limited,
    repeated,
    warn_of_credentials,
)
from xnq_dist.app.pipeline_flow import TaskPerStage, failed
from xnq_dist.core.errors import XnqError
from xnq_dist.jobs import Request, requantify_all

__all__ = ["requantify"]


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
        As for the pipeline.
    """
    warn_of_credentials(
        run=run, out=out, memberships=memberships, labels=labels, overrides=overrides
    )
    do = TaskPerStage()
    try:
        check_starts()
        request = Request.of(run, out, memberships, labels, overrides or ())
        with (
            do.reported(request.out, request.settings) as page,
            limited(timeout),
        ):
            summary = repeated(
                lambda: requantify_all(request, do), retries, retry_delay
            )
    except XnqError as error:
        return failed(error)
    return Completed(message=page and page.message(), data=summary)
