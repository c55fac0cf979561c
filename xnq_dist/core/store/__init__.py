"""The run directory: atomic stages, with checksums, repair and publication."""

from xnq_dist.core.store.checksums import CheckedFile, FileRecord, fingerprint
from xnq_dist.core.store.files import Attempt, TableWriter
from xnq_dist.core.store.folder import MANIFEST, Folder, sealed
from xnq_dist.core.store.published import POINTER, Published, Version, read_published
from xnq_dist.core.store.quarantine import (
    QUARANTINE,
    SetAside,
    entries,
    set_aside,
    trim,
)
from xnq_dist.core.store.repair import (
    PLAN,
    clear,
    repaired,
    set_aside_damage,
    setting_aside,
)
from xnq_dist.core.store.run_directory import FOLDERS, STATES, RunDirectory
from xnq_dist.core.store.stage_folder import (
    MANIFEST_VERSION,
    Manifest,
    Stage,
    checked,
)
from xnq_dist.core.store.verify import RUN, Finding, require_run, verify

__all__ = [
    "FOLDERS",
    "MANIFEST",
    "MANIFEST_VERSION",
    "PLAN",
    "POINTER",
    "QUARANTINE",
    "RUN",
    "STATES",
    "Attempt",
    "CheckedFile",
    "FileRecord",
    "Finding",
    "Folder",
    "Manifest",
    "Published",
    "RunDirectory",
    "SetAside",
    "Stage",
    "TableWriter",
    "Version",
    "checked",
    "clear",
    "entries",
    "fingerprint",
    "read_published",
    "repaired",
    "require_run",
    "sealed",
    "set_aside",
    "set_aside_damage",
    "setting_aside",
    "trim",
    "verify",
]
