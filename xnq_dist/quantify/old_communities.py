"""Describe how the communities of a run differ from those of its previous results."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import StageError
from xnq_dist.core.store import RunDirectory

__all__ = ["OldCommunities"]

log = logging.getLogger(__name__)


class OldCommunities:
    """The communities of a run directory's results, read before they are replaced."""

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
            # The results are replaced anyway: only the log message lacks the counts.
            log.warning(
                "communities cannot be compared with the previous results: %s", error
            )
            return
        if tables:
            names = pa.concat_tables(tables)["community"]
            self._names = pa.chunked_array([pc.unique(names)])
            self._members = int(manifest.facts["n_memberships"])

    def changes(self, names: pa.Array, members: int) -> str:
        """Count new and removed communities and the change in members, as text.

        Empty where there are no earlier communities, or none of these counts changed.
        """
        if self._names is None or self._names.type != names.type:
            return ""
        new = len(names) - _shared(names, self._names)
        gone = len(self._names) - _shared(self._names, names)
        parts = []
        for count, what in ((new, "new"), (gone, "gone")):
            if count:
                noun = "community is" if count == 1 else "communities are"
                parts.append(f"{count:,} {noun} {what}")
        more = members - self._members
        if more:
            parts.append(f"{abs(more):,} members {'more' if more > 0 else 'fewer'}")
        return ", ".join(parts)


def _shared(
    names: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray
) -> int:
    """Count the names that are in `among`."""
    known = among.combine_chunks() if isinstance(among, pa.ChunkedArray) else among
    return int(pc.sum(pc.is_in(names, known)).as_py() or 0)
