"""Parameters of a flow started in this process: Prefect stores what it is given.

It keeps them in its database and shows them on its pages. They go to it without
credentials; the flow, which runs in the same process, gets the real ones from here.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

from xnq_dist.config import Settings
from xnq_dist.redaction import redacted

__all__ = ["given", "run_flow"]

log = logging.getLogger("xnq_dist.flows")

_GIVEN: ContextVar[dict[str, Any] | None] = ContextVar("_GIVEN", default=None)


def run_flow(flow: Any, **arguments: Any) -> dict[str, Any]:
    """Run a flow here and now; raises what a stage raised."""
    token = _GIVEN.set(arguments)
    try:
        shown = {name: _shown(value) for name, value in arguments.items()}
        state = flow(**shown, return_state=True)
    finally:
        _GIVEN.reset(token)
    result: dict[str, Any] = state.result(raise_on_failure=True)
    return result


def given(**stored: Any) -> tuple[Any, ...]:
    """Values of some of the running flow's parameters, credentials included.

    Parameters
    ----------
    stored
        The same parameters as Prefect has them.
    """
    values = _GIVEN.get()
    if values is not None:
        return tuple(values[name] for name in stored)
    for name, value in stored.items():
        if _shown(value) != value:
            log.warning(
                "parameter %s of this flow run holds credentials, which Prefect stores "
                "and shows: give them to the worker's environment instead, such as "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                name,
            )
    return tuple(stored.values())


def _shown(value: Any) -> Any:
    if isinstance(value, Settings):
        values = value.model_dump(exclude_unset=True)
        return Settings.model_validate(redacted(values))
    return redacted(value)
