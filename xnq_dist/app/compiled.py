"""Compiles the kernels before the first run, by runs of small graphs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from xnq_dist.app.environment import prepare_environment
from xnq_dist.core.errors import StageError

__all__ = ["compile_kernels", "run_small_graphs"]

SMALL = ("cluster.workers=1", "reservoir.dim=64")
OTHER = "method=xnq quantifier=sld reservoir.matrix=dense exchange.dtype=float16"
RUNS: tuple[tuple[dict[str, Any], bool, tuple[str, ...]], ...] = (
    ({"classes": 2}, True, ("partitions=1",)),
    ({"classes": 7, "string_ids": True}, False, ("partitions=3",)),
    ({"classes": 3}, True, ("partitions=2", *OTHER.split())),
)
"""Graphs, whether their communities are given, and settings; together they use the
kernels of usual runs."""


def run_small_graphs() -> None:
    """Run the pipeline on small graphs, which compiles what is not in the cache."""
    prepare_environment()
    from xnq_dist.app.running import run_pipeline
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.generate import generate
    from xnq_dist.graph.tables import Sources

    shape: dict[str, Any] = {"nodes": 600, "degree": 8, "features": 8, "seed": 0}
    shape |= {"homophily": 0.6, "communities": 6, "labelled": 0.5}
    with tempfile.TemporaryDirectory() as folder:
        for number, (more, given, chosen) in enumerate(RUNS):
            paths = generate(f"{folder}/graph-{number}", **shape, **more).paths
            members = paths["memberships"] if given else None
            sources = Sources(paths["nodes"], paths["edges"], members)
            settings = load_settings(overrides=[*SMALL, *chosen])
            run_pipeline(sources, f"{folder}/run-{number}", settings)


def compile_kernels() -> float:
    """Compile the kernels in a process of its own; return the seconds it took.

    They are kept where Numba keeps them: in the folder NUMBA_CACHE_DIR, else next to
    the installed package, else in ~/.cache/numba. They serve processors of this
    machine's model.

    Raises
    ------
    StageError
        When the runs fail.
    """
    began = time.monotonic()
    code = f"from {__name__} import run_small_graphs; run_small_graphs()"
    kept = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [kept.get("PYTHONPATH")])])
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", code],
        env=kept | {"PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    if done.returncode:
        raise StageError(
            f"the kernels could not be compiled ({done.stderr.strip()[-500:]}): "
            "xnq-dist doctor checks this machine"
        )
    return time.monotonic() - began
