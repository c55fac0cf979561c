"""The command ``xnq-dist kernels``: compiles the kernels before the first run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from xnq_dist.app.environment import prepare_environment
from xnq_dist.app.output import Json, begin, print_json
from xnq_dist.core import kernel_cache
from xnq_dist.core.errors import SettingsError, StageError

__all__ = ["kernels", "run_small_graphs"]

SMALL = ("cluster.kind=single", "reservoir.dim=64")
OTHER = "method=xnq quantifier=sld reservoir.matrix=dense exchange.dtype=float16"
RUNS: tuple[tuple[dict[str, Any], bool, tuple[str, ...]], ...] = (
    ({"classes": 2}, True, ("partitions=1",)),
    ({"classes": 7, "string_ids": True}, False, ("partitions=3",)),
    ({"classes": 3}, True, ("partitions=2", "exchange.states=disk", *OTHER.split())),
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


def kernels(
    portable: Annotated[
        bool,
        typer.Option(
            "--portable",
            help="For an image: compile for every x86-64 processor with AVX2 and for "
            "every one with AVX-512, instead of for this machine's model. Needs "
            "NUMBA_CACHE_DIR.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile the kernels now, so that the first run does not wait for them.

    They are kept where Numba keeps them: in the folder NUMBA_CACHE_DIR, else next to
    the installed package, else in ~/.cache/numba. Update the package or Numba, and run
    the command again.
    """
    begin("compiling the kernels")
    targets: dict[str, dict[str, str]] = {"this processor": {}}
    if portable:
        folder = kernel_cache.cache_folder()
        if folder is None:
            raise SettingsError(
                "--portable needs a folder that the image keeps: set NUMBA_CACHE_DIR"
            )
        folder.mkdir(parents=True, exist_ok=True)
        levels = [each for each in kernel_cache.LEVELS if kernel_cache.runs_here(each)]
        for level in kernel_cache.LEVELS.keys() - levels:
            typer.echo(f"  {level}: this processor lacks its instructions; left out")
        if not levels:
            raise SettingsError(
                "--portable needs an x86-64 processor with AVX2: leave it out here"
            )
        targets = {level: kernel_cache.environment(level) for level in levels}
    seconds = {}
    for name, variables in targets.items():
        began = time.monotonic()
        _compile(variables)
        seconds[name] = round(time.monotonic() - began, 1)
        typer.echo(f"  {name}: compiled in {seconds[name]:.0f} s")
    if portable:
        kernel_cache.mark_shipped(list(targets))
    print_json({"seconds": seconds}, as_json)


def _compile(variables: dict[str, str]) -> None:
    """`run_small_graphs` in a process whose Numba compiles for another processor."""
    code = f"from {__name__} import run_small_graphs; run_small_graphs()"
    kept = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [kept.get("PYTHONPATH")])])
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", code],
        env=kept | {"PYTHONPATH": path} | variables,
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
