"""Looks at the batches of each table: ids that match, and copies of the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from xnq_dist.core.arrays import Bools, Ints32, Words
from xnq_dist.core.settings import ColumnSettings, Settings
from xnq_dist.graph.digesting import words_of
from xnq_dist.graph.edges import weights_of
from xnq_dist.graph.feature_types import index_columns
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.labels import NodeRows
from xnq_dist.graph.profile.columns import LEVELS, ColumnCounter, TableProfile
from xnq_dist.graph.tables import Batch, Table, ids_of
from xnq_dist.graph.values import show

__all__ = ["MatchObserver", "NodeObserver", "TableObserver"]

MAX_CLASSES = 64
"""Classes up to which copies of the label are found."""
FEWEST = 3
"""Labelled nodes of each class without which a copy of the label may be chance."""


class TableObserver:
    """Counts the columns of a table; those of ids without their values."""

    def __init__(self, columns: Sequence[str], ids: Sequence[str]) -> None:
        self.columns: Sequence[str] = list(dict.fromkeys([*ids, *columns]))
        """Columns that batches must have."""
        self._counters = {
            name: ColumnCounter(name, levels=name not in ids) for name in self.columns
        }
        self.rows = 0

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self.rows += batch.rows.num_rows
        for name, counter in self._counters.items():
            counter.add(batch.column(name))

    def profile(self, table: Table) -> dict[str, Any]:
        """The profile of all batches, as JSON values."""
        columns = tuple(each.finish() for each in self._counters.values())
        names = list(table.schemas[table.files[0]])
        facts = {**self._facts(), "names": names, "indexes": index_columns(table)}
        return asdict(TableProfile(table.what, table.path, self.rows, columns, facts))

    def _facts(self) -> dict[str, Any]:
        return {}


class NodeObserver(TableObserver):
    """Reads labels and roles, and looks for features that copy the label or the id."""

    def __init__(
        self,
        columns: Sequence[str],
        settings: Settings,
        features: Sequence[str],
        role: str | None,
    ) -> None:
        named = settings.columns
        super().__init__(columns, [named.node_id])
        self._read = NodeRows(named, role is not None, settings.labels.missing)
        used = [name for name in features if name in self.columns]
        self._copies = {name: CopyFinder() for name in used}
        self._same, self._numbered = set(used), set(used)

    def add(self, batch: Batch) -> None:
        """Look at a batch."""
        super().add(batch)
        ids = self._read.add(batch)
        self._same = {name for name in self._same if batch.column(name).equals(ids)}
        self._numbered = {
            name
            for name in self._numbered
            if _number_rows(batch.column(name), batch.first)
        }
        codes = self._read.codes[-1]
        known = codes >= 0
        for name, finder in self._copies.items():
            if len(self._read.seen) <= MAX_CLASSES and known.any():
                finder.add(batch.column(name).filter(pa.array(known)), codes[known])

    def ids(self, path: str) -> NodeIds:
        """The ids of all nodes; an `InputError` if one occurs twice."""
        return NodeIds.from_column(self._read.ids, path)[0]

    def _facts(self) -> dict[str, Any]:
        classes = self._read.classes()
        comparable = 1 < len(classes) <= MAX_CLASSES
        comparable &= all(rows >= FEWEST for _, rows, *_ in classes)
        return {
            "copies": [
                name + place
                for name, finder in self._copies.items()
                for place in (finder.places() if comparable else ())
            ],
            "numbered": sorted(self._numbered),
            "same_as_id": sorted(self._same),
            "classes": classes[:LEVELS],
            "n_classes": len(classes),
        }


class CopyFinder:
    """Places of a feature at which each class has one value of its own."""

    def __init__(self) -> None:
        self._values: dict[int, Words] = {}
        """The words of each class."""
        self._same: Bools | None = None
        """Places at which each class has one value; None: not known."""

    def add(self, values: pa.Array, codes: Ints32) -> None:
        """Look at the values of labelled nodes, whose classes are `codes`."""
        if self._same is not None and not self._same.any():
            return
        _, offsets, words = words_of(values)
        width = offsets[1] if self._same is None else len(self._same)
        if (np.diff(offsets) != width).any():
            self._same = np.zeros(1, np.bool_)  # lists of several lengths
            return
        if self._same is None:
            self._same = np.ones(width, np.bool_)
            self._nested = pt.is_nested(values.type)
        matrix = words.reshape(len(codes), width)
        for code in np.unique(codes).tolist():
            of_class = matrix[codes == code]
            first = self._values.setdefault(code, of_class[0])
            self._same &= (of_class == first).all(axis=0)

    def places(self) -> list[str]:
        """At most five places within a list; empty text for a plain column."""
        if self._same is None or not self._same.any():
            return []
        ordered = np.sort(np.stack([*self._values.values()]), axis=0)
        found = self._same & (ordered[1:] != ordered[:-1]).all(axis=0)
        return [f"[{at}]" if self._nested else "" for at in np.flatnonzero(found)[:5]]


def _number_rows(values: pa.Array, first: int) -> bool:
    """Whether values are the numbers of a file's rows from 0 or 1, after `first`."""
    if not pt.is_integer(values.type) or values.null_count:
        return False
    begin = values[0].as_py()
    counted = np.arange(begin, begin + len(values))
    return begin - first in (0, 1) and bool((values.to_numpy() == counted).all())


class MatchObserver(TableObserver):
    """Looks the ids of edges or members up among the nodes.

    It checks weights, and counts nodes without an edge to another one.
    """

    def __init__(
        self,
        columns: Sequence[str],
        ids: Sequence[str],
        named: ColumnSettings,
        nodes: NodeIds,
    ) -> None:
        super().__init__(columns, ids)
        self._nodes, self._ends, self._named = nodes, ids, named
        self._joined = np.zeros(len(nodes), np.bool_)
        self._matched = 0
        self._unknown: list[Any] | None = None

    def add(self, batch: Batch) -> None:
        """Look at a batch."""
        super().add(batch)
        if self._named.weight in self.columns:
            weights_of(batch, self._named)
        index = np.stack([self._nodes.find(batch, n, "drop") for n in self._ends])
        known = (index >= 0).all(axis=0)
        self._matched += int(np.count_nonzero(known))
        if self._unknown is None and not known.all():
            at = int(np.argmin(known))
            end = int(np.argmin(index[:, at]))
            name = self._ends[end]
            self._unknown = [name, show(ids_of(batch, name), at), batch.row(at)]
        ends = index[:, known & (index[0] != index[-1])]
        self._joined[ends.ravel()] = True

    def _facts(self) -> dict[str, Any]:
        return {
            "matched": self._matched,
            "unknown": self._unknown,
            "node": self._nodes.name(0),
            "isolated": int(np.count_nonzero(~self._joined)),
        }
