"""Rows of the edge table as pairs of canonical indices, with their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.settings import ColumnSettings, InputSettings
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.ahead import ahead
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.profile.headers import names_read
from xnq_dist.graph.tables import Batch, Table

__all__ = [
    "HEAVIEST",
    "Pairs",
    "PairsOf",
    "arrow_pairs",
    "weights_of",
]

HEAVIEST = 1e15
"""The largest weight. Labels are counted over walks of two steps: such products, added
up over the neighbours of a hub, must stay finite in float32."""

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
    names, ends = names_read("edges", columns, table), (columns.src, columns.dst)
    # Ids, indices, keys and the decoded batch together: some 200 bytes a row.
    rows = int(np.clip(rules.memory_bytes // 1024, 1024, 1 << 18))
    for batch in ahead(table.batches(names, rows)):
        find = partial(ids.find, batch, unknown=rules.unknown_nodes)
        source, target = map_threads(find, ends, 2)
        yield source, target, weights_of(batch, columns)


def weights_of(batch: Batch, columns: ColumnSettings) -> Floats:
    """The weights of a batch, shape (rows,), 0 to `HEAVIEST`; 1 without."""
    if columns.weight not in batch.rows.schema.names:
        return np.ones(batch.rows.num_rows)
    rule = (
        "weights must be finite and between 0 and 1e15; set columns.weight to "
        "such a column, or to null to use edges without weights"
    )
    values = batch.numbers(
        str(columns.weight), lambda values: (values >= 0) & (values <= HEAVIEST), rule
    )
    # Adding zero turns -0.0 into 0.0: equal weights then have equal bits.
    return values + 0.0
