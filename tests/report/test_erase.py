"""One person's rows are removed from everything in a run directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.errors import InfrastructureError, RunDirectoryError
from xnq_dist.core.lock import run_lock
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    Published,
    RunDirectory,
    read_published,
    verify,
)
from xnq_dist.report import erase, report


def graph_with(run: RunDirectory, ids: pa.Array) -> None:
    """Write a stage graph of one partition with these nodes."""
    stage = run.stage("graph")
    facts = stage.manifest().facts
    attempt = stage.begin()
    rows = len(ids)
    features = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows, "f4")), 1)
    nodes = pa.table(
        {
            "node_id": ids,
            "index": np.arange(rows),
            "features": features,
        }
    )
    record = attempt.write_table("nodes-00000", nodes, "graph_nodes")
    stage.commit(attempt, [record], "print-graph", {}, facts, 1.0)


@pytest.fixture(params=["strings", "integers"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunDirectory:
    """A run with the nodes 7, 8 and 9, in two versions."""
    ids = pa.array([7, 8, 9], pa.int64())
    if request.param == "strings":
        ids = ids.cast(pa.string())
    detected = pa.table({"community": np.array([0, 0, 1]), "node_id": ids})
    found = write_fake_run(
        tmp_path / "run", [prevalence_table(np.arange(2))], detected=detected
    )
    graph_with(found, ids)
    for rate in (0.1, 0.2):
        report(found, Settings(anomalies={"rate": rate}))
    # An earlier version kept damaged files there.
    found.folder.child("quarantine/readout").create()
    return found


def nodes_of(path: str | Path) -> list[str]:
    return [str(node) for node in pq.read_table(path)["node_id"].to_pylist()]


def test_erased_node_is_gone_from_versions_and_stages(
    run: RunDirectory,
) -> None:
    top = Path(run.uri, "communities.parquet")
    assert nodes_of(top) == ["7", "8", "9"]
    done = erase(run.uri, "8")
    assert (done.rows, len(done.tables)) == (2, 2)
    assert f"{run.uri}/graph" in done.stages
    versions = Published(run).versions()
    assert len(versions) == 2
    for version in versions:
        assert nodes_of(version.path("communities")) == ["7", "9"]
    assert nodes_of(top) == ["7", "9"]
    assert nodes_of(read_published(run.uri).path("communities")) == ["7", "9"]
    assert run.stages() == []
    assert not run.folder.exists("quarantine")
    assert verify(run.uri) == []


def test_node_that_is_not_there_leaves_stages_and_results(run: RunDirectory) -> None:
    before = Path(run.uri, "communities.parquet").read_bytes()
    done = erase(run.uri, "nobody")
    assert (done.rows, done.tables, done.stages) == (0, (), ())
    assert Path(run.uri, "communities.parquet").read_bytes() == before
    assert run.stage("graph").manifest() is not None


def test_directory_in_use_or_of_another_kind_is_refused(
    run: RunDirectory, tmp_path: Path
) -> None:
    with (
        run_lock(run.folder),
        pytest.raises(InfrastructureError, match="in use by process"),
    ):
        erase(run.uri, "8")
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        erase(str(tmp_path / "elsewhere"), "8")
