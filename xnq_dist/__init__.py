"""Class prevalence of every community of a very large graph, on Dask.

The line as functions, each one stage on a run directory: `prepare`, `embed`,
`fit_readout`, `quantify`, `report`.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["embed", "fit_readout", "prepare", "quantify", "report"]


def __getattr__(name: str) -> Any:
    # The line pulls in Dask, numba and scikit-learn: only when it is used.
    if name in __all__:
        from xnq_dist import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'xnq_dist' has no attribute {name!r}")
