"""Communities of communities: who is whose parent, read and checked.

The members of a parent are all members of its communities, and those of its own rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Ints
from xnq_dist.core.errors import InputError
from xnq_dist.core.settings_sections import ColumnSettings
from xnq_dist.graph.contents import has_parents
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Batch, Table, ids_of, open_table

__all__ = ["Hierarchy", "ParentPairs", "read_parents"]

DEEPEST = 64
"""Levels above a community; more are a circle."""


@dataclass(frozen=True, eq=False)
class ParentPairs:
    """Distinct pairs of a community and its parent."""

    child: pa.Array
    parent: pa.Array
    path: str
    """Where they were read."""

    def of(self, names: pa.Array) -> ParentPairs:
        """Those that some communities, their parents and so on are in."""
        known = names
        while True:
            kept = pc.is_in(self.child, known)
            above = self.parent.filter(kept)
            joined = pc.unique(pa.chunked_array([known, above]))
            if len(joined) == len(known):
                return ParentPairs(self.child.filter(kept), above, self.path)
            known = joined


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The parent of every community."""

    parent: Ints
    """Code of each community's parent, -1: none, shape (S,)."""

    @classmethod
    def of(cls, pairs: ParentPairs, names: NodeIds) -> Hierarchy:
        """From pairs of communities that all have names.

        Two parents, or a community above itself, are an `InputError`.
        """
        child, parent = names.index_of(pairs.child), names.index_of(pairs.parent)
        number = np.bincount(child, minlength=len(names))
        if (number > 1).any():
            name = names.values[int(np.argmax(number > 1))].as_py()
            raise InputError(
                f"community {name!r} has {int(number.max())} parents in {pairs.path}: "
                "name one parent for each community"
            )
        above = np.full(len(names), -1, np.int64)
        above[child] = parent
        found = cls(above)
        left = np.arange(len(names))
        for _ in range(DEEPEST):
            left = left[above[left] >= 0] if len(left) else left
            left = np.unique(above[left])
        if len(left):
            name = names.values[int(left[0])].as_py()
            raise InputError(
                f"community {name!r} is above itself, or has more than {DEEPEST} "
                f"levels above it, in {pairs.path}: correct its parents"
            )
        return found

    def upwards(self, codes: Ints, members: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Memberships of the communities' parents, then of theirs, and so on."""
        while True:
            codes = self.parent[codes]
            some = codes >= 0
            if not some.any():
                return
            codes, members = codes[some], members[some]
            yield codes, members

    def unequal(self, sizes: Ints) -> Ints:
        """Parents with another number of members than their communities together."""
        has = self.parent >= 0
        summed = np.zeros(len(sizes), np.int64)
        np.add.at(summed, self.parent[has], sizes[has])
        is_parent = np.zeros(len(sizes), np.bool_)
        is_parent[self.parent[has]] = True
        return np.flatnonzero(is_parent & (summed != sizes))


def read_parents(
    table: Table, columns: ColumnSettings, parents: str | None
) -> ParentPairs | None:
    """Pairs of a community and its parent; None where nothing names a parent.

    `parents` names a table of communities and parents, in place of the column of the
    memberships table.
    """
    if parents is not None:
        table = open_table(parents, "table of parents")
        table.require(
            {"columns.community": columns.community, "columns.parent": columns.parent}
        )
    elif not has_parents(table, columns):
        return None
    found: pa.Table | None = None
    names = ["child", "parent"]
    for batch in table.batches([columns.community, columns.parent]):
        there = batch.rows.filter(pc.is_valid(batch.rows.column(columns.parent)))
        if not there.num_rows:
            continue
        rows = Batch(there, batch.file, batch.first)
        pair = [ids_of(rows, name) for name in (columns.community, columns.parent)]
        some = pa.table(pair, names=names)
        before = some.schema if found is None else found.schema
        if pair[0].type != pair[1].type or some.schema != before:
            raise InputError(
                f"columns {columns.community!r} and {columns.parent!r} of {batch.file} "
                "are of different types: write both as integers, or both as text"
            )
        tables = [some] if found is None else [found, some]
        found = pa.concat_tables(tables).group_by(names).aggregate([])
    if found is None:
        return None
    child, parent = (found[name].combine_chunks() for name in names)
    return ParentPairs(child, parent, table.path)
