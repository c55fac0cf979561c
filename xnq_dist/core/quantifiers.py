"""The records of all quantifiers: what everything but their own module knows of them.

A quantifier is one module in ``quantify/classic`` with ``RECORDS``, a tuple of `Record`
with literal values, and a function ``make(name, settings)``. Settings, fingerprints,
help, plan, report and evaluation read the records. They are read from the source
without running it: the modules hold kernels, whose compiler takes half a second to
import.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["FOLDERS", "Record", "offer_quantifiers", "record_of", "records"]

QUANTIFY = Path(__file__).parents[1] / "quantify"
FOLDERS = {
    "xnq_dist.quantify.default": QUANTIFY / "default",
    "xnq_dist.quantify.classic": QUANTIFY / "classic",
}
"""Where modules with records are, by their package."""
_READING = threading.Lock()
"""CPython 3.11 fails where two threads parse source at the same time."""


@dataclass(frozen=True)
class Record:
    """One quantifier."""

    name: str
    """In the settings and in the column ``method``."""
    title: str
    """As papers write it."""
    text: str
    """What it does, for the report."""
    rank: int = 100
    """Place in lists; those of one rank by name."""
    two_classes: bool = False
    """Whether it is defined for two classes only."""
    labelled: bool = False
    """Whether it needs labelled nodes whose label had no part in the readout."""
    neighbours: bool = False
    """Whether it needs the posteriors of nodes' neighbours."""
    votes: bool = False
    """Whether each posterior's largest class is all that it looks at."""
    graph: bool = False
    """Whether it needs the graph itself, beyond posteriors and neighbours."""
    settings: tuple[str, ...] = ()
    """Sections of the settings that its answer depends on."""
    gpu: bool = False
    """Whether ``backend = gpu`` has it on the GPU."""
    module: str = ""
    """Where it is; filled in."""

    def defined_for(self, n_classes: int) -> bool:
        """Whether it is for so many classes."""
        return n_classes == 2 or not self.two_classes


def records() -> Mapping[str, Record]:
    """Every quantifier by its name, in the order of lists."""
    with _READING:
        return _all(tuple(FOLDERS.items()))


def record_of(name: str) -> Record:
    """One quantifier's record.

    Raises
    ------
    ValueError
        When there is no such quantifier; names those there are.
    """
    known = records()
    if name not in known:
        raise ValueError(
            f"there is no quantifier {name!r}: choose one of {', '.join(known)}"
        )
    return known[name]


def offer_quantifiers(schema: dict[str, Any]) -> None:
    """The setting's values in its JSON schema, and what each needs in its meaning."""
    known = records()
    needs = {
        "for two classes only": [r.name for r in known.values() if r.two_classes],
        "look at neighbours too": [r.name for r in known.values() if r.neighbours],
        "learn from labelled nodes kept from the readout": [
            r.name for r in known.values() if r.labelled
        ],
    }
    schema["enum"] = list(known)
    schema["description"] += "".join(
        f"; {what}: {', '.join(names)}" for what, names in needs.items() if names
    )


@cache
def _all(folders: tuple[tuple[str, Path], ...]) -> Mapping[str, Record]:
    found = [
        replace(record, module=f"{package}.{file.stem}")
        for package, folder in folders
        for file in sorted(folder.glob("*.py"))
        for record in _read(file)
    ]
    found.sort(key=lambda record: (record.rank, record.name))
    return MappingProxyType({record.name: record for record in found})


def _read(file: Path) -> list[Record]:
    """Records of a module: calls of `Record` in its ``RECORDS``."""
    text = file.read_text(encoding="utf-8")
    if "RECORDS" not in text:
        return []
    return [
        Record(
            **{str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        )
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and ast.unparse(statement).startswith(("RECORDS =", "RECORDS:"))
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
    ]
