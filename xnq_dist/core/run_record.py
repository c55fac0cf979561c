"""The file ``_run.json``: a run directory's graph, and the inputs of its last run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from xnq_dist.core.errors import RunDirectoryError
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import RUN, Folder

__all__ = ["RUN", "RunRecord"]


@dataclass(frozen=True)
class RunRecord:
    """The record of a run directory."""

    nodes: Mapping[str, Any] | None = None
    """Digest of the node ids, which identify the graph; None: not read yet."""
    sources: Mapping[str, Any] = field(default_factory=dict)
    """Paths of the tables of the last run, or None: fields of `Sources`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the last run."""
    base: str | None = None
    """The run directory whose embeddings were taken over."""

    @classmethod
    def read(cls, folder: Folder) -> RunRecord | None:
        """The record of a folder; None if there is none.

        Raises
        ------
        DamagedError
            When the file is damaged.
        RunDirectoryError
            When another version of this package wrote the file.
        """
        fields = folder.read_record(RUN)
        try:
            return None if fields is None else cls(**fields)
        except TypeError as error:
            raise RunDirectoryError(
                f"{folder.uri} was made by another version of xnq-dist: choose another "
                "--out, or add --overwrite"
            ) from error

    def write(self, folder: Folder) -> None:
        """Write the record to a folder."""
        folder.write_record(RUN, redacted(asdict(self)))

    def belongs(self, nodes: Mapping[str, Any], uri: str) -> None:
        """Check that the directory does not hold another graph.

        Raises
        ------
        RunDirectoryError
            When the recorded nodes are others.
        """
        if self.nodes is not None and dict(self.nodes) != dict(nodes):
            raise RunDirectoryError(
                f"{uri} holds another graph with {self.nodes['rows']:,} nodes, or was "
                f"made by release 0.1; the node table has {nodes['rows']:,} nodes: "
                "choose another --out, or add --overwrite to replace the run"
            )
