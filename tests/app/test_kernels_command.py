"""`xnq-dist kernels` and the choice of shipped kernels."""

import json
import os
import subprocess
import sys

import pytest

from xnq_dist.app.cli import main
from xnq_dist.core import kernel_cache
from xnq_dist.core.kernel_cache import LEVELS, MARK, runs_here
from xnq_dist.graph.generate import generate

V3_FLAGS = (
    "fpu cx8 cx16 fxsr mmx sse sse2 pni ssse3 sse4_1 sse4_2 popcnt lahf_lm xsave avx "
    "avx2 bmi1 bmi2 f16c fma abm movbe"
)
V4_FLAGS = f"{V3_FLAGS} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A cache folder with kernels of both levels, as an image has it."""
    (tmp_path / MARK).write_text(json.dumps({"levels": list(LEVELS)}))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    return tmp_path


def on(monkeypatch, levels):
    monkeypatch.setattr(kernel_cache, "runs_here", lambda level: level in levels)


def test_a_processor_runs_the_levels_whose_instructions_it_has(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    for flags, levels in ((V4_FLAGS, list(LEVELS)), (V3_FLAGS, ["x86-64-v3"])):
        cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n")
        assert [each for each in LEVELS if runs_here(each, str(cpuinfo))] == levels
    cpuinfo.write_text("processor : 0\nFeatures : fp asimd\n")
    assert not any(runs_here(each, str(cpuinfo)) for each in LEVELS)
    assert not any(runs_here(each, str(tmp_path / "absent")) for each in LEVELS)


@pytest.mark.parametrize("level", LEVELS)
def test_the_highest_shared_level_is_chosen(shipped, monkeypatch, level):
    on(monkeypatch, list(LEVELS)[list(LEVELS).index(level) :])
    kernel_cache.use_shipped_kernels()
    assert os.environ["NUMBA_CPU_NAME"] == level
    assert ("+avx512f" in os.environ["NUMBA_CPU_FEATURES"]) == (level == "x86-64-v4")


def test_without_shipped_kernels_numba_keeps_its_choice(shipped, monkeypatch):
    on(monkeypatch, [])
    kernel_cache.use_shipped_kernels()
    on(monkeypatch, list(LEVELS))
    (shipped / MARK).write_text("{}")
    kernel_cache.use_shipped_kernels()
    (shipped / MARK).unlink()
    kernel_cache.use_shipped_kernels()
    assert "NUMBA_CPU_NAME" not in os.environ


def test_a_chosen_processor_stays(shipped, monkeypatch):
    on(monkeypatch, list(LEVELS))
    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    kernel_cache.use_shipped_kernels()
    assert os.environ["NUMBA_CPU_NAME"] == "haswell"
    assert "NUMBA_CPU_FEATURES" not in os.environ


def test_portable_kernels_need_a_folder(monkeypatch, capsys):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["kernels", "--portable"])
    assert ended.value.code == 2
    assert "set NUMBA_CACHE_DIR" in capsys.readouterr().err


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
@pytest.mark.parametrize("options", [[], ["--portable"]], ids=["plain", "portable"])
def test_runs_after_the_command_compile_nothing(tmp_path, options):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    call = [sys.executable, "-m", "xnq_dist.app.cli", "kernels", *options]
    subprocess.run(call, env=environment, check=True)
    shape = {"nodes": 700, "degree": 6.0, "features": 9, "communities": 5, "seed": 3}
    made = generate(tmp_path / "graph", classes=2, homophily=0.4, **shape)
    for number, tables in enumerate((("memberships",), ())):
        call = [sys.executable, "-c", COMPILED, "run", "--out", f"{tmp_path}/{number}"]
        for name in ("nodes", "edges", *tables):
            call += [f"--{name}", made.paths[name]]
        call += ["--set", "cluster.kind=single", "--set", "reservoir.dim=32"]
        done = subprocess.run(
            call, env=environment, check=True, capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "compiled", done.stdout
