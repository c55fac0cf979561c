"""A cron run with `deploy/prefect.yaml`, a real Prefect server and a real worker.

`pip check` does not see the faults of Prefect's dependencies that this does: a client
that its own server refuses, scheduled runs that are never created.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from tests.app.conftest import deploy, end_all, prefect, running_server, start_worker
from tests.conftest import wait_until

pytestmark = pytest.mark.server


def test_a_cron_run_happens(tmp_path: Path, server_environment):
    every_minute = {"cron": "* * * * *", "timezone": "UTC"}
    run = deploy(server_environment, tmp_path, every_minute)
    worker = start_worker(server_environment, "--limit", "1")
    try:
        wait_until((run / "published.json").exists)
    finally:
        end_all(worker)
    assert pq.read_table(run / "prevalence.parquet").num_rows > 0


def test_a_run_by_hand_has_merged_settings_and_log_lines(tmp_path: Path, prefect_home):
    environment = prefect_home | {"PREFECT_HOME": str(tmp_path / "prefect")}
    with running_server(environment) as (url, _):
        environment["PREFECT_API_URL"] = url
        run = deploy(environment, tmp_path, {"interval": 10**8, "active": False})
        given = 'settings={"seed": 5, "reservoir": {"supersteps": 3}}'
        prefect(environment, "deployment", "run", "xnq-nightly/nightly", "-p", given)
        worker = start_worker(environment)
        try:
            wait_until(lambda: _states(url) == ["COMPLETED"])
            lines = httpx.post(f"{url}/logs/filter", json={}, timeout=60).json()
        finally:
            end_all(worker)
    settings = json.loads((run / "_run.json").read_text())["settings"]
    # The deployment's, those of this run, and the defaults.
    assert settings["reservoir"]["dim"] == 8
    assert settings["reservoir"]["supersteps"] == 3
    assert settings["seed"] == 5
    assert settings["intervals"]["level"] == 0.95
    ours = [line for line in lines if line["name"].startswith("xnq_dist.")]
    assert any("features" in line["message"] for line in ours)
    assert not [line for line in lines if line["name"].startswith("distributed")]


def _states(url: str) -> list[str]:
    runs = httpx.post(f"{url}/flow_runs/filter", json={}, timeout=60).json()
    return [run["state_type"] for run in runs]
