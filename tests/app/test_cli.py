"""The command line: fast help, plans, generated graphs, the complete demo."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import write_graph
from xnq_dist.app.cli import main
from xnq_dist.app.doctor import examine


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


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


def test_run_help_explains_each_setting(capsys):
    assert run("run", "--help") == 0
    text = capsys.readouterr().out
    for key in ("reservoir.dim = 256", "readout.calibration = bcts", "cluster.kind"):
        assert key in text


def test_version_and_usage_errors(capsys):
    assert run("--version") == 0
    assert "xnq-dist 0." in capsys.readouterr().out
    assert run("run") == 2
    assert run("nonsense") == 2


def test_generate_then_estimate(tmp_path, capsys):
    made = ("generate", "--out", str(tmp_path), "--nodes", "500", "--degree", "6")
    assert run(*made, "--communities", "8", "--json") == 0
    counts = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["counts"]
    assert pq.read_table(tmp_path / "edges.parquet").num_rows == counts["edges"]
    tables = ("--nodes", f"{tmp_path}/nodes.parquet", "--edges")
    tables += (f"{tmp_path}/edges.parquet", "--set", "partitions=3")
    assert run("estimate", *tables, "--json") == 0
    text = capsys.readouterr().out
    plan = json.loads(text.strip().splitlines()[-1])
    assert plan["nodes"] == 500
    assert plan["partitions"] == 3
    assert "memory of a worker" in text
    assert run("estimate", *tables, "--set", "cluster.memory_limit=100MiB") == 3
    assert "cluster.memory_limit" in capsys.readouterr().err
    counts = ("--nodes", "1e6", "--edges", "1e7")
    assert run("estimate", *counts, "--labelled", "5") == 2
    capsys.readouterr()
    assert run("estimate", *counts, "--device", "gpu") == 0
    assert "memory of a GPU" in capsys.readouterr().out


def test_bad_arguments_of_generate_are_named(tmp_path, capsys):
    assert run("generate", "--out", str(tmp_path), "--homophily", "1.5") == 2
    assert "homophily" in capsys.readouterr().err


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
    dead = ("--address", "tcp://127.0.0.1:9", "--out", str(tmp_path / "file" / "x"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert run("doctor", *dead, "--json") == 1
    lines = capsys.readouterr().out.splitlines()
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
    assert run("estimate", *tables) == 1
    error = capsys.readouterr().err
    assert "internal error: RuntimeError: a bug; please report it" in error
    assert "Traceback" not in error
    monkeypatch.setenv("XNQ_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["estimate", *tables])


def test_demo_from_end_to_end_without_a_prefect_server(tmp_path, prefect_home):
    """README's first command."""
    out = tmp_path / "demo"
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "xnq_dist.app.cli", "demo", "--out", str(out), "--json"],
        env=prefect_home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    errors = summary["errors"]
    # The declared estimator, SLD, is best where only proportions differ, and not where
    # features and links differ too.
    auto, declared = errors["auto (the run's)"], errors["auto, drawn by class"]
    prior = errors["share of the labelled"]
    assert declared["proportions"] < 0.5 * auto["proportions"]
    assert auto["proportions"] < 0.5 * prior["proportions"]
    assert auto["real"] < 0.9 * declared["real"]
    assert declared["real"] < prior["real"]
    for name in ("prevalence.parquet", "totals.parquet", "report.html"):
        assert (out / "run" / name).stat().st_mtime > began
    names = pq.read_table(out / "run" / "prevalence.parquet")["community"].to_pylist()
    assert run("contrast", str(out / "run"), names[0], names[-1]) == 0
    plan = str(out / "plan.csv")
    assert run("label-plan", str(out / "run"), "--budget", "25", "--out", plan) == 0
    assert len(Path(plan).read_text(encoding="utf-8").splitlines()) == 26
    page = (out / "run" / "report.html").read_text(encoding="utf-8")
    assert "R&amp;B &lt;b&gt;" in page
    assert "<b>&#34;live" not in page
