"""The run directory: its stage folders, and which of them can be reused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xnq_dist.core.differences import differences
from xnq_dist.core.errors import StageError
from xnq_dist.core.store.checksums import fingerprint
from xnq_dist.core.store.folder import Folder
from xnq_dist.core.store.stage_folder import Manifest, Stage

__all__ = ["FOLLOWS", "STAGES", "STATES", "RunDirectory"]

log = logging.getLogger(__name__)

STATES = "states"
"""Folder of state files while supersteps run; never a complete stage."""
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
"""Stages to remove when a stage is done again.

A new selection may choose the same scales, so embeddings stay until their inputs
differ.
"""
EFFECTS = {
    "graph": ": the graph is partitioned and embedded again",
    "embeddings": ": the nodes are embedded again",
    "labels": ": readout and quantify are done again",
}
"""Consequences of a change, logged to explain why a run takes longer."""


class RunDirectory:
    """A run's folder, with stage folders and published results."""

    def __init__(self, location: str | Path) -> None:
        self.folder = Folder.of(location)

    @property
    def uri(self) -> str:
        """The location without credentials."""
        return self.folder.uri

    @property
    def location(self) -> str:
        """The location with credentials, to open it again."""
        return self.folder.location

    def stage(self, name: str) -> Stage:
        """The folder of a stage."""
        return Stage(self.folder.child(name), name)

    def complete(self, name: str, advice: str = "run again to resume") -> Manifest:
        """The manifest of a stage; a `StageError` ending in `advice` if it has none."""
        manifest = self.stage(name).manifest()
        if manifest is None:
            raise StageError(f"{self.uri} has no complete stage {name!r}: {advice}")
        return manifest

    def stages(self) -> list[Stage]:
        """All existing stage folders; each checkpoint is one."""
        steps = self.folder.child("checkpoints").names()
        names = [*STAGES, *(f"checkpoints/{name}" for name in steps)]
        return [self.stage(name) for name in names if self.folder.is_folder(name)]

    def reuse(self, name: str, inputs: Mapping[str, Any]) -> Manifest | None:
        """The manifest of a complete stage made from exactly these inputs.

        Otherwise None: the stage and all stages that depend on it are removed, and the
        differences are logged. Published results stay.
        """
        manifest = self.stage(name).manifest()
        if manifest is not None and manifest.fingerprint == fingerprint(inputs):
            log.info("stage %s: complete, nothing to do", name)
            return manifest
        if manifest is not None:
            changed = "; ".join(differences(manifest.inputs, inputs))
            effect = EFFECTS.get(name, "")
            log.info("stage %s: done again, changed: %s%s", name, changed, effect)
        for later in FOLLOWS[name]:
            self.stage(later).folder.delete_folder()
        return None
