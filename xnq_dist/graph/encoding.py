"""How feature columns of any type become numbers, learnt from all nodes.

- Numbers and booleans without a value are filled with the median of the values that are
  present; a column ``NAME is missing`` of 0 and 1 marks the filled rows.
- Dates and timestamps become days since 1970-01-01.
- Text becomes one column of 0 and 1 for each of its values, or of the `LEVELS` most
  frequent ones, and one for no value. Text with a different value for almost every node
  has no column.

All of it is learnt from a sample of nodes, chosen by a hash of the canonical index (of
all nodes, if there are few). So it does not depend on the order of rows, on files or on
partitions. Labels are not used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.arrays import Bools, Floats, Ints, Words
from xnq_dist.core.random_bits import mix
from xnq_dist.graph.feature_types import LEVELS
from xnq_dist.graph.values import divided

__all__ = ["Source", "encoded", "learn_encoding", "numbers_of"]

log = logging.getLogger(__name__)

SAMPLE_BYTES = 1 << 25
"""Bytes of the sample, as float64."""
SAMPLE_ROWS = (256, 1 << 16)
"""Minimum and maximum rows of the sample, if there are as many nodes."""

Values: TypeAlias = Any
"""A source's rows: numbers, shape (n, F), with NaN for no value; or text."""


def numbers_of(array: pa.Array) -> Floats:
    """Numbers, booleans and days since 1970-01-01 as float64; null is NaN."""
    if pt.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    if pt.is_timestamp(array.type):
        array = divided(array, 86_400)
    numbers: Floats = array.cast(pa.float64(), safe=False).to_numpy(False)
    return numbers


@dataclass(frozen=True)
class Source:
    """One feature column of the table, and the columns that it becomes."""

    names: tuple[str, ...]
    """Of the produced columns. A last one may mark rows without a value (of a list:
    without one of them)."""
    fills: Floats | None = None
    """Values for gaps in numbers, shape (F,); None: the source is text."""
    levels: tuple[bytes, ...] = ()
    """Values of text, each with a column of its own."""

    def matrix(self, values: Values) -> Floats:
        """The source's produced columns, without NaN."""
        width = len(self.names)
        if self.fills is None:
            # Null has the column after those of the values; -1 is none.
            known = pa.array([*self.levels, None], pa.binary())
            codes = pc.index_in(values.cast(pa.binary()), known).fill_null(-1)
            found = codes.to_numpy()[:, None] == np.arange(width)
        else:
            gaps = np.isnan(values)
            parts = np.where(gaps, self.fills, values), gaps.any(axis=1, keepdims=True)
            found = np.concatenate(parts, axis=1)[:, :width]
        return np.asarray(found, np.float64)


def encoded(sources: Sequence[Source], values: Sequence[Values]) -> Floats:
    """The columns that the sources produce for some rows, shape (n, F), without NaN."""
    pairs = zip(sources, values, strict=True)
    parts = [source.matrix(each) for source, each in pairs if source.names]
    # Without any column, the graph alone is used.
    parts = parts or [np.ones((len(values[0]), 1))]
    return np.concatenate(parts, axis=1)


def learn_encoding(
    batches: Iterable[tuple[Ints, Sequence[Values]]],
    named: Mapping[str, str],
    nodes: int,
) -> tuple[list[Source], Floats]:
    """Learn the encoding of the sources; also returns what a sample of nodes becomes.

    Parameters
    ----------
    batches
        Canonical indices, and the values of each source, of all nodes in any order.
    named
        Kind of each source by name: a kind of `kind_of`, or ``list``.
    nodes
        Number of all nodes.

    Returns
    -------
    The sources, and their columns for the nodes of the sample, in the order of the
    nodes' hashes, shape (n, F).
    """
    hashes: list[Words] = []
    parts: list[list[Values]] = []
    for index, values in batches:
        numbers: Any = index.astype(np.uint64)
        found = np.asarray(mix.py_func(numbers))
        chosen = found <= _largest_hash(values, nodes)
        hashes.append(found[chosen])
        parts.append([_rows(each, chosen) for each in values])
    sources, sample = [], []
    for (name, kind), some in zip(named.items(), zip(*parts, strict=True), strict=True):
        if kind == "text":
            sample.append(pa.concat_arrays(some))
            sources.append(_text(name, sample[-1], nodes))
        else:
            sample.append(np.concatenate(some))
            sources.append(_numbers(name, kind, sample[-1]))
    order = np.argsort(np.concatenate(hashes))
    return sources, encoded(sources, sample)[order]


def _largest_hash(values: Sequence[Values], nodes: int) -> np.uint64:
    """The largest hash of a node in the sample; the node 0 has the smallest."""
    widths = (LEVELS if isinstance(v, pa.Array) else v.shape[1] for v in values)
    width = sum(1 + each for each in widths)
    rows = int(np.clip(SAMPLE_BYTES // (8 * width), *SAMPLE_ROWS))
    return np.uint64(min(int(rows / nodes * 2**64), 2**64 - 1))


def _rows(values: Values, chosen: Bools) -> Values:
    is_text = isinstance(values, pa.Array)
    return values.filter(chosen) if is_text else values[chosen]


def _numbers(name: str, kind: str, sample: Floats) -> Source:
    """A source of numbers: gaps are filled with medians, 0 if there is no value."""
    gaps = np.isnan(sample)
    fills = np.zeros(sample.shape[1])
    for at in np.flatnonzero(~gaps.all(axis=0)).tolist():
        fills[at] = np.nanmedian(sample[:, at])
    places = range(len(fills)) if kind == "list" else ()
    names = [f"{name}[{at}]" for at in places] or [name]
    return Source((*names, *_mark(name, gaps.any())), fills)


def _text(name: str, sample: pa.Array, nodes: int) -> Source:
    """A source of text: its levels, or left out if it has too many values."""
    present = sample.drop_null().cast(pa.binary())
    counted = present.value_counts().to_pylist()
    # The values that so many rows have if each value has two rows of the table: with
    # more it is a name or an id, not a category.
    names = len(present) * (1 - len(sample) / nodes / 2)
    if len(counted) > max(LEVELS, names):
        log.warning(
            "feature column %r has a different value for almost every node and is "
            "left out: leave it out of columns.features",
            name,
        )
        return Source(())
    counts = {each["values"]: each["counts"] for each in counted}
    levels = sorted(counts, key=lambda value: (-counts[value], value))[:LEVELS]
    columns = [f"{name} = {each.decode(errors='replace')}" for each in levels]
    mark = _mark(name, len(present) < len(sample))
    return Source((*columns, *mark), levels=tuple(levels))


def _mark(name: str, missing: bool | np.bool_) -> list[str]:
    return [f"{name} is missing"] if missing else []
