"""The command `requantify`, and runs of which some stages are complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.commands import SHORT, ended
from tests.conftest import write_graph
from xnq_dist.core import cluster
from xnq_dist.core.store import RunDirectory

QUICK = (
    *SHORT,
    "readout.folds=3",
    "quantifier=pcc",
    "cluster.workers=1",
    "cluster.threads=1",
    "partitions=2",
)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of the clusters that the tests start."""
    kinds: list[str] = []
    real = cluster.open_cluster

    def seen(settings: Any, *arguments: Any) -> Any:
        kinds.append(settings.kind)
        return real(settings, *arguments)

    monkeypatch.setattr(cluster, "open_cluster", seen)
    return kinds


def memberships(folder: Path, shift: int) -> str:
    nodes = list(range(100))
    table = pa.table(
        {"community": [(node + shift) // 20 for node in nodes], "node_id": nodes}
    )
    path = folder / f"memberships-{shift}.parquet"
    pq.write_table(table, path)
    return str(path)


def test_commands_do_what_changed_and_start_workers_only_for_it(
    tmp_path, capfd, started, tls_settings
):
    graph = write_graph(tmp_path, nodes=100, edges=300)
    out, other = str(tmp_path / "run"), str(tmp_path / "other")
    tables = ["--nodes", graph.sources.nodes, "--edges", graph.sources.edges]
    tables += ["--memberships", memberships(tmp_path, 0), "--out", out]
    quick = [f"--set={setting}" for setting in QUICK]
    quick += [f"--set=cluster.{name}={value}" for name, value in tls_settings.items()]
    assert ended("run", *tables, *quick) == 0
    assert started == ["address"]
    graph_stage = RunDirectory(out).stage("graph").manifest()

    # Only the page depends on the setting, so it is published without workers.
    assert ended("run", *tables, *quick, "--set=anomalies.rate=0.2") == 0
    assert started == ["address"]
    capfd.readouterr()
    assert ended("run", *tables, *quick, "--set=anomalies.rate=0.2") == 0
    assert "nothing changed since" in capfd.readouterr().out
    assert started == ["address"]

    asked = ["--run", out, "--memberships", memberships(tmp_path, 10), "--json"]
    assert ended("requantify", *asked, "--out", other) == 0
    summary = json.loads(capfd.readouterr().out.strip().splitlines()[-1])
    assert summary["run"] == other
    assert summary["communities"] == 6
    assert set(summary["stages"]) == {"labels", "quantify", "publish"}
    assert len(started) == 2
    assert RunDirectory(other).stage("graph").manifest() == graph_stage
    assert pq.read_table(f"{other}/prevalence.parquet").num_rows == 12

    # Once more: nothing is left to do, so no cluster is started.
    assert ended("requantify", *asked, "--out", other) == 0
    summary = json.loads(capfd.readouterr().out.strip().splitlines()[-1])
    assert set(summary["stages"]) == {"labels"}
    assert len(started) == 2
