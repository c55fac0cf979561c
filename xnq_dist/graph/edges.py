"""Rows of the edge table as pairs of canonical indices, and the rules for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.settings import ColumnSettings, InputSettings
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.sort import PairSorter
from xnq_dist.graph.tables import Batch, Table

__all__ = [
    "EdgeCounts",
    "Pairs",
    "PairsOf",
    "add_edges",
    "arrow_pairs",
    "columns_read",
    "weights_of",
]


@dataclass(frozen=True)
class EdgeCounts:
    """How many rows of the edge table were used, added or dropped."""

    edges_read: int = 0
    """Rows of the table."""
    reversed_added: int = 0
    """Edges that exist only as the reverse of a row (undirected graphs)."""
    duplicates_dropped: int = 0
    """Rows after the first with the same (src, dst), dropped or added up."""
    self_loops: int = 0
    """Rows v -> v."""
    unknown_dropped: int = 0
    """Rows that name a node that is not in the node table."""

    def __add__(self, other: EdgeCounts) -> EdgeCounts:
        """The counts of both."""
        both = zip(astuple(self), astuple(other), strict=True)
        return EdgeCounts(*map(sum, both))

    def edges(self) -> int:
        """Expected number of edges of the graph."""
        lost = self.duplicates_dropped + self.unknown_dropped
        return self.edges_read - lost + self.reversed_added


Pairs = tuple[NDArray[np.integer], NDArray[np.integer], Floats]
"""Sources, targets and weights of some rows of the edge table. Ends are canonical
indices, -1 for a node that is not in the node table. Weights are 1 in a table
without."""
PairsOf = Callable[[Table, NodeIds, ColumnSettings, InputSettings], Iterator[Pairs]]
"""Yields the pairs of all rows of a table in any order, with the bits and the errors of
`arrow_pairs`."""


def arrow_pairs(
    table: Table, ids: NodeIds, columns: ColumnSettings, rules: InputSettings
) -> Iterator[Pairs]:
    """Yield the pairs of all rows, read by Arrow; an `InputError` names the row."""
    names, ends = columns_read(table, columns), (columns.src, columns.dst)
    # Ids, indices, keys and the decoded batch together: some 200 bytes a row.
    rows = int(np.clip(rules.memory_bytes // 1024, 1024, 1 << 18))
    for batch in ahead(table.batches(names, rows)):
        find = partial(ids.find, batch, unknown=rules.unknown_nodes)
        source, target = map_threads(find, ends, 2)
        yield source, target, weights_of(batch, columns)


def columns_read(table: Table, columns: ColumnSettings) -> list[str]:
    """Names of the columns to read; the weight only if the table has it."""
    names = [columns.src, columns.dst]
    if columns.weight and table.has(columns.weight):
        names.append(columns.weight)
    return list(dict.fromkeys(names))


def add_edges(
    sorter: PairSorter, pairs: Iterable[Pairs], rules: InputSettings
) -> EdgeCounts:
    """Add the pairs that the rules keep to a sorter.

    The counts are those of the rows; the sorter has the others.
    """
    counts = EdgeCounts()
    for source, target, weight in pairs:
        keep = (source >= 0) & (target >= 0)
        unknown = len(keep) - int(np.count_nonzero(keep))
        counts += EdgeCounts(
            edges_read=len(keep),
            self_loops=int(np.count_nonzero(keep & (source == target))),
            unknown_dropped=unknown,
        )
        if not keep.all():
            source, target, weight = source[keep], target[keep], weight[keep]
        sorter.add(target, source, weight)
        if not rules.directed:
            sorter.add(source, target, weight, reverse=True)
    return counts


def weights_of(batch: Batch, columns: ColumnSettings) -> Floats:
    """The weights of a batch, shape (rows,), finite and not negative; 1 without."""
    if columns.weight not in batch.rows.schema.names:
        return np.ones(batch.rows.num_rows)
    largest = np.finfo(np.float32).max
    rule = (
        "weights must be finite in float32 and not negative; set columns.weight to "
        "such a column, or to null to use edges without weights"
    )
    values = batch.numbers(
        str(columns.weight), lambda values: (values >= 0) & (values <= largest), rule
    )
    # Adding zero turns -0.0 into 0.0: equal weights then have equal bits.
    return values + 0.0
