"""Compiles the kernels before the first run, by runs of small graphs."""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import replace

from xnq_dist.core.config import load_settings
from xnq_dist.graph.generate import Arguments, generate
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import run_all

__all__ = ["compile_kernels"]

SETTINGS = "cluster.workers=1 reservoir.dim=64"
OTHER = "method=xnq quantifier=sld reservoir.matrix=dense exchange.dtype=float16"
GRAPH = Arguments(
    nodes=600,
    degree=8,
    features=8,
    classes=2,
    homophily=0.6,
    communities=6,
    seed=0,
    labelled=0.5,
)
RUNS = (
    (GRAPH, True, "partitions=1"),
    (replace(GRAPH, classes=7, string_ids=True), False, "partitions=3"),
    (replace(GRAPH, classes=3), True, f"partitions=2 {OTHER}"),
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
    logging.disable(logging.WARNING)  # nobody asked for these small graphs
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, (graph, given, chosen) in enumerate(RUNS):
                paths = generate(f"{folder}/graph-{number}", graph)
                members = paths["memberships"] if given else None
                sources = Sources(paths["nodes"], paths["edges"], members)
                settings = load_settings(overrides=f"{SETTINGS} {chosen}".split())
                run_all(sources, f"{folder}/run-{number}", settings)
    finally:
        logging.disable(logging.NOTSET)
    return time.monotonic() - began
