"""The file ``_run.json``: whose graph a run directory holds, and what made it last."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from xnq_dist.errors import RunDirectoryError
from xnq_dist.store import Folder, RunDirectory, fingerprint

__all__ = ["RUN", "RunRecord"]

log = logging.getLogger(__name__)

RUN = "_run.json"


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

        A damaged one is made again from the stage ``graph``, without what only it knew.

        Raises
        ------
        RunDirectoryError
            When the file is of an earlier version of this program.
        """
        if not folder.exists(RUN):
            return None
        found = folder.read_json(RUN)
        if isinstance(found, dict):
            if isinstance(found.get("nodes"), str):
                raise RunDirectoryError(
                    f"{folder.uri} was made from {found['nodes']} by an earlier "
                    "version of xnq-dist: choose another --out, or give --overwrite"
                )
            checksum = found.pop("checksum", None)
            if checksum == fingerprint(found):
                return cls(**found)
        log.warning("%s/%s is damaged and is written again", folder.uri, RUN)
        graph = RunDirectory(folder.uri).stage("graph").manifest()
        return cls(nodes=graph.inputs.get("nodes") if graph else None)

    def write(self, folder: Folder) -> None:
        """Put the record into a folder."""
        values = asdict(self)
        text = json.dumps({**values, "checksum": fingerprint(values)}, indent=1)
        folder.write_bytes(RUN, text.encode())

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
