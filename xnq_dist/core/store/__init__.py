"""The run directory: atomic stages, with checksums, repair and publication."""

from xnq_dist.core.store.checksums import CheckedFile, FileRecord, fingerprint
from xnq_dist.core.store.files import TableWriter
from xnq_dist.core.store.folder import MANIFEST, Folder, sealed
from xnq_dist.core.store.published import POINTER, Version, read_published
from xnq_dist.core.store.repair import (
    PLAN,
    RUN,
    delete_damage,
    deleting_damage,
    repaired,
    require_run,
    verify,
)
from xnq_dist.core.store.run_directory import FOLDERS, RunDirectory
from xnq_dist.core.store.stage_folder import Attempt, Manifest, Stage

__all__ = [
    "FOLDERS",
    "MANIFEST",
    "PLAN",
    "POINTER",
    "RUN",
    "Attempt",
    "CheckedFile",
    "FileRecord",
    "Folder",
    "Manifest",
    "RunDirectory",
    "Stage",
    "TableWriter",
    "Version",
    "delete_damage",
    "deleting_damage",
    "fingerprint",
    "read_published",
    "repaired",
    "require_run",
    "sealed",
    "verify",
]
