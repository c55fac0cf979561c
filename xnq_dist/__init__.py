"""Class prevalence of every community of a very large graph, on Dask.

`estimate_prevalence` takes data frames, arrays and graph objects; `NetworkQuantifier`
is an estimator in scikit-learn's manner. For tables that do not fit in memory:

Each stage is a function on a run directory: `prepare`, `embed`, `fit_readout`,
`posteriors`, `quantify_communities` (`pipeline.quantify`; the name `quantify` belongs
to a subpackage), `publish`. `run_stages` does the stages that are due and repairs
damaged files; `requantify` takes new labels or memberships; `read_published` reads the
results. `Sources` names the tables, `load_settings` makes the settings, `open_cluster`
and `connect` provide the workers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from xnq_dist._version import __version__ as __version__

if TYPE_CHECKING:
    from xnq_dist.api.estimate import estimate_prevalence
    from xnq_dist.api.quantifier import NetworkQuantifier
    from xnq_dist.api.result import PrevalenceResult
    from xnq_dist.core.cluster import connect, open_cluster
    from xnq_dist.core.config import load_settings
    from xnq_dist.core.settings import Settings
    from xnq_dist.core.store import RunDirectory, read_published
    from xnq_dist.graph.generate import load_demo
    from xnq_dist.graph.sources import Sources
    from xnq_dist.jobs import requantify, run_stages
    from xnq_dist.pipeline import (
        embed,
        fit_readout,
        open_run,
        posteriors,
        prepare,
        publish,
    )
    from xnq_dist.pipeline import quantify as quantify_communities

__all__ = [
    "NetworkQuantifier",
    "PrevalenceResult",
    "RunDirectory",
    "Settings",
    "Sources",
    "connect",
    "embed",
    "estimate_prevalence",
    "fit_readout",
    "load_demo",
    "load_settings",
    "open_cluster",
    "open_run",
    "posteriors",
    "prepare",
    "publish",
    "quantify_communities",
    "read_published",
    "requantify",
    "run_stages",
]

_ELSEWHERE = {
    "NetworkQuantifier": "xnq_dist.api.quantifier",
    "PrevalenceResult": "xnq_dist.api.result",
    "RunDirectory": "xnq_dist.core.store",
    "Settings": "xnq_dist.core.settings",
    "Sources": "xnq_dist.graph.tables",
    "connect": "xnq_dist.core.cluster",
    "estimate_prevalence": "xnq_dist.api.estimate",
    "load_demo": "xnq_dist.graph.generate",
    "load_settings": "xnq_dist.core.config",
    "open_cluster": "xnq_dist.core.cluster",
    "read_published": "xnq_dist.core.store",
    "requantify": "xnq_dist.jobs",
    "run_stages": "xnq_dist.jobs",
}
"""Modules of the public names that are not in `pipeline`."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # The stages import Dask, Numba and scikit-learn: import them on first use only.
    if name not in __all__:
        raise AttributeError(f"module 'xnq_dist' has no attribute {name!r}")
    module = import_module(_ELSEWHERE.get(name, "xnq_dist.pipeline"))
    return getattr(module, "quantify" if name == "quantify_communities" else name)
