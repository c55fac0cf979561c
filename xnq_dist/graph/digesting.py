"""A 64-bit hash of each row of a batch, to be summed.

The definition must not change, because sums are stored. A row's hash starts at 0. A
column folds in the tag of its type, its words, and their number: a word ``w`` turns
``h`` into the splitmix64 finaliser of ``(h + GAMMA) ^ w``. The word of text is the hash
of its UTF-8 bytes (`ids.text_hashes`), of a float the bits of its float64 (one zero,
one NaN), of another value its integer, of null `NULL`. A list has the words of its
values. The sum modulo 2^64 does not depend on the order of rows or on batches; it does
depend on how often a row occurs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.arrays import Ints, Words, offsets_of
from xnq_dist.core.kernel import kernel
from xnq_dist.core.random_bits import GAMMA, mix
from xnq_dist.core.sections import Missing
from xnq_dist.graph.ids import text_hashes, text_of
from xnq_dist.graph.keys import ids_of
from xnq_dist.graph.labels import plain_labels
from xnq_dist.graph.profile.headers import PLACE
from xnq_dist.graph.tables import Batch
from xnq_dist.graph.values import is_text

__all__ = ["row_hashes", "words_of"]

INTEGER, BOOLEAN, TEXT, FLOAT, LIST = 1, 2, 3, 4, 5
"""Tags of the types; part of the definition of a digest."""
NULL = np.uint64(0x5EED)
RAW = ("features", "scores", "role", "weight", "label_weight")
"""Settings of columns that are neither ids nor labels."""


def row_hashes(
    batch: Batch, columns: Sequence[tuple[str, str]], missing: Missing
) -> Words:
    """The hash of each row of a batch that is in the digest.

    Rows without a label, or a name in a column of communities, are left out. `columns`
    has the setting and the name of each; `missing`: `labels.missing`.
    """
    for setting, name in columns:
        if setting in ("columns.label", PLACE):
            found = batch.column(name)
            if setting != PLACE:
                found = plain_labels(batch, name, missing)
            rows = batch.rows.filter(found.is_valid())
            batch = Batch(rows, batch.file, batch.first)
    hashes = np.zeros(batch.rows.num_rows, np.uint64)
    for setting, name in columns:
        if setting == "columns.label":
            values = plain_labels(batch, name, ())
        elif setting.removeprefix("columns.") in RAW:
            values = batch.column(name)
        else:
            values = ids_of(batch, name)
        fold(hashes, *words_of(values))
    return hashes


def words_of(values: pa.Array) -> tuple[int, Ints, Words]:
    """Tag of the type, and the words of each row between two offsets."""
    kind = values.type
    if pt.is_nested(kind):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        return LIST, offsets_of(sizes), words_of(values.flatten())[2]
    if is_text(kind):
        text = values.cast(pa.string()).fill_null("")
        tag, words = TEXT, text_hashes(*text_of(text)).view(np.uint64)
    elif pt.is_floating(kind) or pt.is_decimal(kind):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy() + 0.0
        numbers[np.isnan(numbers)] = np.nan
        tag, words = FLOAT, numbers.view(np.uint64)
    else:
        tag = BOOLEAN if pt.is_boolean(kind) else INTEGER
        integers = values.cast(pa.int32()) if pt.is_date32(kind) else values
        integers = integers.cast(pa.int64(), safe=False).fill_null(0)
        words = integers.to_numpy().view(np.uint64)
    words = words.copy()  # writable with nulls or without: one kernel
    if values.null_count:
        words[values.is_null().to_numpy(zero_copy_only=False)] = NULL
    return tag, np.arange(len(words) + 1), words


@kernel
def fold(hashes: Words, tag: int, offsets: Ints, words: Words) -> None:
    """Fold a column into the hash of each row: its words between two offsets."""
    for i in range(hashes.shape[0]):
        h = mix((hashes[i] + GAMMA) ^ np.uint64(tag))
        for at in range(offsets[i], offsets[i + 1]):
            h = mix((h + GAMMA) ^ words[at])
        size = np.uint64(offsets[i + 1] - offsets[i])
        hashes[i] = mix((h + GAMMA) ^ size)
