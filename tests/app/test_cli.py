"""The command line: fast help, plans, generated graphs, the complete demo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextvars import Context
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.app.commands import PROGRAM, ended, executed
from tests.conftest import write_graph
from xnq_dist.api.result import PrevalenceResult
from xnq_dist.app import output
from xnq_dist.app.cli import main
from xnq_dist.app.machine_checks import examine
from xnq_dist.app.settings_help import COMMON, settings_rows
from xnq_dist.monitor.progress import TimeLeft


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
        assert f"    {name} = " in text
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
    assert ended("settings", "machine") == 0
    listed = capsys.readouterr().out
    assert listed.split("\n\n")[1].startswith("Machine\n")
    assert "readout.memory = 2 GiB" in listed
    assert "readout.folds" not in listed


def test_run_help_explains_settings_in_full_on_a_wide_terminal(capsys, monkeypatch):
    meanings = {name: meaning for name, _, _, meaning in settings_rows()}
    monkeypatch.setenv("COLUMNS", "200")
    assert ended("run", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in COMMON:
        assert meanings[name] in text


def test_version_and_usage_errors(capsys):
    assert ended("--version") == 0
    assert "xnq-dist 0." in capsys.readouterr().out
    assert ended("run") == 2
    assert ended("nonsense") == 2


def test_the_shell_completes_commands(monkeypatch, capsys):
    monkeypatch.setenv("_XNQ_DIST_COMPLETE", "source_bash")
    assert ended() == 0
    assert "_XNQ_DIST_COMPLETE=complete_bash" in capsys.readouterr().out
    monkeypatch.setenv("_XNQ_DIST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "xnq-dist label")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert ended() == 0
    assert capsys.readouterr().out.split() == ["label-plan"]


@pytest.mark.parametrize(
    ("arguments", "status", "key"),
    [
        (["settings", "readout"], 0, "readout.C"),
        (["settings", "nonsense"], 2, "error"),
        (["run"], 2, "error"),
        (["run", "--nodes", "n.csv", "--edges", "e.csv", "--out", "o"], 2, "error"),
        (["nonsense"], 2, "error"),
        (["generate", "--out", "o", "--nodes", "many"], 2, "error"),
        (["generate", "--out", "o", "--homophily", "2"], 2, "error"),
        (["estimate", "--nodes", "1e5", "--edges", "1e6"], 0, "partitions"),
        (["requantify", "--run", "nowhere"], 2, "error"),
        (["doctor", "nowhere", "--verify"], 2, "error"),
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


def test_a_command_is_timed_from_the_creation_of_its_process(monkeypatch):
    ticks = os.sysconf("SC_CLK_TCK")
    fields = " ".join(["S", *map(str, range(4, 22)), str(7 * ticks), "9"])
    monkeypatch.setattr(Path, "read_text", lambda _path: f"12 (a b) c) {fields}")
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: 9.251)
    # No other command has set its clock in an empty context.
    assert Context().run(output.elapsed) == 2.25


def test_time_left_follows_the_plan_and_the_pace_of_a_long_step():
    now = [0.0]
    left = TimeLeft(clock=lambda: now[0])
    assert left.left() is None
    assert left.text() == ""
    left.plan(540.0)
    left.step("graph: read edges", 0, 10)
    assert left.left() == 540
    assert left.text() == "about 9 min left"
    now[0] = 50.0
    assert left.share() == pytest.approx(50 / 540)
    shown = left.share()
    now[0] = 200.0
    left.step("embed: supersteps", 0, 4)
    now[0] = 500.0
    left.step("embed: supersteps", 1, 4)
    # Each of the other three takes as long as the first.
    assert left.left() == 900
    assert left.text() == "about 15 min left"
    assert left.share() >= shown
    left.step("embed: supersteps", 4, 4)
    assert left.left() == 40
    now[0] = 600.0  # longer than planned
    assert left.left() is None
    assert left.share() >= shown
    left.plan(None)
    assert not left.planned


@pytest.mark.slow
def test_the_first_line_comes_within_a_second_and_the_time_is_the_wall_clock(tmp_path):
    write_graph(tmp_path / "input", nodes=300, edges=900)
    tables = [
        f"--{name}={tmp_path}/input/{name}.parquet" for name in ("nodes", "edges")
    ]
    command = [*PROGRAM, "run", *tables, "--json"]
    began = time.time()
    with subprocess.Popen(
        [*command, f"--out={tmp_path}/run", "--set=reservoir.dim=8"],
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
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert pq.read_table(tmp_path / "edges.parquet").num_rows == counts["edges"]
    tables = ("--nodes", f"{tmp_path}/nodes.parquet", "--edges")
    tables += (f"{tmp_path}/edges.parquet", "--set", "partitions=3")
    assert ended("estimate", *tables, "--json") == 0
    shown = capsys.readouterr()
    plan = json.loads(shown.out)
    assert plan["nodes"] == 500
    assert plan["partitions"] == 3
    assert "memory of a worker" in shown.err
    assert ended("estimate", *tables, "--set", "cluster.memory_limit=100MiB") == 3
    assert "cluster.memory_limit" in capsys.readouterr().err
    counts = ("--nodes", "1e6", "--edges", "1e7")
    assert ended("estimate", *counts, "--labelled", "5") == 2
    capsys.readouterr()
    assert ended("estimate", *counts, "--device", "gpu") == 0
    assert "memory of a GPU" in capsys.readouterr().out


@pytest.mark.server
def test_doctor_says_what_works_and_what_does_not(tmp_path, monkeypatch, prefect_api):
    found = {check.name: check for check in examine(None, str(tmp_path))}
    assert found["dask local"].state == "ok"
    assert found["disk"].state == "ok"
    assert found["gpu"].state == "note"
    assert found["prefect"].state == "ok"


@pytest.mark.slow
def test_doctor_ends_with_status_1_on_a_fault(tmp_path, capsys):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    (tmp_path / "file").write_text("")
    dead = ("--address", "tcp://127.0.0.1:9", str(tmp_path / "file" / "x"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
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
    tables = (
        "--nodes",
        f"{tmp_path}/nodes.parquet",
        "--edges",
        f"{tmp_path}/edges.parquet",
    )
    assert ended("estimate", *tables) == 1
    error = capsys.readouterr().err
    assert "internal error: RuntimeError: a bug; please report it" in error
    assert "Traceback" not in error
    monkeypatch.setenv("XNQ_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["estimate", *tables])


@pytest.mark.ci
def test_demo_from_end_to_end_without_a_prefect_server(tmp_path, prefect_home):
    """README's first command."""
    out = tmp_path / "demo"
    began = time.time()
    done = executed("demo", "--out", str(out), "--json", env=prefect_home)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert not re.search(r"\d\.\d{9,}|object at 0x|\['|\('", done.stderr), done.stderr
    compared = summary["compared"]
    assert compared["this run"]["covered"] >= 44
    for name in ("prevalence.parquet", "totals.parquet", "report.html"):
        assert (out / "run" / name).stat().st_mtime > began
    names = pq.read_table(out / "run" / "prevalence.parquet")["community"].to_pylist()
    assert PrevalenceResult(out / "run").contrast(names[0], names[-1]).num_rows == 2
    plan = str(out / "plan.csv")
    assert ended("label-plan", str(out / "run"), "--budget", "25", "--out", plan) == 0
    assert len(Path(plan).read_text(encoding="utf-8").splitlines()) == 26
    page = (out / "run" / "report.html").read_text(encoding="utf-8")
    assert "<b>&#34;live" not in page


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
