"""Ids, and other keys, of the rows of a table: integers or text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.errors import InputError
from xnq_dist.graph.tables import Batch
from xnq_dist.graph.values import is_text, quoted, whole

__all__ = ["ids_of", "plain_keys"]


def ids_of(batch: Batch, column: str) -> pa.Array:
    """A batch's ids as int64 or string; integers too large for int64 as string.

    Parameters
    ----------
    batch
        Rows with the column.
    column
        Integers, floats that are integers, strings, dates (as text), or dictionaries of
        those.

    Raises
    ------
    InputError
        For another type, or a null (the message names the row).
    """
    keys = plain_keys(batch, column)
    if keys is None:
        raise InputError(
            f"column {quoted(column)} of {batch.file} is {batch.column(column).type}, "
            "not an integer or a string: cast the ids to one of them"
        )
    if keys.null_count:
        at = pc.index(pc.is_null(keys), pa.scalar(True)).as_py()
        raise InputError(
            f"column {quoted(column)} is null in {batch.row(at)}: fill in the id, "
            "every row needs one"
        )
    return keys


def plain_keys(batch: Batch, column: str) -> pa.Array | None:
    """Integers or text in a column as int64 or string; None: it has another type.

    Integers too large for int64, and dates, are text.
    """
    array = batch.column(column)
    if pt.is_floating(array.type):
        return _whole_numbers(array, batch, column)
    if pt.is_integer(array.type) or pt.is_null(array.type):
        return whole(array)
    as_text = is_text(array.type) or pt.is_date32(array.type)
    return array.cast(pa.string()) if as_text else None


def _whole_numbers(array: pa.Array, batch: Batch, column: str) -> pa.Array:
    """Integers that another tool wrote as floats; NaN becomes null."""
    wide = array.cast(pa.float64())
    wide = pc.if_else(pc.is_nan(wide), None, wide)
    exact = pc.and_(pc.equal(pc.floor(wide), wide), pc.less(pc.abs(wide), 2.0**53))
    if pc.all(exact).as_py() is False:
        at = pc.index(exact, pa.scalar(False)).as_py()
        raise InputError(
            f"column {quoted(column)} is {wide[at].as_py()} in {batch.row(at)}, and "
            "ids and labels are integers or text: write the column as one of them"
        )
    return wide.cast(pa.int64())
