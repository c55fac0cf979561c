"""How the communities of a run differ from those before them, in words."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import StageError
from xnq_dist.core.store import RunDirectory

__all__ = ["OldCommunities"]

log = logging.getLogger(__name__)


class OldCommunities:
    """The communities that a run directory holds, read before they are replaced."""

    def __init__(self, run: RunDirectory) -> None:
        stage = run.stage("quantify")
        manifest = stage.manifest()
        self._names: pa.ChunkedArray | None = None
        self._members = 0
        if manifest is None or "memberships" not in manifest.inputs:
            return
        try:
            tables = [
                stage.read_table(record, "prevalence", ["community"])
                for record in manifest.named("prevalence-")
            ]
        except StageError as error:
            # It is about to be replaced: only the message lacks its counts.
            log.warning("the communities before cannot be compared: %s", error)
            return
        if tables:
            names = pa.concat_tables(tables)["community"]
            self._names = pa.chunked_array([pc.unique(names)])
            self._members = int(manifest.facts["n_memberships"])

    def changes(self, names: pa.Array, members: int) -> str:
        """How many communities are new or gone, and how many members more or fewer.

        Empty where none were known, or nothing of this kind changed.
        """
        if self._names is None or self._names.type != names.type:
            return ""
        new = len(names) - _shared(names, self._names)
        gone = len(self._names) - _shared(self._names, names)
        found = []
        for count, what in ((new, "new"), (gone, "gone")):
            if count:
                noun = "community is" if count == 1 else "communities are"
                found.append(f"{count:,} {noun} {what}")
        more = members - self._members
        if more:
            found.append(f"{abs(more):,} members {'more' if more > 0 else 'fewer'}")
        return ", ".join(found)


def _shared(
    names: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray
) -> int:
    """How many of the names are among others."""
    known = among.combine_chunks() if isinstance(among, pa.ChunkedArray) else among
    return int(pc.sum(pc.is_in(names, known)).as_py() or 0)
