"""A cron run through `deploy/prefect.yaml`, a Prefect server and a worker, for real.

`pip check` does not see the faults of Prefect's dependencies that this does: a client
that its own server refuses, scheduled runs that are never created.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tests.conftest import write_graph

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
PREFECT = str(Path(sys.executable).with_name("prefect"))


@pytest.fixture
def deployed(tmp_path, server_environment) -> Iterator[Path]:
    """The deployment `nightly` of a small graph, every minute; its run directory."""
    write_graph(tmp_path / "input", nodes=200, edges=700)
    description = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
    nightly = description["deployments"][0]
    nightly["schedules"][0]["cron"] = "* * * * *"
    nightly["parameters"] = {
        "nodes": str(tmp_path / "input" / "nodes.parquet"),
        "edges": str(tmp_path / "input" / "edges.parquet"),
        "out": str(tmp_path / "run"),
        "settings": {
            "reservoir": {
                "dim": 8,
                "supersteps": 2,
                "recurrent_scale": 1.0,
                "input_scale": 0.5,
            },
            "readout": {"C": 1.0},
            "cluster": {"workers": 1, "threads": 1},
        },
    }
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump(description))
    environment = server_environment | {"XNQ_ROOT": str(ROOT)}
    for command in (
        ["work-pool", "create", "--type", "process", "xnq"],
        ["--no-prompt", "deploy", "--prefect-file", str(file), "--name", "nightly"],
    ):
        done = subprocess.run(
            [PREFECT, *command],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    worker = subprocess.Popen(
        [PREFECT, "worker", "start", "--pool", "xnq", "--limit", "1"],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield tmp_path / "run"
    finally:
        worker.terminate()
        worker.wait(60)


def test_a_cron_run_happens(deployed):
    end = time.monotonic() + 240
    while not (deployed / "_manifest.json").exists():
        assert time.monotonic() < end, "no scheduled run came to its end"
        time.sleep(1)
    assert pq.read_table(deployed / "prevalence.parquet").num_rows > 0
