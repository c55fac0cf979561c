"""Kernels that the image compiles: later runs compile nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xnq_dist.graph.generate import generate

COMPILED = """
import sys
import xnq_dist
import numba.core.event as event
from xnq_dist.app.cli import main
with event.install_recorder("numba:compile") as recorder:
    try:
        main(sys.argv[1:])
    except SystemExit as ended:
        assert not ended.code, ended.code
names = {
    done.data["dispatcher"].py_func.__qualname__
    for _, done in recorder.buffer
    if done.data["dispatcher"].py_func.__module__.startswith("xnq_dist")
}
print("compiled", *sorted(names), flush=True)
"""


@pytest.mark.slow
def test_runs_after_the_runs_of_the_image_compile_nothing(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    file = Path(__file__).parents[2] / "deploy" / "docker" / "Dockerfile"
    lines = file.read_text(encoding="utf-8")
    commands = lines.split("RUN xnq-dist demo")[1].split("\\\n    && rm")[0]
    commands = f"xnq-dist demo{commands}".replace("/tmp", str(tmp_path))  # noqa: S108
    commands = commands.replace("xnq-dist", f"{sys.executable} -m xnq_dist.app.cli")
    subprocess.run(["/bin/sh", "-c", commands], env=environment, check=True)
    shape = {"nodes": 700, "degree": 6.0, "features": 9, "communities": 5, "seed": 3}
    made = generate(tmp_path / "graph", classes=2, homophily=0.4, **shape)
    for number, tables in enumerate((("memberships",), ())):
        call = [sys.executable, "-c", COMPILED, "run", "--out", f"{tmp_path}/{number}"]
        for name in ("nodes", "edges", *tables):
            call += [f"--{name}", made.paths[name]]
        call += ["--set", "cluster.workers=1", "--set", "reservoir.dim=32"]
        done = subprocess.run(
            call, env=environment, check=True, capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "compiled", done.stdout
