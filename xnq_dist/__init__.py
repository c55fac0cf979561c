"""Class prevalence of every community of a very large graph, on Dask.

The stages as functions on a run directory: `prepare`, `embed`, `fit_readout`,
`quantify_communities`, `publish` (the names `quantify` and `report` belong to
subpackages). `run_stages` does those that are due and repairs what is damaged;
`requantify` takes new labels or memberships; `read_published` reads the results.
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
    "requantify",
    "run_stages",
]

_JOBS = ("requantify", "run_stages")


def __getattr__(name: str) -> Any:
    # The stages import Dask, numba and scikit-learn: only when they are used.
    if name in _JOBS:
        from xnq_dist import jobs

        return getattr(jobs, name)
    if name == "read_published":
        from xnq_dist.core import store

        return store.read_published
    if name in __all__:
        from xnq_dist import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'xnq_dist' has no attribute {name!r}")
