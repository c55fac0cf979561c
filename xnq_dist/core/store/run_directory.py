"""The run directory: its stage folders, and which of them can be reused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.errors import StageError
from xnq_dist.core.stages import STAGES, differences, following
from xnq_dist.core.store.checksums import fingerprint
from xnq_dist.core.store.published import VERSIONS, Published
from xnq_dist.core.store.stage_folder import Manifest, Stage

__all__ = ["RunDirectory"]

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
"""Folder of the supersteps that a run resumes from; removed when they end."""
FOLDERS = (*STAGES, CHECKPOINTS)
"""Folders of stages and of the work on one; that of ``published`` never exists, because
its folders are versions (`Published`)."""


class RunDirectory(Published):
    """A run's folder, with stage folders and published results."""

    def complete(self, name: str) -> Manifest:
        """The manifest of a stage; a `StageError` if the stage is not complete."""
        manifest = self.stage(name).manifest()
        if manifest is None:
            raise StageError(
                f"{self.uri} has no complete stage {name!r}: run again to resume, or "
                "make it first"
            )
        return manifest

    def manifests(self) -> dict[str, Manifest]:
        """Manifests of the complete stages, in the order of the stages."""
        return {
            name: manifest
            for name in FOLDERS
            if (manifest := self.stage(name).manifest())
        }

    def stages(self) -> list[Stage]:
        """All existing stage folders; each checkpoint and each version is one."""
        names = [name for name in FOLDERS if self.exists(name)]
        for folder in (CHECKPOINTS, VERSIONS):
            names += [f"{folder}/{name}" for name in self.child(folder).names()]
        return [self.stage(name) for name in names]

    def reuse(self, name: str, inputs: Mapping[str, Any]) -> Manifest | None:
        """The manifest of a complete stage made from exactly these inputs, and kept.

        Otherwise None: the stage and all stages that depend on it are removed, and the
        differences are logged. Published results stay.
        """
        manifest = self.stage(name).manifest()
        if manifest is not None:
            if manifest.fingerprint == fingerprint(inputs) and not manifest.released:
                log.info("stage %s: complete, nothing to do", name)
                return manifest
            changed = "; ".join(differences(manifest.inputs, inputs)) or "not kept"
            log.info("stage %s: done again, changed: %s", name, changed)
        self.remove(name)
        return None

    def remove(self, name: str) -> None:
        """Remove a stage and those made from it; published results stay."""
        first = not STAGES[name].after
        for later in FOLDERS if first else following(name):
            self.stage(later).delete_folder()
