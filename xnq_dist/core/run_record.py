"""The file ``_run.json``: a run directory's graph, and the inputs of its last run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from xnq_dist.core.errors import DamagedError, RunDirectoryError
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import RUN, Folder

__all__ = ["RUN", "RunRecord"]


@dataclass(frozen=True)
class RunRecord:
    """The record of a run directory."""

    nodes: Mapping[str, Any] | None = None
    """Digest of the node ids, which identify the graph; None: not read yet."""
    sources: Mapping[str, str | None] = field(default_factory=dict)
    """Paths of the tables of the last run."""
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
            When an earlier version of this package wrote the file.
        """
        fields = folder.read_record(RUN)
        if fields is None:
            return None
        if isinstance(fields.get("nodes"), str):
            raise RunDirectoryError(
                f"{folder.uri} was made from {fields['nodes']} by an earlier version "
                "of xnq-dist: choose another --out, or add --overwrite"
            )
        try:
            return cls(**fields)
        except TypeError as error:
            raise DamagedError(
                folder.uri, RUN, f"is not a record of a run ({error})"
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
        if self.nodes is None or dict(self.nodes) == dict(nodes):
            return
        # Digests of releases before 0.2 have another length: only rows can be compared.
        same_rows = self.nodes["rows"] == nodes["rows"]
        if same_rows and len(self.nodes["digest"]) != len(nodes["digest"]):
            return
        raise RunDirectoryError(
            f"{uri} holds another graph with {self.nodes['rows']:,} nodes; the node "
            f"table has {nodes['rows']:,} nodes, not the same: choose another --out, "
            "or add --overwrite to replace the run"
        )
