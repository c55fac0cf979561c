"""Registries of modules that are found by their records: one file adds one module.

Such a module has ``RECORDS``, a tuple of records with literal values. Settings,
fingerprints, help, plan, report and evaluation read the records. They are read from the
source without importing the module, because some modules contain kernels, whose
compiler takes half a second to import.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic_core import PydanticCustomError

__all__ = ["PartRecord", "Registry"]

_READING = threading.Lock()
"""CPython 3.11 can fail if two threads parse source at the same time."""


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """What the rest of the package knows about a module."""

    name: str
    """Name in the settings."""
    title: str
    """Name in reports and help."""
    text: str = ""
    """Description in reports and help."""
    rank: int = 100
    """Position in lists; equal ranks are sorted by name."""
    module: str = ""
    """Name of the module; filled in by the registry."""


R = TypeVar("R", bound=PartRecord)


@dataclass(frozen=True)
class Registry(Generic[R]):
    """All modules of one kind."""

    what: str
    """The kind's name in messages."""
    kind: Callable[..., R]
    folders: dict[str, Path] = field(default_factory=dict)
    """Folders of the modules, by package."""

    def records(self) -> Mapping[str, R]:
        """All records by name, sorted by rank."""
        with _READING:
            known: Mapping[str, R] = _all(self.kind, tuple(self.folders.items()))
        return known

    def record_of(self, name: str) -> R:
        """The record with this name.

        Raises
        ------
        ValueError
            When there is none; the message names the existing ones.
        """
        known = self.records()
        if name not in known:
            raise ValueError(
                f"there is no {self.what} {name!r}: choose one of {', '.join(known)}"
            )
        return known[name]

    def module_of(self, name: str) -> Any:
        """Import and return the module of the record with this name."""
        return import_module(self.record_of(name).module)

    def check(self, name: str) -> str:
        """Return a setting's value; raise if no record has this name."""
        if name not in self.records():
            names = ", ".join(self.records())
            raise PydanticCustomError(
                "choice", "choose one of {names}", {"names": names}
            )
        return name

    def offer(self, schema: dict[str, Any]) -> None:
        """Add the setting's values and their descriptions to its JSON schema."""
        known = self.records()
        schema["enum"] = list(known)
        schema["description"] += "".join(
            f"; {name}: {record.text or record.title}" for name, record in known.items()
        )


@cache
def _all(kind: Any, folders: tuple[tuple[str, Path], ...]) -> Mapping[str, Any]:
    found = [
        replace(record, module=f"{package}.{file.stem}")
        for package, folder in folders
        for file in sorted(folder.glob("*.py"))
        for record in _read(kind, file)
    ]
    found.sort(key=lambda record: (record.rank, record.name))
    return MappingProxyType({record.name: record for record in found})


def _read(kind: Callable[..., PartRecord], file: Path) -> list[PartRecord]:
    """The records of a module, from the calls in its ``RECORDS``."""
    text = file.read_text(encoding="utf-8")
    if "RECORDS" not in text:
        return []
    return [
        kind(**{str(each.arg): ast.literal_eval(each.value) for each in call.keywords})
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and ast.unparse(statement).startswith(("RECORDS =", "RECORDS:"))
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
    ]
