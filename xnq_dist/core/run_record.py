"""The file ``_run.json``: whose graph a run directory holds, and what made it last."""

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
    """What a run directory says of itself."""

    nodes: Mapping[str, Any] | None = None
    """Digest of the node ids: they make a graph another one. None: not read yet."""
    sources: Mapping[str, str | None] = field(default_factory=dict)
    """Where the tables of the last run are."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the last run."""
    base: str | None = None
    """The run directory whose embeddings were taken over."""
    replaces: Mapping[str, Any] | None = None
    """Digest of the node ids before ``--overwrite``."""

    @classmethod
    def read(cls, folder: Folder) -> RunRecord | None:
        """The record of a folder; None where there is none.

        Raises
        ------
        DamagedError
            When the file is not what was written.
        RunDirectoryError
            When the file is of an earlier version of this program.
        """
        values = folder.read_json(RUN)
        if isinstance(values, dict) and isinstance(values.get("nodes"), str):
            raise RunDirectoryError(
                f"{folder.uri} was made from {values['nodes']} by an earlier version "
                "of xnq-dist: choose another --out, or give --overwrite"
            )
        found = folder.read_record(RUN)
        if found is None:
            return None
        try:
            return cls(**found)
        except TypeError as error:
            raise DamagedError(
                folder.uri, RUN, f"is not one of ours ({error})"
            ) from error

    def write(self, folder: Folder) -> None:
        """Put the record into a folder."""
        folder.write_record(RUN, redacted(asdict(self)))

    def belongs(self, nodes: Mapping[str, Any], uri: str) -> None:
        """Refuse the nodes of another graph.

        Raises
        ------
        RunDirectoryError
            When the directory holds the results of other nodes.
        """
        if self.nodes is None or dict(self.nodes) == dict(nodes):
            return
        raise RunDirectoryError(
            f"{uri} holds another graph, of {self.nodes['rows']:,} nodes, and the node "
            f"table has {nodes['rows']:,} nodes that are not the same: choose another "
            "--out, or give --overwrite to replace the run"
        )
