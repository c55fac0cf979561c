"""Compiles the kernels before the first run, by runs of small graphs."""

from __future__ import annotations

import logging
import tempfile
import time
from typing import Any

from xnq_dist.core.config import load_settings
from xnq_dist.graph.generate import Arguments, generate
from xnq_dist.graph.tables import Sources
from xnq_dist.jobs import run_all

__all__ = ["compile_kernels"]

SMALL = ("cluster.workers=1", "reservoir.dim=64")
OTHER = "method=xnq quantifier=sld reservoir.matrix=dense exchange.dtype=float16"
RUNS: tuple[tuple[dict[str, Any], bool, tuple[str, ...]], ...] = (
    ({"classes": 2}, True, ("partitions=1",)),
    ({"classes": 7, "string_ids": True}, False, ("partitions=3",)),
    ({"classes": 3}, True, ("partitions=2", *OTHER.split())),
)
"""Graphs, whether their communities are given, and settings; together they use the
kernels of usual runs."""


def compile_kernels() -> float:
    """Compile the kernels that are not in the cache; return the seconds it took.

    They are kept where Numba keeps them: in the folder NUMBA_CACHE_DIR, else next to
    the installed package, else in ~/.cache/numba. They serve processors of this
    machine's model.
    """
    began = time.monotonic()
    log = logging.getLogger("xnq_dist")
    level = log.level
    log.setLevel(logging.ERROR)  # nobody asked for these small graphs
    shape: dict[str, Any] = {
        "nodes": 600,
        "degree": 8,
        "features": 8,
        "homophily": 0.6,
        "communities": 6,
        "labelled": 0.5,
        "seed": 0,
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, (more, given, chosen) in enumerate(RUNS):
                arguments = Arguments(**shape, **more)
                paths = generate(f"{folder}/graph-{number}", arguments)
                members = paths["memberships"] if given else None
                sources = Sources(paths["nodes"], paths["edges"], members)
                settings = load_settings(overrides=[*SMALL, *chosen])
                run_all(sources, f"{folder}/run-{number}", settings)
    finally:
        log.setLevel(level)
    return time.monotonic() - began
