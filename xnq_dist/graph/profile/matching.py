"""Looks at the batches of each table: ids that match, and copies of the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.arrays import Bools, Ints32, Words
from xnq_dist.core.sections import ColumnSettings
from xnq_dist.core.settings import Settings
from xnq_dist.core.threads import map_threads
from xnq_dist.graph.csr import weights_of
from xnq_dist.graph.digesting import words_of
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.keys import ids_of
from xnq_dist.graph.labels import NodeRows
from xnq_dist.graph.tables import Batch, Table
from xnq_dist.graph.values import NULL_WORDS, is_text, show

__all__ = ["MatchObserver", "NodeObserver"]

SHOWN = 10_000
"""Classes whose labels are counted one by one."""
MAX_CLASSES = 64
"""Classes up to which copies of the label are found."""
FEWEST = 3
"""Labelled nodes of each class without which a copy of the label may be chance."""


class NodeObserver:
    """Reads labels and roles, and looks for features that copy the label or the id."""

    def __init__(
        self, settings: Settings, table: Table, features: Sequence[str] = ()
    ) -> None:
        self._label = settings.columns.label
        self._read = NodeRows(settings, table)
        self._copies = {name: CopyFinder() for name in features}
        self._same = set(features)
        self._words: set[str] = set()

    def add(self, batch: Batch) -> None:
        """Look at a batch."""
        ids, labels = self._read.add(batch), batch.column(self._label)
        if is_text(labels.type):
            self._words |= {*NULL_WORDS} & {*pc.unique(labels).to_pylist()}
        self._same = {name for name in self._same if _equal(batch.column(name), ids)}
        codes = self._read.codes[-1]
        known = codes >= 0
        for name, finder in self._copies.items():
            if len(self._read.seen) <= MAX_CLASSES and known.any():
                finder.add(batch.column(name).filter(pa.array(known)), codes[known])

    def ids(self, path: str) -> NodeIds:
        """The ids of all nodes; an `InputError` if one occurs twice."""
        return NodeIds.from_column(self._read.ids, path)[0]

    def facts(self) -> dict[str, Any]:
        """What was counted, as JSON values."""
        rows = len(self._read.ids)
        labels = self._read.labels(np.arange(rows), rows)
        classes = [*zip(labels.classes, *labels.counts(), strict=True)]
        comparable = 1 < len(classes) <= MAX_CLASSES
        comparable &= all(rows >= FEWEST for _, rows, *_ in classes)
        return {
            "copies": [
                name + place
                for name, finder in self._copies.items()
                for place in (finder.places() if comparable else ())
            ],
            "same_as_id": sorted(self._same),
            "unlabelled": sorted(self._words),
            "classes": classes[:SHOWN],
            "n_classes": len(classes),
            "labelled": sum(rows for _, rows, *_ in classes),
        }


def _equal(values: pa.Array, ids: pa.Array) -> bool:
    """Whether two columns hold the same values, in any width of integers or text."""
    (kind, _, words), (of_ids, _, due) = words_of(values), words_of(ids)
    return kind == of_ids and np.array_equal(words, due)


class CopyFinder:
    """Places of a feature at which each class has one value of its own."""

    def __init__(self) -> None:
        self._values: dict[int, Words] = {}
        """The words of each class."""
        self._same: Bools = np.ones(1, np.bool_)
        """Places at which each class has one value."""

    def add(self, values: pa.Array, codes: Ints32) -> None:
        """Look at the values of labelled nodes, whose classes are `codes`."""
        if not self._same.any():
            return
        _, offsets, words = words_of(values)
        if not self._values:
            self._same = np.ones(offsets[1], np.bool_)
            self._nested = pt.is_nested(values.type)
        width = len(self._same)
        if (np.diff(offsets) != width).any():
            self._same = np.zeros(1, np.bool_)  # lists of several lengths
            return
        matrix = words.reshape(len(codes), width)
        for code in np.unique(codes).tolist():
            of_class = matrix[codes == code]
            first = self._values.setdefault(code, of_class[0])
            self._same &= (of_class == first).all(axis=0)

    def places(self) -> list[str]:
        """At most five places within a list; empty text for a plain column."""
        if not self._same.any():
            return []
        ordered = np.sort(np.stack([*self._values.values()]), axis=0)
        found = self._same & (ordered[1:] != ordered[:-1]).all(axis=0)
        return [f"[{at}]" if self._nested else "" for at in np.flatnonzero(found)[:5]]


@dataclass
class MatchObserver:
    """Looks the ids of edges or members up among the nodes, and checks weights."""

    columns: ColumnSettings
    ends: list[str]
    """Columns of ids."""
    nodes: NodeIds
    matched: int = 0
    """Rows whose ids are all known."""
    unknown: list[Any] | None = None
    """Column, id and row of the first unknown one."""
    heaviest: float = 0.0
    """The largest weight."""

    def add(self, batch: Batch) -> None:
        """Look at a batch."""
        if len(self.ends) == 2:  # edges, which may have weights
            weights = weights_of(batch, self.columns)
            self.heaviest = float(weights.max(initial=self.heaviest))
        find = partial(self.nodes.find, batch, unknown="drop")
        index = np.stack(map_threads(find, self.ends, 2))
        known = (index >= 0).all(axis=0)
        self.matched += int(np.count_nonzero(known))
        if self.unknown is None and not known.all():
            at = int(np.argmin(known))
            name = self.ends[int(np.argmin(index[:, at]))]
            self.unknown = [name, show(ids_of(batch, name), at), batch.row(at)]

    def facts(self) -> dict[str, Any]:
        """What was counted, as JSON values."""
        return {
            "matched": self.matched,
            "unknown": self.unknown,
            "node": self.nodes.name(0),
            "heaviest": self.heaviest,
        }
