"""`xnq-dist evaluate`, as its users type it."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.conftest import write_graph


def evaluate(folder, out, *more, environment=None):
    arguments = ["evaluate", "--data", str(folder), "--out", str(out), "--json", *more]
    arguments += ["--set=evaluation.repeats=2", "--set=evaluation.sample_size=30"]
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )


@pytest.mark.server
def test_a_folder_becomes_tables_and_a_page(server_environment, tmp_path):
    write_graph(tmp_path / "data", nodes=400, edges=1500, labelled=1.0)
    done = evaluate(
        tmp_path / "data",
        tmp_path / "out",
        "--methods=wvrn,lr",
        "--quantifiers=sld,acc",
        "--folds=0,1",
        "--set=readout.C=1",
        environment=server_environment,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    results = pq.read_table(summary["results"]).to_pylist()
    assert {row["method"] for row in results} == {"wvrn", "lr"}
    test = [row for row in results if row["split"] == "test"]
    # Two methods, quantifiers, folds and metrics, each chosen once.
    assert len(test) == 16
    assert all(row["selected"] for row in test)
    for name in ("evaluation.html", "tables/ae-binary.md", "estimates.parquet"):
        assert (tmp_path / "out" / name).exists(), name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--folds=a"], "--folds 'a' is not a list of numbers"),
        (["--methods=,"], "--methods names nothing"),
    ],
)
def test_arguments_that_cannot_be_are_refused(tmp_path, arguments, words):
    done = evaluate(tmp_path, tmp_path / "out", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
