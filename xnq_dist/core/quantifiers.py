"""The records of all quantifiers: what everything but their own module knows of them.

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
"""Where modules with records are, by their package."""


@dataclass(frozen=True, kw_only=True)
class Record(common.PartRecord):
    """One quantifier."""

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

    def defined_for(self, n_classes: int) -> bool:
        """Whether it is for so many classes."""
        return n_classes == 2 or not self.two_classes


QUANTIFIERS = common.Registry("quantifier", Record, FOLDERS)
records, record_of = QUANTIFIERS.records, QUANTIFIERS.record_of


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
