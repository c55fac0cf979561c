"""Looks at the batches of each table: ids that match, and copies of the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.graph.edges import weights_of
from xnq_dist.graph.encoding import exact_numbers
from xnq_dist.graph.feature_types import index_columns
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.labels import NodeRows
from xnq_dist.graph.profile.columns import LEVELS, ColumnCounter, TableProfile
from xnq_dist.graph.tables import Batch, Table, ids_of
from xnq_dist.graph.values import show

__all__ = ["MatchObserver", "NodeObserver", "TableObserver"]

MAX_CLASSES = 64
"""Classes, or values of a text column, up to which copies of the label are found."""
FEWEST = 3
"""Labelled nodes of each class without which a copy of the label may be chance."""


class TableObserver:
    """Counts the columns of a table; those of ids without their values."""

    def __init__(self, columns: Sequence[str], ids: Sequence[str]) -> None:
        self.columns: Sequence[str] = list(dict.fromkeys([*ids, *columns]))
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
        self._role = role
        self._read = NodeRows(named, role is not None, settings.labels.missing)
        self._other_roles: dict[str, int] = {}
        self._by_role: dict[Any, list[int]] = {}
        self._copies = {name: CopyFinder() for name in features if name in self.columns}
        self._same = set(self._copies)
        self._numbered = set(self._copies)

    def add(self, batch: Batch) -> None:
        """Look at a batch."""
        super().add(batch)
        ids, labels, roles = self._read.add(batch)
        for name in sorted(self._same):
            column = batch.column(name)
            if column.type != ids.type or not pc.all(pc.equal(column, ids)).as_py():
                self._same.discard(name)
        for name in sorted(self._numbered):
            if not _number_rows(batch.column(name), batch.first):
                self._numbered.discard(name)
        few = max(len(self._by_role), len(self._other_roles)) <= LEVELS
        if self._role is not None and few:
            self._count_roles(batch.column(self._role), labels, roles)
        if self._copies and len(self._read.seen) <= MAX_CLASSES:
            codes = self._read.codes[-1]
            known = codes >= 0
            for name, finder in self._copies.items():
                finder.add(batch.column(name).filter(pa.array(known)), codes[known])

    def _count_roles(self, roles: pa.Array, labels: pa.Array, codes: Any) -> None:
        table = pa.table({"label": labels, "code": codes}).filter(labels.is_valid())
        counted = table.group_by(["label", "code"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            of_class = self._by_role.setdefault(row["label"], [0, 0, 0, 0])
            of_class[row["code"]] += row["count_all"]
        other = roles.filter(pa.array(codes == -2)).cast(pa.string())
        for row in other.value_counts().to_pylist():
            before = self._other_roles.get(row["values"], 0)
            self._other_roles[row["values"]] = before + row["counts"]

    def ids(self, path: str) -> NodeIds:
        """The ids of all nodes; an `InputError` if one occurs twice."""
        return NodeIds.from_column(self._read.ids, path)[0]

    def _facts(self) -> dict[str, Any]:
        n_classes = len(self._read.seen)
        return {
            "copies": [
                name + place
                for name, finder in self._copies.items()
                for place in finder.copies(n_classes)
            ],
            "numbered": sorted(self._numbered) if self.rows else [],
            "same_as_id": sorted(self._same) if self.rows else [],
            "by_role": [[value, *n] for value, n in self._by_role.items()],
            "other_roles": list(self._other_roles.items()),
        }


class CopyFinder:
    """Columns of a feature in which each class has one value of its own."""

    def __init__(self) -> None:
        self._low = np.empty((0, 0))
        self._high = np.empty((0, 0))
        self._counts = np.zeros(MAX_CLASSES + 1, np.int64)
        self._values: dict[Any, int] = {}
        self._nested = False
        self._open = True

    def add(self, values: pa.Array, codes: Ints32) -> None:
        """Look at the values of labelled nodes, whose classes are `codes`."""
        matrix = self._matrix(values) if self._open and len(codes) else None
        if matrix is None or codes.max() > MAX_CLASSES:
            self._open = self._open and not len(codes)
            return
        if not self._low.size:
            shape = MAX_CLASSES + 1, matrix.shape[1]
            self._low, self._high = np.full(shape, np.inf), np.full(shape, -np.inf)
        if matrix.shape[1] != self._low.shape[1]:
            self._open = False
            return
        self._counts += np.bincount(codes, minlength=MAX_CLASSES + 1)
        for code in np.unique(codes):
            of_class = matrix[codes == code]
            self._low[code] = np.minimum(self._low[code], of_class.min(0))
            self._high[code] = np.maximum(self._high[code], of_class.max(0))

    def _matrix(self, values: pa.Array) -> Floats | None:
        """Numbers of a list, or numbers that stand for the values of another type."""
        if values.null_count:
            return None
        if pt.is_nested(values.type):
            self._nested = True
            lengths = pc.unique(pc.list_value_length(values))
            flat = values.flatten()
            if len(lengths) != 1 or not lengths[0].as_py() or flat.null_count:
                return None
            numbers = np.asarray(exact_numbers(flat), np.float64)
            return cast(Floats, numbers.reshape(len(values), -1))
        encoded, seen = values.dictionary_encode(), self._values
        if len(encoded.dictionary) > MAX_CLASSES:
            return None
        each = [seen.setdefault(v, len(seen)) for v in encoded.dictionary.to_pylist()]
        if len(seen) > MAX_CLASSES:
            return None
        coded: Floats = np.array([*each, 0.0])[encoded.indices.to_numpy()][:, None]
        return coded

    def copies(self, n_classes: int) -> list[str]:
        """Places of the copies within the feature; empty text for a plain column."""
        low, high = self._low[:n_classes], self._high[:n_classes]
        few = self._counts[:n_classes].min(initial=FEWEST) < FEWEST
        if not (self._open and 1 < n_classes <= MAX_CLASSES and low.size) or few:
            return []
        ordered = np.sort(low, 0)
        found = (low == high).all(0) & (np.diff(ordered, axis=0) > 0).all(0)
        return [f"[{at}]" if self._nested else "" for at in np.flatnonzero(found)[:5]]


def _number_rows(values: pa.Array, first: int) -> bool:
    """Whether values are the numbers of a file's rows from 0 or 1, after `first`."""
    if not pt.is_integer(values.type) or values.null_count or not len(values):
        return False
    begin = values[0].as_py()
    counted = np.arange(begin, begin + len(values))
    return begin - first in (0, 1) and bool((values.to_numpy() == counted).all())


class MatchObserver(TableObserver):
    """Looks the ids of edges or members up among the nodes.

    It checks weights, and counts nodes without an edge to another one.
    """

    def __init__(
        self, columns: Sequence[str], ids: Sequence[str], named: Any, nodes: NodeIds
    ) -> None:
        super().__init__(columns, ids)
        self._nodes, self._named = nodes, ids
        self._weighted = named if named.weight in self.columns else None
        self._joined = np.zeros(len(nodes), np.bool_)
        self.matched = 0
        self._mismatch: dict[str, str] = {}
        self._unknown: list[Any] | None = None
        self._spaces = 0
        self._with_spaces = ""

    def add(self, batch: Batch) -> None:
        """Look at a batch."""
        super().add(batch)
        if self._weighted is not None:
            weights_of(batch, self._weighted)
        ends = self._look_up(batch)
        if ends is not None:
            first, last = ends[0], ends[-1]
            used = (first >= 0) & (last >= 0) & (first != last)
            self._joined[first[used]] = self._joined[last[used]] = True

    def _look_up(self, batch: Batch) -> list[Ints] | None:
        """Canonical indices by column, -1: unknown; None for ids of another type."""
        found = []
        for name in self._named:
            ids = ids_of(batch, name)
            if not self._nodes.takes(ids, batch.rows.column(name).type):
                self._mismatch = self._mismatch or self._mismatched(batch, name, ids)
                return None
            index = self._nodes.index_of_numbers(ids)
            if len(index) and index.min() < 0:
                self._note_unknown(batch, name, ids, index)
            found.append(index)
        known = np.logical_and.reduce([index >= 0 for index in found])
        self.matched += int(np.count_nonzero(known))
        return found

    def _note_unknown(
        self, batch: Batch, name: str, ids: pa.Array, index: Ints
    ) -> None:
        missing = index < 0
        if self._unknown is None:
            at = int(np.argmax(missing))
            self._unknown = [name, show(ids, at), batch.row(at)]
        if self._nodes.type == "string" and pt.is_string(ids.type):
            unknown = ids.filter(pa.array(missing))
            trimmed = pc.utf8_trim_whitespace(unknown)
            better = self._nodes.index_of(trimmed) >= 0
            if better.any():
                self._with_spaces = show(unknown, int(np.argmax(better)))
                self._spaces += int(np.count_nonzero(better))

    def _mismatched(self, batch: Batch, column: str, ids: pa.Array) -> dict[str, str]:
        """Where ids of another type than those of the nodes are."""
        found = {"column": column, "file": batch.file, "same": "the same type"}
        if pt.is_integer(ids.type):
            found |= {"type": "integers", "where": "", "ids": "text"}
            digits = pc.match_substring_regex(self._nodes.values, r"^0\d+$")
            at = pc.index(digits, pa.scalar(True)).as_py()
            if at >= 0:
                zeros = f"text with leading zeros ({show(self._nodes.values, at)})"
                found |= {"ids": zeros, "same": "text"}
            return found
        odd = pc.invert(pc.match_substring_regex(ids, r"^-?\d+$"))
        at = pc.index(odd, pa.scalar(True)).as_py()
        where = f" such as {show(ids, at)} in {batch.row(at)}" if at >= 0 else ""
        return found | {"type": "text", "where": where, "ids": "integers"}

    def _facts(self) -> dict[str, Any]:
        return {
            "mismatch": self._mismatch,
            "matched": self.matched,
            "unknown": self._unknown,
            "node": self._nodes.name(0),
            "spaces": [self._spaces, self._with_spaces],
            "isolated": len(self._joined) - int(np.count_nonzero(self._joined)),
            "nodes": len(self._joined),
        }
