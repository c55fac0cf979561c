"""`xnq-dist doctor --kernels`: later runs compile nothing."""

import os
import subprocess
import sys

import pytest

from xnq_dist.graph.generate import Arguments, generate

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
def test_runs_after_the_command_compile_nothing(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    call = [sys.executable, "-m", "xnq_dist.app.cli", "doctor", "--kernels"]
    subprocess.run(call, env=environment, check=True)
    shape = {"nodes": 700, "degree": 6.0, "features": 9, "communities": 5, "seed": 3}
    arguments = Arguments(classes=2, homophily=0.4, **shape)
    paths = generate(tmp_path / "graph", arguments)
    for number, tables in enumerate((("memberships",), ())):
        call = [sys.executable, "-c", COMPILED, "run", "--out", f"{tmp_path}/{number}"]
        for name in ("nodes", "edges", *tables):
            call += [f"--{name}", paths[name]]
        call += ["--set", "cluster.workers=1", "--set", "reservoir.dim=32"]
        done = subprocess.run(
            call, env=environment, check=True, capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "compiled", done.stdout
