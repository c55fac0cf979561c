"""The records of all quantifiers: what the rest of the package knows about them.

A quantifier is one module in ``quantify/classic`` with ``RECORDS`` (`core.records`) and
a function ``make(name, settings)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xnq_dist.core import records as common

__all__ = [
    "FOLDERS",
    "QUANTIFIERS",
    "Record",
    "offer_quantifiers",
    "record_of",
    "records",
]

QUANTIFY = Path(__file__).parents[1] / "quantify"
FOLDERS = {
    "xnq_dist.quantify.default": QUANTIFY / "default",
    "xnq_dist.quantify.classic": QUANTIFY / "classic",
}
"""Folders of the modules with records, by package."""


@dataclass(frozen=True, kw_only=True)
class Record(common.PartRecord):
    """One quantifier."""

    two_classes: bool = False
    """Whether it is defined for two classes only."""
    labelled: bool = False
    """Whether it needs labelled nodes that were not used to fit the readout."""
    neighbours: bool = False
    """Whether it needs the posteriors of nodes' neighbours."""
    votes: bool = False
    """Whether it uses only the most likely class of each posterior."""
    graph: bool = False
    """Whether it needs the graph itself, beyond posteriors and neighbours."""
    settings: tuple[str, ...] = ()
    """Sections of the settings that its estimate depends on."""
    gpu: bool = False
    """Whether it runs on the GPU with ``backend = gpu``."""

    def defined_for(self, n_classes: int) -> bool:
        """Whether it is defined for this number of classes."""
        return n_classes == 2 or not self.two_classes


QUANTIFIERS = common.Registry("quantifier", Record, FOLDERS)
records, record_of = QUANTIFIERS.records, QUANTIFIERS.record_of


def offer_quantifiers(schema: dict[str, Any]) -> None:
    """Add the setting's values and their requirements to its JSON schema."""
    known = records()
    needs = {
        "for two classes only": [r.name for r in known.values() if r.two_classes],
        "use neighbours too": [r.name for r in known.values() if r.neighbours],
        "learn from labelled nodes held out from the readout": [
            r.name for r in known.values() if r.labelled
        ],
    }
    schema["enum"] = list(known)
    schema["description"] += "".join(
        f"; {what}: {', '.join(names)}" for what, names in needs.items() if names
    )
