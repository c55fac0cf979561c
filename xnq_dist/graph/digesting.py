"""A 128-bit hash of each row of a batch, from the values as they are read, and its sum.

The definition must not change, because sums are stored. Each row has two 64-bit words
that start as `START`. A value is folded in as the tag of its type, then its words:

    a = (a ^ word) * M0;  a ^= a >> 32
    b = (b + word) * M1;  b ^= b >> 29

An integer is one word (two's complement), a boolean 0 or 1, a float64 its bits. Text
is the number of its UTF-8 bytes, then the bytes as little-endian words of eight, the
last one padded with zeros. A vector of float32 is its length, then the bits of each
value; if float64 values differ from their float32 ones, a vector of the differences
follows. Each feature column of text follows its row's vector of numbers: whether there
is a value, then the text. At the end each word is mixed by the splitmix64 finaliser,
and ``b << 64 | a`` of all rows are added up modulo 2^128. The sum does not depend on
the order of rows or on batches; it does depend on how often a row occurs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Bytes, Floats32, Ints, Words
from xnq_dist.core.random_bits import mix
from xnq_dist.core.settings import ColumnSettings, Missing
from xnq_dist.graph.edges import weights_of
from xnq_dist.graph.encoding import exact_numbers, needs_encoding
from xnq_dist.graph.feature_types import kind_of
from xnq_dist.graph.features import FeatureColumns, side_by_side
from xnq_dist.graph.ids import text_of
from xnq_dist.graph.labels import label_weights, plain_labels, role_codes
from xnq_dist.graph.scaling import Matrix
from xnq_dist.graph.tables import Batch, Table, ids_of

__all__ = ["batch_total", "check_types"]

START = (0x243F6A8885A308D3, 0x13198A2E03707344)
M0, M1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
INTEGER, BOOLEAN, TEXT, DOUBLE, VECTOR = 1, 2, 3, 4, 5
"""Tags of the types; part of the definition of a digest."""


def check_types(table: Table, kind: str, columns: tuple[str, ...]) -> None:
    """Check the types of feature columns; raise the same `InputError` as reading."""
    if kind == "vectors":
        FeatureColumns(table, columns[1])
    elif kind == "numbers" and len(columns) > 1:
        FeatureColumns(table, list(columns[1:]))


def batch_total(
    batch: Batch, kind: str, columns: tuple[str, ...], missing: Missing = "auto"
) -> tuple[int, int, bool]:
    """Rows of a batch in the digest, the sum of their hashes, and `Digest.encoded`.

    `missing`: values of labels that mean unlabelled.
    """
    if kind in _LABEL_KINDS:
        rows, kept = _LABEL_KINDS[kind](batch, columns, missing)
    else:
        rows, kept = _KINDS[kind](batch, columns)
    if kept is not None:
        rows = np.ascontiguousarray(rows[:, kept])
    encoded = kind in ("vectors", "numbers") and any(
        needs_encoding(batch.column(name)) for name in columns[1:]
    )
    return rows.shape[1], total(rows), encoded


Folded = tuple[Words, Bools | None]
"""The rows' words, and which rows belong to the digest; None: all."""


def _ids(batch: Batch, columns: tuple[str, ...]) -> Folded:
    rows = new_rows(batch.rows.num_rows)
    for column in columns:
        _fold(rows, ids_of(batch, column))
    return rows, None


def _features(batch: Batch, columns: tuple[str, ...]) -> Folded:
    rows, _ = _ids(batch, columns[:1])
    values = [batch.column(name) for name in columns[1:]]
    texts = [value for value in values if kind_of(value.type) == "text"]
    values = [value for value in values if kind_of(value.type) != "text"]
    flat: Matrix
    if len(values) == 1 and pt.is_nested(values[0].type):
        column = values[0]
        if pt.is_fixed_size_list(column.type) and not column.null_count:
            lengths = np.full(len(column), column.type.list_size)
        else:
            filled = pc.fill_null(pc.list_value_length(column), 0)
            lengths = filled.to_numpy(zero_copy_only=False)
        flat = exact_numbers(column.flatten())
    else:
        lengths = np.full(batch.rows.num_rows, len(values))
        each = [exact_numbers(column) for column in values]
        flat = side_by_side(each).reshape(-1) if each else np.empty(0, np.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    gaps = np.isnan(flat)
    if gaps.any():
        flat = np.where(gaps, flat.dtype.type(np.nan), flat)  # one NaN for all
    with np.errstate(over="ignore", invalid="ignore"):
        values32 = flat.astype(np.float32)
        beyond = (flat - values32).astype(np.float32)
    fold_vectors(rows, VECTOR, offsets, values32.view(np.uint32))
    _fold_beyond(rows, offsets, np.where(gaps, np.float32(0), beyond))
    for text in texts:
        _fold(rows, text.is_valid())
        _fold(rows, text.cast(pa.string()).fill_null(""))
    return rows, None


def _fold_beyond(rows: Words, offsets: Ints, beyond: Floats32) -> None:
    """Fold the rounding errors of float32 into the rows that have any."""
    sizes = np.diff(offsets)
    row = np.repeat(np.arange(len(sizes)), sizes)
    found = np.zeros(len(sizes), bool)
    found[row[beyond != 0]] = True
    if found.any():
        part = np.ascontiguousarray(rows[:, found])
        starts = np.concatenate([[0], np.cumsum(sizes[found])]).astype(np.int64)
        fold_vectors(part, VECTOR, starts, beyond[found[row]].view(np.uint32))
        rows[:, found] = part


def _labels(batch: Batch, columns: tuple[str, ...], missing: Missing) -> Folded:
    rows, _ = _ids(batch, columns[:1])
    values = plain_labels(batch, columns[1], missing)
    return _known(rows, values)


def _roles(batch: Batch, columns: tuple[str, ...], missing: Missing) -> Folded:
    rows, _ = _ids(batch, columns[:1])
    labels = plain_labels(batch, columns[1], missing)
    codes = role_codes(batch, columns[2])
    fold_words(rows, INTEGER, codes.astype(np.int64).view(np.uint64))
    return rows, (codes != -1) & labels.is_valid().to_numpy(zero_copy_only=False)


def _label_weights(batch: Batch, columns: tuple[str, ...], missing: Missing) -> Folded:
    rows, _ = _ids(batch, columns[:1])
    labels = plain_labels(batch, columns[1], missing)
    weights = label_weights(batch, columns[2], labels)
    fold_words(rows, DOUBLE, weights.view(np.uint64))
    return rows, labels.is_valid().to_numpy(zero_copy_only=False)


def _edges(batch: Batch, columns: tuple[str, ...]) -> Folded:
    rows, _ = _ids(batch, columns[:2])
    if len(columns) > 2:
        source, target, weight = columns
        named = ColumnSettings(src=source, dst=target, weight=weight)
        fold_words(rows, DOUBLE, weights_of(batch, named).view(np.uint64))
    return rows, None


def _column(batch: Batch, columns: tuple[str, ...]) -> Folded:
    kept = batch.rows.filter(pc.is_valid(batch.rows.column(columns[1])))
    return _ids(Batch(kept, batch.file, batch.first), columns)


_KINDS: dict[str, Callable[[Batch, tuple[str, ...]], Folded]] = {
    "ids": _ids,
    "vectors": _features,
    "numbers": _features,
    "edges": _edges,
    "members": _ids,
    "column": _column,
}
_LABEL_KINDS: dict[str, Callable[[Batch, tuple[str, ...], Missing], Folded]] = {
    "labels": _labels,
    "roles": _roles,
    "label_weights": _label_weights,
}


def _known(rows: Words, values: pa.Array) -> Folded:
    """Fold values; rows with nulls do not belong to the digest."""
    known = values.is_valid().to_numpy(zero_copy_only=False)
    rows = np.ascontiguousarray(rows[:, known])
    _fold(rows, values.drop_null())
    return rows, None


def _fold(rows: Words, values: pa.Array) -> None:
    """Fold one column without nulls: int64, bool or string."""
    if pt.is_integer(values.type):
        fold_words(rows, INTEGER, values.to_numpy().view(np.uint64))
    elif pt.is_boolean(values.type):
        bits = values.to_numpy(zero_copy_only=False).astype(np.uint64)
        fold_words(rows, BOOLEAN, bits)
    else:
        fold_text(rows, TEXT, *text_of(values))


def new_rows(n: int) -> Words:
    """The words of n rows with nothing folded in, shape (2, n)."""
    words = np.empty((2, n), np.uint64)
    words[0], words[1] = START
    return words


@njit(cache=True, inline="always")
def _first(a: np.uint64, word: np.uint64) -> np.uint64:
    a = (a ^ word) * M0
    return a ^ (a >> np.uint64(32))


@njit(cache=True, inline="always")
def _second(b: np.uint64, word: np.uint64) -> np.uint64:
    b = (b + word) * M1
    return b ^ (b >> np.uint64(29))


@njit(cache=True, nogil=True)
def fold_words(rows: Words, tag: int, words: Words) -> None:
    """Fold a value of one word into each row."""
    kind = np.uint64(tag)
    for i in range(words.shape[0]):
        rows[0, i] = _first(_first(rows[0, i], kind), words[i])
        rows[1, i] = _second(_second(rows[1, i], kind), words[i])


@njit(cache=True, nogil=True)
def fold_text(rows: Words, tag: int, offsets: Ints, data: Bytes) -> None:
    """Fold a string into each row: its bytes in `data`, between two offsets."""
    kind = np.uint64(tag)
    for i in range(offsets.shape[0] - 1):
        first, last = offsets[i], offsets[i + 1]
        size = np.uint64(last - first)
        a = _first(_first(rows[0, i], kind), size)
        b = _second(_second(rows[1, i], kind), size)
        at = first
        while at < last:
            word = np.uint64(0)
            for j in range(min(8, last - at)):
                word |= np.uint64(data[np.uint64(at + j)]) << np.uint64(8 * j)
            a, b = _first(a, word), _second(b, word)
            at += 8
        rows[0, i], rows[1, i] = a, b


@njit(cache=True, nogil=True)
def fold_vectors(
    rows: Words, tag: int, offsets: Ints, bits: NDArray[np.uint32]
) -> None:
    """Fold a vector into each row; `offsets` as for text."""
    kind = np.uint64(tag)
    for i in range(offsets.shape[0] - 1):
        first, last = offsets[i], offsets[i + 1]
        size = np.uint64(last - first)
        a = _first(_first(rows[0, i], kind), size)
        b = _second(_second(rows[1, i], kind), size)
        for at in range(first, last):
            word = np.uint64(bits[at])
            a, b = _first(a, word), _second(b, word)
        rows[0, i], rows[1, i] = a, b


@njit(cache=True, nogil=True)
def _total(rows: Words) -> tuple[np.uint64, np.uint64]:
    low, high = np.uint64(0), np.uint64(0)
    for i in range(rows.shape[1]):
        a, b = mix(rows[0, i]), mix(rows[1, i])
        low += a
        high += b
        if low < a:
            high += np.uint64(1)
    return low, high


def total(rows: Words) -> int:
    """The sum of the rows' hashes modulo 2^128."""
    low, high = _total(rows)
    return (int(high) << 64) | int(low)
