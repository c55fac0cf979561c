"""Labelled rows drawn anew, for all communities at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.quantify.recalibrations import OPEN
from xnq_dist.quantify.resampling import draw_rows

__all__ = ["draw_again"]

Floats = NDArray[np.float64]

REFERENCE = 1 << 40
"""Keys of the streams that draw labelled nodes: beyond any community's number."""


def draw_again(
    posteriors: Floats, labels: NDArray[np.int32], replicate: int, seed: int
) -> tuple[Floats, NDArray[np.int32]]:
    """Labelled rows drawn anew within each class.

    A class of m rows gives m / `OPEN`: labels of neighbours are not independent. One
    row in m + 1 may be any: what a class was not seen to look like it may look like
    still.
    """
    sizes = np.bincount(labels)
    chosen = []
    for code in np.flatnonzero(sizes).tolist():
        own, size = np.flatnonzero(labels == code), int(sizes[code])
        count = max(round(size / OPEN), 1)
        key = REFERENCE + code * 2
        places = draw_rows(seed, key, replicate, size + 1, count)
        others = draw_rows(seed, key + 1, replicate, len(labels), count)
        rows = np.append(own, -1)[places]
        chosen.append(np.where(rows < 0, others, rows))
    codes = np.repeat(np.flatnonzero(sizes), [len(rows) for rows in chosen])
    return posteriors[np.concatenate(chosen)], codes.astype(np.int32)
