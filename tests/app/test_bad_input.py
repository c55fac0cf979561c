"""Bad input that later parts of a run find: one sentence, an exit status, no results.

What is found before the plan is in `wrong`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
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


def change(file: Path, column: str, values: Callable[[pa.ChunkedArray], object]):
    """Rewrite a table with one column changed."""
    table = pq.read_table(file)
    at = table.schema.get_field_index(column)
    changed = values(table[column])
    if not isinstance(changed, pa.Array | pa.ChunkedArray):
        changed = pa.array(changed, table[column].type)
    pq.write_table(table.set_column(at, column, changed), file)


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


def infinite_features(t: Path) -> None:
    def spoil(column):
        values = column.to_pylist()
        values[3][1] = float("inf")
        return values

    change(t / "nodes.parquet", "features", spoil)


def unequal_features(t: Path) -> None:
    def spoil(column):
        values = column.to_pylist()
        values[3] = values[3][:-1]
        return pa.array(values, pa.list_(pa.float32()))

    change(t / "nodes.parquet", "features", spoil)


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (infinite_features, ["features", "3"]),
        (unequal_features, ["features", "3"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_bad_tables_are_refused_in_one_sentence(tables, capfd, dask, spoil, names):
    spoil(tables)
    sentence = refused(capfd, run(tables, *dask))
    for name in names:
        assert name in sentence
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


def test_run_directory_of_another_graph(tables, capfd):
    out = tables.parent / "run"
    out.mkdir()
    Folder.of(out).write_record("_run.json", {"nodes": "/a", "edges": "/b"})
    assert "made from /a" in refused(capfd, run(tables))


def test_directory_in_use(tables, capfd):
    out = tables.parent / "run"
    with run_lock(Folder.of(out)):
        sentence = refused(capfd, run(tables), status=4)
    assert f"in use by process {os.getpid()}" in sentence


@pytest.mark.server
def test_unknown_community_members_and_what_follows(prefect_api, tables, capfd, dask):
    """Unknown nodes are refused, or dropped by setting; the run reports to Prefect."""
    change(tables / "memberships.parquet", "node_id", lambda c: [0, 1, 1, 5000])
    given = ("--memberships", str(tables / "memberships.parquet"), *dask)
    sentence = refused(capfd, run(tables, *given))
    assert "5000" in sentence
    assert "input.unknown_nodes" in sentence
    out = tables.parent / "run"
    assert not (out / "prevalence.parquet").exists()
    main_ok(
        run(tables, *given, "--set=input.unknown_nodes=drop", "--prefect", "--json")
    )
    summary = json.loads(capfd.readouterr().out.strip().splitlines()[-1])
    assert summary["communities"] == 2
    rows = pq.read_table(out / "prevalence.parquet").to_pylist()
    assert [row["n_nodes"] for row in rows] == [2, 2, 1, 1]
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import ArtifactSort

    # The server has those of other tests too, and returns 200 at most.
    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts(sort=ArtifactSort.CREATED_DESC)
    shown = f"first rows of {out}"
    table = [a for a in artifacts if a.description == shown]
    assert len(table) == 1
    assert json.loads(table[0].data)[0]["community"] == 1
    progress = {a.description: a.data for a in artifacts if a.type == "progress"}
    for step in ("embed: supersteps 2/2", "posteriors: partitions 1/1"):
        (done,) = (progress[text] for text in progress if text.startswith(step))
        assert done == 100.0


def main_ok(arguments: list[str]) -> None:
    assert ended(*arguments) == 0


@pytest.mark.parametrize("limit", ["10.0 MiB", "200.0 MiB"])
def test_plan_that_does_not_fit_ends_with_status_3(tables, capfd, limit):
    sentence = refused(
        capfd,
        run(tables, f"--set=cluster.memory_limit={limit}", "--set=cluster.workers=1"),
        status=3,
    )
    assert f"may use {limit}" in sentence
    assert "cluster.memory_limit" in sentence


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_is_complete(tables, closed):
    words = [*PROGRAM, *run(tables)]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tables.parent / "run" / "prevalence.parquet").exists()
