"""Registries of modules by name: a part is one module and one record.

Settings, fingerprints, help, plan, report and evaluation read the records. Modules are
imported on use, because some contain kernels, whose compiler takes half a second to
import.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

__all__ = ["PartRecord", "Registry"]


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """What the rest of the package knows about a module."""

    name: str
    """Name in the settings."""
    text: str = ""
    """Description in reports and help."""
    module: str
    """Name of the module."""


R = TypeVar("R", bound=PartRecord)


class Registry(dict[str, R]):
    """All modules of one kind by name, in the order of lists; `what` is for messages.

    Raises
    ------
    ValueError
        For a name that has no record; the message has the existing ones.
    """

    def __init__(self, what: str, records: Iterable[R]) -> None:
        super().__init__((record.name, record) for record in records)
        self.what = what

    def __missing__(self, name: str) -> R:
        raise ValueError(
            f"there is no {self.what} {name!r}: choose one of {', '.join(self)}"
        )

    def module_of(self, name: str) -> Any:
        """Import and return the module of the record with this name."""
        return import_module(self[name].module)

    def check(self, name: str) -> str:
        """Return a setting's value; raise if no record has this name."""
        return self[name].name

    def offer(self, schema: dict[str, Any]) -> None:
        """Add the setting's values and their descriptions to its JSON schema."""
        schema["enum"] = list(self)
        schema["description"] += "".join(
            f"; {name}: {record.text}" for name, record in self.items()
        )
