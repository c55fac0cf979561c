"""Tables of a graph whose nodes have attributes by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.convert import Converted

__all__ = ["attribute_tables"]

NUMBERS = {bool, int, float}


def attribute_tables(
    ids: pa.Array,
    attributes: Mapping[str, Sequence[Any]],
    ends: tuple[pa.Array, pa.Array],
    weights: Sequence[Any] | None,
    directed: bool,
    left: Sequence[str] = (),
) -> Converted:
    """Tables with one column for each attribute of the nodes.

    Parameters
    ----------
    ids
        Node ids, in the order of the attributes' values.
    attributes
        Values by name; None and NaN are null.
    ends
        Sources and targets of the edges.
    weights
        Weights of the edges, if there are any.
    left
        Names of what was left out already.
    """
    columns: dict[str, Any] = {"node_id": ids}
    left_out, as_text = list(left), []
    for name, values in attributes.items():
        # NaN is the one value that differs from itself.
        values = [None if value != value else value for value in values]
        kinds = {type(value) for value in values if value is not None}
        if str in kinds and kinds <= {str, *NUMBERS} and len(kinds) > 1:
            as_text.append(name)
            values = [None if value is None else str(value) for value in values]
        column = _column(values, kinds)
        if column is None or name in columns:
            left_out.append(name)
        else:
            columns[name] = column
    table: dict[str, Any] = {"src": ends[0], "dst": ends[1]}
    if weights is not None:
        table["weight"] = pa.array(weights, pa.float64())
    notes = []
    if as_text:
        notes.append(f"as text, because some values are text: {', '.join(as_text)}")
    if left_out:
        notes.append(f"left out: {', '.join(left_out)}")
    return Converted(pa.table(columns), pa.table(table), directed, notes=tuple(notes))


def _column(values: list[Any], kinds: set[type]) -> pa.Array | None:
    """Values as one type; None if they are objects, or lists of different lengths."""
    if kinds == {list}:
        width = len(next(value for value in values if value is not None))
        fits = all(
            value is not None and len(value) == width and {*map(type, value)} <= NUMBERS
            for value in values
        )
        if not fits or not width:
            return None
        flat = pa.array(np.array(values, np.float32).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, width)
    if kinds and kinds <= {str, *NUMBERS}:
        double = float in kinds and str not in kinds
        return pa.array(values, pa.float64() if double else None)
    return None
