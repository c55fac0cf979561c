"""Class prevalence of every community of a very large graph, on Dask.

The line as functions, each one stage on a run directory: `prepare`, `embed`,
`fit_readout`, `quantify_communities`, `publish` (the names `quantify` and `report`
belong to subpackages). `run_stages` does all of them and repairs what is damaged;
`read_published` reads the results.
"""

from __future__ import annotations

from typing import Any

from xnq_dist._version import __version__ as __version__

__all__ = [
    "embed",
    "fit_readout",
    "open_run",
    "prepare",
    "publish",
    "quantify_communities",
    "read_published",
    "run_stages",
]


def __getattr__(name: str) -> Any:
    # The line pulls in Dask, numba and scikit-learn: only when it is used.
    if name in __all__:
        from xnq_dist import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'xnq_dist' has no attribute {name!r}")
