"""The tables of a run: nodes, edges and memberships, wherever they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from xnq_dist.core.leftovers import scratch_folder
from xnq_dist.core.redaction import redacted
from xnq_dist.core.sections import TITLES, InputSettings
from xnq_dist.graph.copies import TableCopy
from xnq_dist.graph.tables import Table, open_table

__all__ = ["Sources", "absolute"]


@dataclass(frozen=True)
class Sources:
    """Locations of the user's tables, each a file, a directory, a glob or a URI."""

    nodes: str
    edges: str
    memberships: str | None = None
    copies: dict[str, TableCopy] = field(
        default_factory=dict, compare=False, kw_only=True
    )
    """Copies of the decoded tables, by key of `TITLES`; empty: there are none."""

    @property
    def paths(self) -> dict[str, str | None]:
        """Locations by key of `TITLES`."""
        return {name: getattr(self, name) for name in ("nodes", "edges", "memberships")}

    @contextmanager
    def copied(self, scratch: str | None) -> Iterator[Sources]:
        """The same tables; each is decoded once until the block ends.

        Copies that are there already stay in use. Errors are those of `scratch_folder`.
        """
        if any(copy.made for copy in self.copies.values()):
            yield self
            return
        with scratch_folder(scratch) as folder:
            copies = {name: TableCopy(folder / name) for name in self.paths}
            yield replace(self, copies=copies)

    def table(self, name: str, settings: InputSettings) -> Table:
        """Open a table, by key of `TITLES`; errors are those of `open_table`."""
        copy = self.copies.get(name)
        if copy and copy.table:
            return copy.table  # type: ignore[no-any-return]
        table = open_table(str(self.paths[name]), TITLES[name], settings)
        return replace(table, copy=copy)

    def absolute(self) -> dict[str, str | None]:
        """Locations by key of `TITLES`, independent of the working directory."""
        return {name: path and absolute(path) for name, path in self.paths.items()}

    def __repr__(self) -> str:
        return f"Sources{redacted((*self.paths.values(),))!r}"


def absolute(path: str) -> str:
    """A table's absolute path, or its URI without credentials."""
    kept = path if "://" in path else str(Path(os.path.expanduser(path)).absolute())
    return str(redacted(kept))
