"""The command line: fast help, plans, generated graphs, the complete demo."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from tests.app.commands import PROGRAM, ended, run_words
from tests.conftest import write_graph
from xnq_dist.app.checks import examine
from xnq_dist.app.cli import main
from xnq_dist.app.settings_help import COMMON, settings_rows
from xnq_dist.monitor import progress


def test_help_imports_light_modules_alone():
    """`--help` is fast because no slow imports happen."""
    code = (
        "import sys; import xnq_dist.app.cli\n"
        "try: xnq_dist.app.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'prefect', 'dask', 'distributed', 'numba', 'sklearn',"
        " 'pyarrow', 'matplotlib', 'scipy', 'pydantic'}\n"
        "found = heavy & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(found)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "estimate" in done.stdout


def test_run_help_has_the_common_settings_and_settings_lists_all(capsys):
    assert ended("run", "--help") == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 80
    assert len(COMMON) <= 20
    for name in COMMON:
        assert f"  {name} = " in text
    for panel in ("Tables", "Result", "Settings", "Other"):
        assert f"─ {panel} ─" in text
    assert text.strip().endswith("xnq-dist settings")
    assert ended("settings") == 0
    text = capsys.readouterr().out
    for name, _, default, _ in settings_rows():
        assert f"  {name} = {default}  [" in text
    assert ended("settings", "readout") == 0
    listed = capsys.readouterr().out
    assert "readout.calibration = bcts" in listed
    assert "reservoir" not in listed


def test_version_and_usage_errors(capsys):
    assert ended("--version") == 0
    assert "xnq-dist 0." in capsys.readouterr().out
    assert ended("run") == 2
    assert ended("nonsense") == 2


@pytest.mark.parametrize(
    ("arguments", "status", "key"),
    [
        (["settings", "readout"], 0, "readout.C"),
        (["settings", "nonsense"], 2, "error"),
        (["run", "--nodes", "n.csv", "--edges", "e.csv", "--out", "o"], 2, "error"),
        (["nonsense"], 2, "error"),
        (["generate", "--out", "o", "--homophily", "2"], 2, "error"),
        (["estimate", "--nodes", "1e5", "--edges", "1e6"], 0, "partitions"),
        (["requantify", "--run", "nowhere"], 2, "error"),
        (["label-plan", "nowhere", "--budget", "5"], 2, "error"),
        (["evaluate", "--data", "nowhere", "--out", "o"], 2, "error"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_stdout_is_one_json_object(
    arguments, status, key, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XNQ_DATA_DIR", raising=False)
    assert ended(*arguments, "--json") == status
    shown = capsys.readouterr()
    values = json.loads(shown.out)
    assert key in values
    assert shown.err
    if status:
        assert values == {"error": values["error"], "exit_code": status}
        assert values["error"] in shown.err


def test_a_plan_that_does_not_fit_is_one_object_with_its_error(capsys):
    counts = ("--nodes", "1e6", "--edges", "1e7", "--json")
    assert ended("estimate", *counts, "--set", "cluster.memory_limit=1MiB") == 3
    values = json.loads(capsys.readouterr().out)
    assert values["nodes"] == 1_000_000
    assert values["exit_code"] == 3
    assert "cluster.memory_limit" in values["error"]


@pytest.mark.parametrize(("spent", "words"), [(119.0, ""), (121.0, "instead of 60")])
def test_twice_the_planned_time_is_said(monkeypatch, caplog, spent, words):
    times = iter([0.0, spent])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(progress, "time", clock)
    caplog.set_level("WARNING")
    with progress.expecting(60.0):
        pass
    assert words in caplog.text
    assert bool(caplog.text) == bool(words)


@pytest.mark.slow
def test_the_first_line_comes_within_a_second_and_the_time_is_the_wall_clock(tmp_path):
    write_graph(tmp_path / "input", nodes=300, edges=900)
    words = run_words(tmp_path / "input", tmp_path / "run", "reservoir.dim=8")
    began = time.time()
    with subprocess.Popen(
        [*PROGRAM, *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr.read(1)
        first = time.time() - began
        process.stderr.read()
        summary = json.loads(process.stdout.read())
    wall = time.time() - began
    assert process.returncode == 0
    assert first < 1
    assert summary["seconds"] == pytest.approx(wall, rel=0.05)


def test_generate_then_estimate(tmp_path, capsys):
    made = ("generate", "--out", str(tmp_path), "--nodes", "500", "--degree", "6")
    assert ended(*made, "--communities", "8", "--json") == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert 1200 < pq.read_table(paths["edges"]).num_rows < 1800
    tables = [f"--{name}={tmp_path}/{name}.parquet" for name in ("nodes", "edges")]
    assert ended("estimate", *tables, "--set", "partitions=3", "--json") == 0
    shown = capsys.readouterr()
    plan = json.loads(shown.out)
    assert (plan["nodes"], plan["partitions"]) == (500, 3)
    assert "memory of a worker" in shown.err
    counts = ("--nodes", "1e6", "--edges", "1e7")
    assert ended("estimate", *counts, "--labelled", "5") == 2
    capsys.readouterr()
    assert ended("estimate", *counts, "--set", "backend=gpu") == 0
    assert "memory of a GPU" in capsys.readouterr().out


def test_doctor_says_what_works_and_what_does_not(tmp_path):
    found = {check.name: check for check in examine(str(tmp_path))}
    assert found["dask local"].state == "ok"
    assert found["disk"].state == "ok"
    assert found["gpu"].state == "note"


@pytest.mark.slow
def test_doctor_ends_with_status_1_on_a_fault(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    dead = ("--address", "tcp://127.0.0.1:9", str(tmp_path / "file" / "x"))
    assert ended("doctor", *dead, "--json") == 1
    lines = capsys.readouterr().err.splitlines()
    faults = [line for line in lines if line.strip().startswith("fault")]
    assert len(faults) == 2
    assert "start one with `dask scheduler`" in "".join(faults)


def test_an_internal_error_is_one_line_with_status_1(tmp_path, capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("xnq_dist.pipeline.estimate", broken)
    write_graph(tmp_path, nodes=20, edges=30)
    tables = [f"--{name}={tmp_path}/{name}.parquet" for name in ("nodes", "edges")]
    assert ended("estimate", *tables) == 1
    error = capsys.readouterr().err
    assert "internal error: RuntimeError: a bug; please report it" in error
    assert "Traceback" not in error
    monkeypatch.setenv("XNQ_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["estimate", *tables])


LOSES_ITS_SIGNAL = """
import os, signal, sys, time
from xnq_dist.app import cli

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)  # the handler raises in here, where nobody can catch it

def work(args, *name, **options):
    Finalised()
    time.sleep(20)

cli.app = work
cli.main([])
"""


def test_signal_raised_in_a_finaliser_still_ends_the_run():
    done = subprocess.run(
        [sys.executable, "-c", LOSES_ITS_SIGNAL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "interrupted by SIGTERM: run again to resume" in done.stderr
