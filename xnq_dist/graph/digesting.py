"""A 64-bit hash of each row of a batch, and its sum.

The definition must not change, because sums are stored. A row's hash starts at 0. A
column folds in the tag of its type, its words, and their number: a word ``w`` turns
``h`` into the splitmix64 finaliser of ``(h + GAMMA) ^ w``. The word of an integer is
its two's complement, of a boolean 0 or 1, of text the hash of its UTF-8 bytes
(`ids.text_hashes`), of another number the bits of its float64 (one zero, one NaN). A
list has the words of its numbers. The sum modulo 2^64 does not depend on the order of
rows or on batches; it does depend on how often a row occurs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numba import njit

from xnq_dist.core.arrays import Ints, Words, offsets_of
from xnq_dist.core.random_bits import GAMMA, mix
from xnq_dist.core.settings import Missing
from xnq_dist.graph.encoding import exact_numbers, needs_encoding
from xnq_dist.graph.feature_types import kind_of
from xnq_dist.graph.ids import text_hashes, text_of
from xnq_dist.graph.labels import plain_labels
from xnq_dist.graph.tables import Batch, ids_of

__all__ = ["batch_total", "words_of"]

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
    """Rows of a batch in the digest, the sum of their hashes, and ``encoded``.

    The parameters are the fields of an `Aspect`.
    """
    if known is not None:
        found = batch.column(known)
        if ("columns.label", known) in columns:
            found = plain_labels(batch, known, missing)
        rows = batch.rows.select([name for _, name in columns])
        batch = Batch(rows.filter(found.is_valid()), batch.file, batch.first)
    hashes = np.zeros(batch.rows.num_rows, np.uint64)
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
        fold(hashes, *words_of(values, exact=setting not in VALUES))
    return len(hashes), int(hashes.sum()), encoded


def words_of(values: pa.Array, exact: bool = False) -> tuple[int, Ints, Words]:
    """Tag of the type, and the words of each row between two offsets.

    `exact`: integers and booleans are not read as numbers.
    """
    if pt.is_nested(values.type):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        return LIST, offsets_of(sizes), _bits(values.flatten())
    if kind_of(values.type) == "text":
        text = values.cast(pa.string()).fill_null("")
        words = text_hashes(*text_of(text)).view(np.uint64)
        words[values.is_null().to_numpy(zero_copy_only=False)] = 0
        tag = TEXT
    elif not exact:
        tag, words = NUMBER, _bits(values)
    else:
        tag = BOOLEAN if pt.is_boolean(values.type) else INTEGER
        integers = values.cast(pa.int8()) if tag == BOOLEAN else values
        words = integers.to_numpy().astype(np.int64).view(np.uint64)
    return tag, np.arange(len(words) + 1), words


def _bits(values: pa.Array) -> Words:
    """Bits of the values as float64, with one zero and one NaN."""
    numbers = exact_numbers(values).astype(np.float64) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


@njit(cache=True, nogil=True)
def fold(hashes: Words, tag: int, offsets: Ints, words: Words) -> None:
    """Fold a column into the hash of each row: its words between two offsets."""
    for i in range(hashes.shape[0]):
        h = mix((hashes[i] + GAMMA) ^ np.uint64(tag))
        for at in range(offsets[i], offsets[i + 1]):
            h = mix((h + GAMMA) ^ words[at])
        size = np.uint64(offsets[i + 1] - offsets[i])
        hashes[i] = mix((h + GAMMA) ^ size)
