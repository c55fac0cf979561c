"""The base of all sections of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from xnq_dist.core.redaction import redacted

__all__ = ["Section"]


class Section(BaseModel):
    """Base of all sections of the settings: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Dask logs the arguments of failed tasks: hide credentials.
        for name, value in super().__repr_args__():
            yield name, redacted(value)
