"""Parameters of flows, which Prefect stores and shows on its pages."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import BaseModel

from xnq_dist.core.redaction import redacted

__all__ = ["warn_of_credentials"]

log = logging.getLogger(__name__)


def warn_of_credentials(**parameters: Any) -> None:
    """Log a warning for each parameter whose addresses contain credentials."""
    for name, value in parameters.items():
        plain = value.model_dump() if isinstance(value, BaseModel) else value
        if redacted(plain) != plain:
            log.warning(
                "parameter %s of this flow run holds credentials, which Prefect stores "
                "and shows: set them in the worker's environment instead, for example "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                name,
            )
