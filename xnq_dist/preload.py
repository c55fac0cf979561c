"""Imports of a worker before it joins the cluster, so that no task waits for them.

Dask imports this preload module in each worker process, before that process starts
other threads and while the client still reads tables.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa

import xnq_dist.quantify.batches
import xnq_dist.readout.plus.learning
import xnq_dist.reservoir.embed
import xnq_dist.reservoir.kernels  # noqa: F401
from xnq_dist.core.terminal import delay_end
from xnq_dist.readout.plus.trees import add_trees

__all__ = ["dask_setup"]


def dask_setup(_worker: Any) -> None:
    """Trigger what would load on first use: Arrow's pandas check, Numba's runtime."""
    delay_end()
    pa.array(np.zeros(1))
    rows, places = np.zeros((0, 1, 1)), np.zeros((0, 1, 1), np.int32)
    inputs = rows.astype(np.float32)
    add_trees(inputs[:, 0], rows, places, places, inputs, rows[:, 0])
    # Imports stay until the end; collections need not look at them.
    gc.freeze()
