"""Short names of array types, for signatures, and the offsets of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Bools",
    "Bytes",
    "Floats",
    "Floats32",
    "Ints",
    "Ints32",
    "Words",
    "offsets_of",
    "slices",
]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


def offsets_of(sizes: Any) -> Ints:
    """Where each of some consecutive parts begins, then where the last one ends.

    Examples
    --------
    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def slices(count: int, size: int) -> list[slice]:
    """Consecutive blocks of `size` rows; the last one may go beyond `count`.

    Examples
    --------
    >>> slices(5, 3)
    [slice(0, 3, None), slice(3, 6, None)]
    """
    return [slice(first, first + size) for first in range(0, count, size)]
