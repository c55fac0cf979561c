"""Modules that are found by their records: to add one is to add one file.

Such a module holds ``RECORDS``, a tuple of calls of its kind's record with literal
values. Settings, fingerprints, help, plan, report and evaluation read the records. They
are read from the source without running it: some modules hold kernels, whose compiler
takes half a second to import.
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
"""CPython 3.11 fails where two threads parse source at the same time."""


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """What everything but a module itself knows of it."""

    name: str
    """In the settings."""
    title: str
    """For people."""
    text: str = ""
    """What it does, for people."""
    rank: int = 100
    """Place in lists; those of one rank by name."""
    module: str = ""
    """Where it is; filled in."""


R = TypeVar("R", bound=PartRecord)


@dataclass(frozen=True)
class Registry(Generic[R]):
    """All modules of one kind."""

    what: str
    """What messages call one of them."""
    kind: Callable[..., R]
    folders: dict[str, Path] = field(default_factory=dict)
    """Where the modules are, by their package."""

    def records(self) -> Mapping[str, R]:
        """Every record by its name, in the order of lists."""
        with _READING:
            found: Mapping[str, R] = _all(self.kind, tuple(self.folders.items()))
        return found

    def record_of(self, name: str) -> R:
        """The record of this name.

        Raises
        ------
        ValueError
            When there is none; names those there are.
        """
        known = self.records()
        if name not in known:
            raise ValueError(
                f"there is no {self.what} {name!r}: choose one of {', '.join(known)}"
            )
        return known[name]

    def module_of(self, name: str) -> Any:
        """The module of this name, imported."""
        return import_module(self.record_of(name).module)

    def check(self, name: str) -> str:
        """A setting's value, refused where there is no such record."""
        if name not in self.records():
            names = ", ".join(self.records())
            raise PydanticCustomError(
                "choice", "choose one of {names}", {"names": names}
            )
        return name

    def offer(self, schema: dict[str, Any]) -> None:
        """Add the setting's values, and what each is, to its JSON schema."""
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
    """Records of a module: the calls in its ``RECORDS``."""
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
