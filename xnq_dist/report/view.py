"""The prevalence table arranged by community and class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.plain_text import plain
from xnq_dist.quantify.checks.quality import (
    CAUTION,
    NOT_PUBLISHABLE,
    PUBLISHABLE,
    SUPPRESSED,
    without_values,
)

__all__ = ["NOT_RATED_HIGHER", "QUALITIES", "PrevalenceView"]


NAME_LIMIT = 120
QUALITIES = ("", PUBLISHABLE, CAUTION, NOT_PUBLISHABLE, SUPPRESSED)
"""Qualities by code; 0: not rated."""
NOT_RATED_HIGHER = QUALITIES.index(NOT_PUBLISHABLE)
"""Estimates with this code or a higher one are not publishable."""
SHRINKAGE = 30
"""Members of average prevalence that are added to a community without an interval, so
that very small ones do not lead the order."""


@dataclass(frozen=True, eq=False)
class PrevalenceView:
    """The prevalence table by community and class, in order of first appearance.

    Suppressed communities keep their name and size alone.
    """

    names: pa.Array
    """Names of the K communities."""
    classes: tuple[str, ...]
    """Names of the C classes, as text."""
    labels: pa.Array
    """The same classes in the type of the labels."""
    prevalence: Floats
    """Estimates, shape (K, C); NaN if there is none."""
    lower: Floats
    upper: Floats
    se: Floats
    """Standard errors, shape (K, C)."""
    n_nodes: NDArray[np.int64]
    n_labelled: NDArray[np.int64]
    n_estimated: NDArray[np.int64]
    notes: pa.Array
    quality: NDArray[np.uint8]
    """Places in `QUALITIES`, shape (K, C)."""

    @classmethod
    def of(
        cls, table: pa.Table, classes: Sequence[str] = (), last: str = ""
    ) -> PrevalenceView:
        """Arrange a ``prevalence`` table (one row per community and class).

        Parameters
        ----------
        table
            Rows in any order; a missing (community, class) pair becomes NaN.
        classes
            Order of the classes; others follow in order of first appearance.
        last
            Class to put last, which the page is about; empty: keep the order.
        """
        table = without_values(table)
        names, rows = _encode(table["community"])
        class_names, columns = _encode(table["class"])
        texts = [str(name) for name in class_names.to_pylist()]
        order = [name for name in classes if name in texts]
        order += [name for name in texts if name not in order]
        order.sort(key=lambda name: name == last)
        place = np.array([order.index(name) for name in texts], np.int64)
        columns = place[columns] if len(texts) else columns
        labels = class_names.take(pa.array([texts.index(name) for name in order], "i8"))
        shape = (len(names), len(order))

        def matrix(name: str) -> Floats:
            values = np.full(shape, np.nan)
            if name not in table.column_names:
                return values
            column = pc.fill_null(table[name].cast(pa.float64()), float("nan"))
            values[rows, columns] = column.to_numpy()
            return values

        def of_community(name: str, kind: type, empty: Any) -> Any:
            values: NDArray[Any] = np.full(shape[0], empty, kind)
            values[rows] = pc.fill_null(table[name], empty).to_numpy()
            return values

        first = np.zeros(shape[0], np.int64)
        first[rows[::-1]] = np.arange(len(rows))[::-1]
        quality = np.zeros(shape, np.uint8)
        if "quality" in table.column_names:
            ratings = pc.index_in(table["quality"], pa.array(QUALITIES))
            quality[rows, columns] = pc.fill_null(ratings, 0).to_numpy()
        at_first = pa.array(first)
        gone = np.any(quality == QUALITIES.index(SUPPRESSED), axis=1)
        notes = table["note"].combine_chunks().take(at_first)
        return cls(
            names=names,
            classes=tuple(order),
            labels=labels,
            prevalence=matrix("prevalence"),
            lower=matrix("lower"),
            upper=matrix("upper"),
            se=matrix("se"),
            n_nodes=of_community("n_nodes", np.int64, 0),
            n_labelled=of_community("n_labelled", np.int64, 0),
            n_estimated=of_community("n_estimated", np.int64, 0),
            notes=pc.if_else(pa.array(gone), pa.scalar(None, notes.type), notes),
            quality=quality,
        )

    @cached_property
    def ranked(self) -> NDArray[np.int64]:
        """Communities by falling lower end of the last class's interval.

        Without intervals the order is by prevalence, shrunk towards the mean over all
        members. Of equals the larger community comes first; communities without an
        interval come later, and those without a prevalence last.
        """
        if not len(self.names) or not self.classes:
            return np.arange(len(self.names))
        p, n = self.prevalence[:, -1], self.n_nodes
        known = ~np.isnan(p) & (n > 0)
        mean = float(np.average(p[known], weights=n[known])) if known.any() else 0.0
        shrunk = np.nan_to_num((n * p + SHRINKAGE * mean) / (n + SHRINKAGE), nan=-1.0)
        lower = np.nan_to_num(self.lower[:, -1], nan=-1.0)
        return np.lexsort((np.arange(len(p)), -n, -shrunk, -lower))

    @cached_property
    def suppressed(self) -> NDArray[np.bool_]:
        """Communities that the table rates so: their values are shown nowhere, (K,)."""
        return np.asarray(np.any(self.quality == QUALITIES.index(SUPPRESSED), axis=1))

    @property
    def has_intervals(self) -> bool:
        """Whether any community has an interval."""
        return bool(np.any(~np.isnan(self.lower)))

    def estimates(self) -> tuple[Floats, Floats, Floats]:
        """Prevalence and the ends of the intervals, shape (K, C) each."""
        return self.prevalence, self.lower, self.upper

    def texts(self, chosen: NDArray[np.int64]) -> pa.Array:
        """Names of the chosen communities as ids of a table: int64 or string."""
        names = self.names.take(pa.array(chosen))
        if pa.types.is_int64(names.type):
            return names
        kind = pa.int64() if pa.types.is_integer(names.type) else pa.string()
        return names.cast(kind)

    def name(self, community: int, limit: int = NAME_LIMIT) -> str:
        """A community's name on one line, without control characters."""
        return plain(str(self.names[community].as_py()), limit)


def _encode(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """Distinct values in order of first appearance, and the code of each row."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
