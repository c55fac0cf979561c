"""Hierarchies of communities: the parent of each community, read and checked.

The members of a parent are all members of its communities and those listed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Ints
from xnq_dist.core.errors import InputError
from xnq_dist.core.settings import ColumnSettings
from xnq_dist.graph.contents import has_parents
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Batch, Table, ids_of

__all__ = ["Hierarchy", "ParentPairs", "read_parents"]

MAX_LEVELS = 64
"""Maximum number of levels above a community; more are taken for a cycle."""


@dataclass(frozen=True, eq=False)
class ParentPairs:
    """Distinct pairs of a community and its parent."""

    child: pa.Array
    parent: pa.Array
    path: str
    """The table that they were read from."""

    def of(self, names: pa.Array) -> ParentPairs:
        """Return the pairs of the named communities and of all levels above them."""
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
    left_out: pa.Array
    """Names of communities with parents, and of parents, that have no members."""

    @classmethod
    def of(cls, every: ParentPairs, names: NodeIds) -> Hierarchy:
        """Build the hierarchy from the pairs of communities in `names`.

        A community with two parents or above itself is an `InputError`.
        """
        listed = pc.unique(pa.chunked_array([every.child, every.parent]))
        left_out = listed.filter(pc.invert(pc.is_in(listed, names.values)))
        pairs = every.of(names.values)
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

        left = np.arange(len(names))
        for _ in range(MAX_LEVELS):
            left = left[above[left] >= 0] if len(left) else left
            left = np.unique(above[left])
        if len(left):
            name = names.values[int(left[0])].as_py()
            raise InputError(
                f"community {name!r} is above itself, or has more than {MAX_LEVELS} "
                f"levels above it, in {pairs.path}: correct its parents"
            )
        return cls(above, left_out)

    def upwards(self, codes: Ints, members: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the memberships in the parents, then in their parents, and so on."""
        while True:
            codes = self.parent[codes]
            has = codes >= 0
            if not has.any():
                return
            codes, members = codes[has], members[has]
            yield codes, members

    def unequal(self, sizes: Ints) -> Ints:
        """Return the parents whose size is not the sum of their communities' sizes."""
        has = self.parent >= 0
        summed = np.zeros(len(sizes), np.int64)
        np.add.at(summed, self.parent[has], sizes[has])
        is_parent = np.zeros(len(sizes), np.bool_)
        is_parent[self.parent[has]] = True
        return np.flatnonzero(is_parent & (summed != sizes))


def read_parents(
    table: Table, columns: ColumnSettings, named: bool
) -> ParentPairs | None:
    """Read pairs of a community and its parent; None where no parent is named.

    `named` says whether `table` is a table of parents, whose columns must exist; else
    it is the memberships table.
    """
    if named:
        table.require(
            {"columns.community": columns.community, "columns.parent": columns.parent}
        )
    elif not has_parents(table, columns):
        return None
    pairs: pa.Table | None = None
    names = ["child", "parent"]
    for batch in table.batches([columns.community, columns.parent]):
        has_parent = batch.rows.filter(pc.is_valid(batch.rows.column(columns.parent)))
        if not has_parent.num_rows:
            continue
        rows = Batch(has_parent, batch.file, batch.first)
        pair = [ids_of(rows, name) for name in (columns.community, columns.parent)]
        of_batch = pa.table(pair, names=names)
        before = of_batch.schema if pairs is None else pairs.schema
        if pair[0].type != pair[1].type or of_batch.schema != before:
            raise InputError(
                f"columns {columns.community!r} and {columns.parent!r} of {batch.file} "
                "are of different types: write both as integers, or both as text"
            )
        tables = [of_batch] if pairs is None else [pairs, of_batch]
        pairs = pa.concat_tables(tables).group_by(names).aggregate([])
    if pairs is None:
        return None
    child, parent = (pairs[name].combine_chunks() for name in names)
    return ParentPairs(child, parent, table.path)
