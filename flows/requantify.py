"""New labels or memberships on the embeddings of a run: labels, readout, quantify."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prefect import flow
from prefect.states import Failed

from flows.pipeline import (
    facts_of,
    publish,
    quantify_communities,
    read_out,
    stage_task,
    value_of,
)
from flows.progress import StageProgress
from xnq_dist import pipeline as line
from xnq_dist.cluster import open_cluster
from xnq_dist.errors import XnqError
from xnq_dist.store import RunDirectory

__all__ = ["requantify", "run_requantify"]


@stage_task
def take_labels(request: line.Request) -> dict[str, Any]:
    """Take the stages of the run over, then read the labels."""
    run = RunDirectory(request.out)
    line.take_over(run, request)
    return facts_of(line.relabel(run, request, StageProgress("labels")))


@flow(name="xnq-requantify", persist_result=False, validate_parameters=True)
def requantify(
    run: str,
    out: str | None = None,
    memberships: str | None = None,
    labels: str | None = None,
    overrides: list[str] | None = None,
) -> Any:
    """Prevalence for new labels or memberships; nothing is embedded.

    Parameters
    ----------
    run
        Run directory with embeddings.
    out
        Run directory for the results; None: `run` itself.
    memberships, labels
        The tables that are new; None: those of the run.
    overrides
        Settings ``key=value`` in place of those of the run.
    """
    began = time.perf_counter()
    try:
        request = line.Request.of(run, out, memberships, labels, overrides or ())
        sources, settings = request.sources, request.settings
        stages: dict[str, Any] = {}
        with line.open_run(request.out, sources, labels=labels) as made:
            stages["labels"] = value_of(take_labels(request, return_state=True))
            due = set(line.answers_due(made, sources, settings))
            if due & line.ON_WORKERS:
                with open_cluster(settings.cluster) as address:
                    if due & {"readout", "posteriors"}:
                        state = read_out(made.uri, settings, address, return_state=True)
                        stages["readout"] = value_of(state)
                    state = quantify_communities(
                        made.uri, sources, settings, address, return_state=True
                    )
                    stages["quantify"] = value_of(state)
            if due:
                state = publish(made.uri, settings, return_state=True)
                stages["publish"] = value_of(state)
            return {
                **line.summary(made),
                "stages": stages,
                "seconds": round(time.perf_counter() - began, 1),
            }
    except XnqError as error:
        return Failed(message=str(error), data=error)


def run_requantify(
    run: str,
    ready: Callable[[], None] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Run the flow here and now; raises what a stage raised.

    Parameters
    ----------
    ready
        Waits for a Prefect API that is coming up (`flows.server.start_api`).
    arguments
        As `requantify` takes them.
    """
    if ready is not None:
        line.import_stages()
        ready()
    state: Any = requantify(run, **arguments, return_state=True)
    result: dict[str, Any] = state.result(raise_on_failure=True)
    return result
