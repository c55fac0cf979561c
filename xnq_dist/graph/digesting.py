"""A 128-bit hash of each row of a batch, and its sum.

The definition must not change, because sums are stored. Each row has two 64-bit words
that start as `START`. A value is folded in as the tag of its type, then its words:

    a = (a ^ word) * M0;  a ^= a >> 32
    b = (b + word) * M1;  b ^= b >> 29

Ids and labels are integers (one word, two's complement), booleans (0 or 1) or text.
Text is the number of its UTF-8 bytes, then the bytes as little-endian words of eight,
the last one padded with zeros. Any other value is a number, as the bits of its float64
(one zero; no value is NaN), a list of numbers as its length and their bits, or text
after the boolean whether there is any. At the end each word is mixed by the splitmix64
finaliser, and ``b << 64 | a`` of all rows are added up modulo 2^128. The sum does not
depend on the order of rows or on batches; it does depend on how often a row occurs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numba import njit

from xnq_dist.core.arrays import Bytes, Ints, Words, offsets_of
from xnq_dist.core.random_bits import mix
from xnq_dist.core.settings import Missing
from xnq_dist.graph.encoding import exact_numbers, needs_encoding
from xnq_dist.graph.feature_types import kind_of
from xnq_dist.graph.ids import text_of
from xnq_dist.graph.labels import plain_labels
from xnq_dist.graph.tables import Batch, ids_of

__all__ = ["batch_total"]

START = (0x243F6A8885A308D3, 0x13198A2E03707344)
M0, M1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
INTEGER, BOOLEAN, TEXT, NUMBER, LIST = 1, 2, 3, 4, 5
"""Tags of the types; part of the definition of a digest."""


FEATURES = ("columns.features", "columns.scores")
VALUES = (*FEATURES, "columns.role", "columns.weight", "columns.label_weight")
"""Settings of columns that are neither ids nor labels."""


def batch_total(
    batch: Batch,
    columns: Sequence[tuple[str, str]],
    known: str | None = None,
    missing: Missing = (),
) -> tuple[int, int, bool]:
    """Rows of a batch in the digest, the sum of their hashes, and `Digest.encoded`.

    The parameters are the fields of an `Aspect`.
    """
    if known is not None:
        found = batch.column(known)
        if ("columns.label", known) in columns:
            found = plain_labels(batch, known, missing)
        rows = batch.rows.select([name for _, name in columns])
        batch = Batch(rows.filter(found.is_valid()), batch.file, batch.first)
    words = new_rows(batch.rows.num_rows)
    encoded = False
    for setting, name in columns:
        if setting in VALUES:
            values = batch.column(name)
        elif setting == "columns.label":
            values = plain_labels(batch, name, ())
        else:
            values = ids_of(batch, name)
        if setting in FEATURES:
            encoded = encoded or needs_encoding(values)
        _fold(words, values, setting not in VALUES)
    return words.shape[1], total(words), encoded


def _fold(rows: Words, values: pa.Array, plain: bool) -> None:
    """Fold one column; `plain`: int64, bool or string without nulls."""
    if pt.is_nested(values.type):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        fold_lists(rows, LIST, offsets_of(sizes), _bits(values.flatten()))
    elif kind_of(values.type) == "text":
        if not plain:
            _fold(rows, values.is_valid(), True)
        text = values.cast(pa.string()).fill_null("")
        fold_text(rows, TEXT, *text_of(text))
    elif not plain:
        fold_words(rows, NUMBER, _bits(values))
    elif pt.is_boolean(values.type):
        bits = values.to_numpy(zero_copy_only=False).astype(np.uint64)
        fold_words(rows, BOOLEAN, bits)
    else:
        fold_words(rows, INTEGER, values.to_numpy().view(np.uint64))


def _bits(values: pa.Array) -> Words:
    """Bits of the values as float64, with one zero and one NaN."""
    numbers = exact_numbers(values).astype(np.float64) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


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
    for i in range(words.shape[0]):
        rows[0, i] = _first(_first(rows[0, i], np.uint64(tag)), words[i])
        rows[1, i] = _second(_second(rows[1, i], np.uint64(tag)), words[i])


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
def fold_lists(rows: Words, tag: int, offsets: Ints, words: Words) -> None:
    """Fold a list of words into each row; `offsets` as for text."""
    kind = np.uint64(tag)
    for i in range(offsets.shape[0] - 1):
        first, last = offsets[i], offsets[i + 1]
        size = np.uint64(last - first)
        a = _first(_first(rows[0, i], kind), size)
        b = _second(_second(rows[1, i], kind), size)
        for at in range(first, last):
            a, b = _first(a, words[at]), _second(b, words[at])
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
