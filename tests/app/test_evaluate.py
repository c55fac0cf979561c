"""The command `xnq-dist evaluate`."""

from __future__ import annotations

import json
import subprocess
import time

import psutil
import pyarrow.parquet as pq
import pytest

from tests.app.commands import PROGRAM, ended, executed
from tests.conftest import write_graph
from xnq_dist.evaluation.estimators import TRIVIAL
from xnq_dist.evaluation.rivals import RIVALS


def command(folder, out, *more):
    return ["evaluate", "--data", str(folder), "--out", str(out), "--json", *more]


def kill_after_a_unit(folder, out, *more, environment):
    """Start an evaluation, kill it once scores are written; return its processes."""
    with subprocess.Popen(
        [*PROGRAM, *command(folder, out, *more)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        end = time.monotonic() + 120
        while not list(out.glob("*/units/*.npy")):
            assert running.poll() is None, "ended before its first scores"
            assert time.monotonic() < end
            time.sleep(0.02)
        children = psutil.Process(running.pid).children(recursive=True)
        running.kill()
    return children


@pytest.mark.faults
@pytest.mark.server
def test_a_killed_evaluation_becomes_tables(server_environment, tmp_path):
    folder, out = tmp_path / "data", tmp_path / "out"
    write_graph(folder, nodes=400, edges=1500, labelled=1.0)
    chosen = (
        "--methods=xnq,wvrn",
        "--quantifiers=sld,acc",
        "--folds=0",
        "--draws=8",
        "--set=reservoir.dim=16",
        "--set=reservoir.supersteps=5",
    )
    children = kill_after_a_unit(folder, out, *chosen, environment=server_environment)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert not (out / "results.parquet").exists()
    kept = {unit: unit.stat().st_mtime_ns for unit in out.glob("*/units/*.npy")}
    # Eight draws in one fold are eight units.
    assert 1 <= len(kept) < 8
    done = executed(*command(folder, out, *chosen), env=server_environment)
    assert done.returncode == 0, done.stderr
    assert f"xnq: {len(kept)} of 8 scores are reused" in done.stderr
    assert all(unit.stat().st_mtime_ns == when for unit, when in kept.items())
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    results = pq.read_table(summary["results"]).to_pylist()
    assert {row["method"] for row in results} == {"wvrn", "xnq"}
    test = [row for row in results if row["split"] == "test"]
    # Two methods, quantifiers and metrics, each chosen once.
    assert len(test) == 8
    assert all(row["selected"] for row in test)
    for name in ("tables/ae-binary.md", "estimates.parquet"):
        assert (out / name).exists(), name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--folds=a"], "--folds 'a' is not a list of numbers"),
        (["--methods=,"], "--methods is empty"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path, arguments, words):
    done = executed(*command(tmp_path, tmp_path / "out", *arguments))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.server
def test_evaluation_draws_its_own_labels(tmp_path, capsys, prefect_api):
    folder = str(tmp_path / "data")
    write_graph(tmp_path / "data", nodes=500, edges=4000, labelled=1.0)
    base = ["evaluate", "--data", folder, "--out", str(tmp_path / "out")]
    assert ended(*base, "--communities", "leiden", "--folds", "0") == 2
    assert "remove --methods, --folds and --splits" in capsys.readouterr().err
    assert ended(*base, "--communities", "rings") == 2
    assert "unknown kind of communities 'rings'" in capsys.readouterr().err
    assert ended(*base, "--communities", "leiden", "--designs", "rare") == 2
    assert "unknown design of labels 'rare'" in capsys.readouterr().err
    assert ended(*base, "--communities", "leiden", "--label-shares", "2") == 2
    assert "a share of 2 leaves no label to fit to" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    done = ended(
        *base,
        "--communities=walk,whole,app",
        "--designs=random,positives",
        "--quantifiers=auto,pcc",
        "--label-shares=.5",
        "--draws=1",
        "--set=reservoir.dim=16",
        "--set=reservoir.supersteps=4",
        "--set=cluster.workers=1",
    )
    said = capsys.readouterr()
    assert done == 0, said.err
    assert "Errors and intervals on real communities" in said.out
    rows = pq.read_table(tmp_path / "out" / "community_results.parquet").to_pylist()
    assert {r["estimator"] for r in rows} == {"auto", "pcc", *TRIVIAL, *RIVALS, "floor"}
    assert {r["design"] for r in rows} == {"random", "positives"}
