"""What a stage records when it is complete: its files, its inputs and facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = ["MANIFEST_VERSION", "FileRecord", "Manifest"]

MANIFEST_VERSION = 2


@dataclass(frozen=True)
class FileRecord:
    """One data file in a manifest."""

    name: str
    rows: int
    bytes: int
    checksum: str
    """CRC-32 of each MiB, hexadecimal, concatenated."""


@dataclass(frozen=True)
class Manifest:
    """Files, inputs and facts of a complete stage.

    One that a stage wrote or read is pickled as a reference: the process that gets it
    reads the file. Tasks for each partition stay small this way.
    """

    stage: str
    attempt: str
    fingerprint: str
    inputs: dict[str, Any]
    """The values behind the fingerprint, to report differences."""
    files: tuple[FileRecord, ...]
    facts: dict[str, Any]
    """Values that later stages and reports use."""
    seconds: float
    created: str
    versions: dict[str, str] = field(default_factory=dict)
    version: int = MANIFEST_VERSION
    reference: ClassVar[tuple[Any, ...] | None] = None
    """A function that reads it again, and its arguments; None: a changed copy, which is
    pickled whole."""

    @property
    def released(self) -> bool:
        """Whether the files were removed after use (`Stage.release`)."""
        return bool(self.facts.get("released"))

    def named(self, prefix: str) -> list[FileRecord]:
        """Files whose name starts with the prefix, in name order."""
        found = (record for record in self.files if record.name.startswith(prefix))
        return sorted(found, key=lambda record: record.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reference or (type(self), tuple(vars(self).values()))
