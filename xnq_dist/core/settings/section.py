"""The base of all sections of the settings, and types that several use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from xnq_dist.core.redaction import redacted
from xnq_dist.core.sizes import check_size

__all__ = [
    "CountOrAuto",
    "Section",
    "Size",
    "SizeOrAuto",
    "Text",
]

Size = Annotated[str | int, AfterValidator(check_size)]
"""A number of bytes, or a text such as ``2 GiB``."""

SizeOrAuto = Literal["auto"] | Size

CountOrAuto = Annotated[int, Field(ge=1)] | Literal["auto"]


def _as_text(value: Any) -> Any:
    # As in the tables: YAML reads 1, true and null as other types.
    return json.dumps(value) if isinstance(value, int | float | None) else value


Text = Annotated[str, BeforeValidator(_as_text)]
"""A value of a column, such as the name of a class."""


class Section(BaseModel):
    """Base of all sections of the settings: frozen, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if faults := [*self.faults()]:
            raise ValueError("; ".join(faults))
        return self

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings together, one sentence each."""
        yield from ()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Dask logs the arguments of failed tasks: hide credentials.
        for name, value in super().__repr_args__():
            yield name, redacted(value)
