"""The deployment that compares methods on labelled graphs."""

from typing import Any

from prefect import flow
from pydantic import PositiveFloat

from xnq_dist.core.failures import stage_errors
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.comparison import find_data, run_evaluation
from xnq_dist.monitor.on_prefect import PrefectRun

__all__ = ["evaluate"]


@flow(name="xnq-evaluate", persist_result=False, validate_parameters=True)
def evaluate(
    data: list[str],
    out: str,
    methods: list[str],
    draws: int = 30,
    quantifiers: list[str] | None = None,
    folds: list[int] | None = None,
    settings: Settings | None = None,
    timeout: PositiveFloat | None = None,
) -> Any:
    """Methods and quantifiers on labelled graphs, by the paper's protocol.

    Parameters
    ----------
    data
        Folders or names of graphs, as ``xnq-dist evaluate --data`` takes them.
    out
        Folder for the tables; an evaluation that was stopped resumes there.
    methods
        Names of methods.
    draws
        Number of random configurations to try.
    quantifiers, folds
        None: all.
    settings
        All settings; None: the defaults.
    timeout
        Seconds after which the flow run ends; None: never.
    """
    shown = PrefectRun()

    def work(chosen: Settings) -> dict[str, Any]:
        sources = [find_data(name, None, None) for name in data]
        with stage_errors(out, "evaluate"):
            return run_evaluation(
                *(sources, out, methods, chosen, draws),
                *(quantifiers, folds, [1.0], shown.task),
            )

    return shown.state_of(
        work, settings=lambda: settings or Settings(), timeout=timeout
    )
