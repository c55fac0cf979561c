"""Disclosure: communities of fewer than `disclosure.min_size` members are suppressed.

What follows from several published results is not looked for, such as the difference of
two communities that share all but a few members: see docs/concepts/disclosure.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools
from xnq_dist.core.settings import Settings

__all__ = ["too_small"]


def too_small(arrays: Mapping[str, NDArray[Any]], settings: Settings) -> Bools:
    """Communities that are suppressed, shape (S,), from `prevalence_arrays`.

    Members are those that the estimate is about. Where nothing is estimated, the note
    has another reason.
    """
    about = "n_estimated" if settings.labelled == "exclude" else "n_nodes"
    small = arrays[about] < settings.disclosure.min_size
    estimated = ~np.isnan(arrays["prevalence"]).all(axis=1)
    return np.asarray(small & estimated)
