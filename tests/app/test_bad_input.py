"""Bad input that later parts of a run find: one sentence, an exit status, no results.

What is found before the plan is in `wrong`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.commands import PROGRAM, SHORT, ended, run_words
from tests.conftest import write_graph
from xnq_dist.core.lock import LOCK, run_lock
from xnq_dist.core.store import Folder

QUICK = (*SHORT, "readout.folds=3")


@pytest.fixture
def tables(tmp_path) -> Path:
    """Valid tables of nodes, edges and memberships."""
    folder = tmp_path / "input"
    write_graph(folder, nodes=120, edges=400, labelled=0.6)
    members = {"community": [1, 1, 2, 2], "node_id": [0, 1, 1, 2]}
    pq.write_table(pa.table(members), folder / "memberships.parquet")
    return folder


@pytest.fixture
def dask(tls_settings) -> list[str]:
    """Arguments for an existing cluster, so that no workers need to start."""
    return [f"--set=cluster.{name}={value}" for name, value in tls_settings.items()]


def run(tables: Path, *arguments: str, out: Path | None = None) -> list[str]:
    return [*run_words(tables, out or tables.parent / "run", *QUICK), *arguments]


def refused(capfd, arguments: list[str], status: int = 2) -> str:
    """The error message of a command that is refused."""
    found = ended(*arguments)
    error = capfd.readouterr().err
    assert found == status, error
    assert "Traceback" not in error
    last = error.strip().splitlines()[-1]
    assert last.startswith("xnq-dist: ")
    return last


def test_bad_features_are_refused_in_one_sentence(tables, capfd, dask):
    file = tables / "nodes.parquet"
    table = pq.read_table(file)
    values = table["features"].to_pylist()
    values[3][1] = float("inf")
    spoilt = pa.array(values, pa.list_(pa.float32(), 5))
    at = table.schema.get_field_index("features")
    pq.write_table(table.set_column(at, "features", spoilt), file)
    sentence = refused(capfd, run(tables, *dask))
    assert "features" in sentence
    assert "row 4" in sentence
    out = tables.parent / "run"
    assert not (out / "prevalence.parquet").exists()
    assert not (out / "graph" / "_manifest.json").exists()
    assert not (out / LOCK).exists()


def test_unreachable_dask_address(tables, capfd):
    sentence = refused(
        capfd,
        run(
            tables,
            "--set=cluster.kind=address",
            "--set=cluster.address=tcp://127.0.0.1:9",
            "--set=cluster.timeout=2",
        ),
        status=4,
    )
    assert "tcp://127.0.0.1:9" in sentence
    assert "cluster.address" in sentence


def test_directory_in_use(tables, capfd):
    out = tables.parent / "run"
    with run_lock(Folder.of(out)):
        sentence = refused(capfd, run(tables), status=4)
    assert f"in use by process {os.getpid()}" in sentence


def main_ok(arguments: list[str]) -> None:
    assert ended(*arguments) == 0


def test_plan_that_does_not_fit_ends_with_status_3(tables, capfd):
    little = ("--set=cluster.memory_limit=200MiB", "--set=cluster.workers=1")
    sentence = refused(capfd, run(tables, *little), status=3)
    assert "may use 200.0 MiB" in sentence
    assert "cluster.memory_limit" in sentence


def test_a_run_with_closed_streams_is_complete(tables):
    words = [*PROGRAM, *run(tables)]
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0
    assert (tables.parent / "run" / "prevalence.parquet").exists()
