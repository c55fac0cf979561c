"""What a worker imports and loads before it joins, so that no task waits for it.

Named to Dask as a preload module: imported in the process of each worker, before that
process has a thread of another kind, while the client still reads tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import sklearn.ensemble  # noqa: F401

import xnq_dist.quantify.batches
import xnq_dist.readout.plus.learning
import xnq_dist.reservoir.embed
import xnq_dist.reservoir.kernels  # noqa: F401
from xnq_dist.readout.plus.trees import add_trees

__all__ = ["dask_setup"]


def dask_setup(_worker: Any) -> None:
    """Load what is loaded at a first use: Arrow's look at pandas, Numba's run time."""
    pa.array(np.zeros(1))
    none = np.zeros(0, np.int32)
    rows = np.zeros((0, 1))
    add_trees(
        rows, none.astype(np.int64), none, rows[:, 0], none, none, rows[:, 0], rows
    )
