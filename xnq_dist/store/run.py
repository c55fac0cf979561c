"""The run directory: stage folders, and which of them may be used again."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xnq_dist.store.checksums import fingerprint
from xnq_dist.store.folder import Folder
from xnq_dist.store.stage import Manifest, Stage

__all__ = ["STAGES", "STATES", "RunDirectory", "differences"]

log = logging.getLogger(__name__)

STATES = "states"
"""Folder of states that are in files while supersteps run; never a whole stage."""
STAGES = (
    "graph",
    "select",
    STATES,
    "checkpoints",
    "embeddings",
    "readout",
    "posteriors",
    "quantify",
)
"""Stage folders in order; a stage depends on those before it."""


class RunDirectory:
    """A run's folder: stage folders, and beside them what is published."""

    def __init__(self, location: str | Path) -> None:
        self.folder = Folder.of(location)

    @property
    def uri(self) -> str:
        """Where it is."""
        return self.folder.uri

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

        Otherwise None; then this stage and every stage after it are removed, and what
        differs is logged. What is published stays.
        """
        found = self.stage(name).manifest()
        if found is not None and found.fingerprint == fingerprint(inputs):
            log.info("stage %s: whole, nothing to do", name)
            return found
        if found is not None:
            changed = differences(found.inputs, inputs)
            log.info("stage %s: done again, changed: %s", name, "; ".join(changed))
        for later in STAGES[STAGES.index(name) :]:
            self.stage(later).folder.delete_folder()
        return None


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """Keys whose values differ, ``key: old -> new`` each, in key order."""
    new = json.loads(json.dumps(new, default=str))
    found: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {_short(before)} -> {_short(after)}")
    return found


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
