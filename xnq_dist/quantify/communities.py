"""Communities from a memberships table, a column of the node table, or detected ones.

Memory is proportional to the nodes and to the communities, never to the memberships:
an external sort orders them, and they are read back in batches of complete communities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Ints
from xnq_dist.core.errors import InputError
from xnq_dist.core.leftovers import scratch_folder
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.keys import ids_of
from xnq_dist.graph.labels import valid_text
from xnq_dist.graph.profile.headers import columns_of
from xnq_dist.graph.sort import PairSorter, SparseRows
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import Batch, Table
from xnq_dist.graph.values import one_form
from xnq_dist.quantify.interface import Communities

__all__ = [
    "Memberships",
    "community_batches",
    "from_assignment",
    "from_column",
    "from_memberships",
    "open_memberships",
]

_DISTINCT_SLACK = 1 << 20
"""Number of duplicate names that are held before they are removed."""


@dataclass(frozen=True, eq=False)
class Memberships:
    """Named communities; their members are still in the sorter."""

    names: pa.Array
    """Names of the communities, int64 or string, ascending, shape (S,)."""
    total: int
    """Memberships read, duplicates included."""
    unknown_dropped: int
    """Memberships left out because their node is not in the node table."""
    sorter: PairSorter
    """Yields community codes and canonical members in order, once, and then has the
    number of repeated memberships."""
    digest: str = ""
    """Checksum of detected communities; empty for others."""


@contextmanager
def open_memberships(
    graph: Manifest,
    nodes: NodeIds,
    sources: Sources,
    settings: Settings,
    source: str,
) -> Iterator[Memberships]:
    """Open the communities of a source; their members are sorted."""
    with scratch_folder(settings.scratch) as scratch:
        if source == "given":
            table = sources.table("memberships", settings.input)
            yield from_memberships(table, nodes, settings, scratch)
        elif source == "leiden":
            from xnq_dist.groups.detection import detect

            communities = detect(graph, settings, scratch)
            yield from_assignment(communities, settings, scratch)
        else:
            table = sources.table("nodes", settings.input)
            column = source.removeprefix("column:")
            yield from_column(table, column, nodes, settings, scratch)


def from_memberships(
    table: Table, nodes: NodeIds, settings: Settings, scratch: Path
) -> Memberships:
    """Read the communities of a memberships table in two passes: names, then members.

    Sorted files stay in `scratch`. A table that is empty, lacks a column, has a null,
    mixes types, or names a node that is not in the node table (unless
    ``input.unknown_nodes`` is ``drop``) is an `InputError`.
    """
    columns = settings.columns
    table.require(columns_of("memberships", columns))
    missing = (
        f"{table.what} {table.path} has no rows: name at least one member, or set "
        "communities = leiden"
    )
    names, unknown = (columns.community, columns.member), settings.input.unknown_nodes
    return _read(table.batches, names, nodes, settings, scratch, unknown, missing)


def from_column(
    table: Table, column: str, nodes: NodeIds, settings: Settings, scratch: Path
) -> Memberships:
    """Read communities from a column of the node table; null means no community."""
    node_id = settings.columns.node_id
    table.require([("communities = column:NAME", column), ("columns.node_id", node_id)])

    def present(columns: list[str]) -> Iterator[Batch]:
        for batch in table.batches(columns):
            rows = batch.rows.filter(pc.is_valid(batch.rows.column(column)))
            if rows.num_rows:
                yield Batch(rows, batch.file, batch.first)

    missing = (
        f"column {column!r} of {table.path} has no value: name another column in "
        "communities = column:NAME"
    )
    names = column, node_id
    return _read(present, names, nodes, settings, scratch, "error", missing)


def from_assignment(assignment: Ints, settings: Settings, scratch: Path) -> Memberships:
    """Communities 0, 1, ... from the community number of each node, shape (N,)."""
    n_nodes = len(assignment)
    names = pa.array(np.arange(int(assignment.max(initial=-1)) + 1))
    sorter = PairSorter(len(names), n_nodes, settings.input.memory_bytes, scratch)
    sorter.add(assignment, np.arange(n_nodes))
    digest = hashlib.blake2b(assignment.tobytes(), digest_size=16).hexdigest()
    return Memberships(names, n_nodes, 0, sorter, digest)


def _read(
    batches: Callable[[list[str]], Iterator[Batch]],
    columns: tuple[str, str],
    nodes: NodeIds,
    settings: Settings,
    scratch: Path,
    unknown: Literal["error", "drop"],
    missing: str,
) -> Memberships:
    """Sort the memberships in two columns; without any, `missing` is the error."""
    community, member = columns
    named = _distinct(batches([community]), community)
    if named is None:
        raise InputError(missing)
    sorter = PairSorter(len(named), len(nodes), settings.input.memory_bytes, scratch)
    total = dropped = 0
    for batch in batches([*columns]):
        code = named.index_of(one_form(ids_of(batch, community)))
        index = nodes.find(batch, member, unknown)
        known = index >= 0
        dropped += int(np.count_nonzero(~known))
        total += int(np.count_nonzero(known))
        sorter.add(code[known], index[known])
    return Memberships(named.values, total, dropped, sorter)


def _distinct(batches: Iterator[Batch], column: str) -> NodeIds | None:
    """Return the distinct names of a column, None when there is no row."""
    collected: list[pa.Array] = []
    held, distinct = 0, 0
    first: Batch | None = None
    for batch in batches:
        names = one_form(ids_of(batch, column))
        if first is None:
            first = batch
        elif collected[0].type != names.type:
            raise InputError(
                f"column {column!r} is {collected[0].type} in {first.file} and "
                f"{names.type} in {batch.file}: write all files with one type"
            )
        collected.append(valid_text(pc.unique(names), batch, column))
        held += len(collected[-1])
        if held > 2 * distinct + _DISTINCT_SLACK:
            collected = [pc.unique(pa.chunked_array(collected))]
            held = distinct = len(collected[0])
    if first is None:
        return None
    unique = pc.unique(pa.chunked_array(collected))
    return NodeIds.from_column(pa.chunked_array([unique]))[0]


def community_batches(
    chunks: Iterator[SparseRows], memberships: int
) -> Iterator[tuple[int, Communities]]:
    """Divide the communities of sorted chunks: see `Communities.parts`."""
    for chunk in chunks:
        sets = Communities(chunk.indptr, chunk.indices)
        for first, part in sets.parts(memberships):
            yield chunk.first + first, part
