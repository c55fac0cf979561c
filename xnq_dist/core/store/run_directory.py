"""The run directory: stage folders, and which of them may be used again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xnq_dist.core.differences import differences
from xnq_dist.core.store.checksums import fingerprint
from xnq_dist.core.store.folder import Folder
from xnq_dist.core.store.stage_folder import Manifest, Stage

__all__ = ["FOLLOWS", "STAGES", "STATES", "RunDirectory"]

log = logging.getLogger(__name__)

STATES = "states"
"""Folder of states that are in files while supersteps run; never a whole stage."""
STAGES = (
    "graph",
    "select",
    STATES,
    "checkpoints",
    "embeddings",
    "labels",
    "readout",
    "posteriors",
    "quantify",
)
"""Stage folders in the order in which they are made."""
FOLLOWS = {
    "graph": STAGES,
    "select": ("select",),
    "embeddings": ("embeddings", "readout", "posteriors", "quantify"),
    "labels": ("labels", "readout", "posteriors", "quantify"),
    "readout": ("readout", "posteriors", "quantify"),
    "posteriors": ("posteriors", "quantify"),
    "quantify": ("quantify",),
}
"""What a stage takes with it when it is done again.

Scales chosen anew may be the old ones, so embeddings stay until their own inputs say
otherwise.
"""
EFFECTS = {
    "graph": ": the graph is partitioned and embedded again",
    "embeddings": ": the nodes are embedded again",
}
"""What follows of a change, for those who wonder why a run takes longer."""


class RunDirectory:
    """A run's folder: stage folders, and beside them what is published."""

    def __init__(self, location: str | Path) -> None:
        self.folder = Folder.of(location)

    @property
    def uri(self) -> str:
        """Where it is, without credentials."""
        return self.folder.uri

    @property
    def location(self) -> str:
        """Where it is, to open it again."""
        return self.folder.location

    def stage(self, name: str) -> Stage:
        """A stage's folder."""
        return Stage(self.folder.child(name), name)

    def stages(self) -> list[Stage]:
        """Every stage folder there is, each checkpoint as one."""
        steps = self.folder.child("checkpoints").names()
        names = [*STAGES, *(f"checkpoints/{name}" for name in steps)]
        return [self.stage(name) for name in names if self.folder.is_folder(name)]

    def reuse(self, name: str, inputs: Mapping[str, Any]) -> Manifest | None:
        """The manifest of a whole stage made from exactly these inputs.

        Otherwise None; then this stage and every stage that is made from it are
        removed, and what differs is logged. What is published stays.
        """
        found = self.stage(name).manifest()
        if found is not None and found.fingerprint == fingerprint(inputs):
            log.info("stage %s: whole, nothing to do", name)
            return found
        if found is not None:
            changed = "; ".join(differences(found.inputs, inputs))
            effect = EFFECTS.get(name, "")
            log.info("stage %s: done again, changed: %s%s", name, changed, effect)
        for later in FOLLOWS[name]:
            self.stage(later).folder.delete_folder()
        return None
