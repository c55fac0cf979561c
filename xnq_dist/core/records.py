"""Registries of modules by name: a part is one module and one record.

Settings, fingerprints, help, plan, report and evaluation read the records. Modules are
imported on use, because some contain kernels, whose compiler takes half a second to
import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

__all__ = ["PartRecord", "Registry"]


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """What the rest of the package knows about a module."""

    name: str
    """Name in the settings."""
    title: str
    """Name in reports and help."""
    text: str = ""
    """Description in reports and help."""
    module: str
    """Name of the module."""


R = TypeVar("R", bound=PartRecord)


class Registry(Generic[R]):
    """All modules of one kind, in the order of lists; `what` names it in messages."""

    def __init__(self, what: str, records: Iterable[R]) -> None:
        self.what = what
        self._known = {record.name: record for record in records}

    def records(self) -> Mapping[str, R]:
        """All records by name."""
        return self._known

    def record_of(self, name: str) -> R:
        """The record with this name.

        Raises
        ------
        ValueError
            When there is none; the message names the existing ones.
        """
        if name not in self._known:
            raise ValueError(
                f"there is no {self.what} {name!r}: choose one of "
                f"{', '.join(self._known)}"
            )
        return self._known[name]

    def module_of(self, name: str) -> Any:
        """Import and return the module of the record with this name."""
        return import_module(self.record_of(name).module)

    def check(self, name: str) -> str:
        """Return a setting's value; raise if no record has this name."""
        return self.record_of(name).name

    def offer(self, schema: dict[str, Any]) -> None:
        """Add the setting's values and their descriptions to its JSON schema."""
        schema["enum"] = list(self._known)
        schema["description"] += "".join(
            f"; {name}: {record.text or record.title}"
            for name, record in self._known.items()
        )
