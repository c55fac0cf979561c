"""The deployment `nightly` while workers, flow runs and their processes are killed.

With `deploy/prefect.yaml`, `deploy/automations.yaml`, a real server and real workers.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.app.conftest import (
    PREFECT,
    ROOT,
    deploy,
    end_all,
    prefect,
    running_server,
    start_worker,
)
from tests.conftest import published_values, started, wait_until, write_graph
from xnq_dist.core.config import load_settings
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import run_all

pytestmark = [pytest.mark.server, pytest.mark.faults]

NEVER = {"interval": 10**8, "active": False}
LONG = {
    "reservoir": {
        "dim": 32,
        "supersteps": 8000,
        "recurrent_scale": 3.0,
        "input_scale": 0.5,
    },
    "method": "xnq",
    "partitions": 2,
    "checkpoint": {"every": 100},
}
"""Settings of an embedding that lasts some seconds."""


@pytest.fixture
def server(tmp_path, prefect_home) -> Iterator[dict[str, str]]:
    """The environment of a server with the automations of this project."""
    environment = prefect_home | {"PREFECT_HOME": str(tmp_path / "prefect")}
    with running_server(environment) as (url, _):
        yield environment | {"PREFECT_API_URL": url}


def automate(environment: dict[str, str], folder: Path, silence: int) -> None:
    """Create the automations, with another time without a sign of life, in seconds."""
    text = (ROOT / "deploy" / "automations.yaml").read_text()
    automations = yaml.safe_load(text)["automations"]
    automations[0]["trigger"]["within"] = silence
    file = folder / "automations.yaml"
    file.write_text(yaml.safe_dump({"automations": automations}))
    prefect(environment, "automation", "create", "--from-file", str(file))


def ask(environment: dict[str, str], method: str, path: str, **values: object) -> Any:
    """An answer of the server, which asks for patience while its database is busy."""
    end = time.monotonic() + 60
    while True:
        url = environment["PREFECT_API_URL"] + path
        answer = httpx.request(method, url, json=values, timeout=60)
        if answer.status_code != 503 or time.monotonic() > end:
            answer.raise_for_status()
            return answer.json()
        time.sleep(0.5)


def flow_runs(environment: dict[str, str]) -> list[dict[str, Any]]:
    """All flow runs that the server knows."""
    return ask(environment, "POST", "/flow_runs/filter")


def schedule_late(environment: dict[str, str], minutes: int) -> None:
    """Schedule a run of the deployment some minutes ago."""
    found = ask(environment, "GET", "/deployments/name/xnq-nightly/nightly")
    due = datetime.now(UTC) - timedelta(minutes=minutes + 1)
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": due.isoformat()}}
    path = f"/deployments/{found['id']}/create_flow_run"
    ask(environment, "POST", path, state=state)


def states(environment: dict[str, str]) -> Counter[str]:
    return Counter(run["state_type"] for run in flow_runs(environment))


def checkpointed(run: Path) -> bool:
    return bool(list(run.glob("checkpoints/step-*/_manifest.json")))


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> Path:
    """A folder with a graph and the same run, never interrupted."""
    folder = tmp_path_factory.mktemp("calm")
    write_graph(folder / "input", nodes=3000, edges=9000)
    tables = (str(folder / "input" / f"{name}.parquet") for name in ("nodes", "edges"))
    settings = load_settings(
        base={
            "readout": {"C": 1.0},
            "cluster": {"workers": 1, "threads": 1},
            **LONG,
        }
    )
    run_all(Sources(*tables), str(folder / "run"), settings)
    return folder


def test_of_thirty_late_runs_one_is_done_and_none_fails(server, tmp_path):
    run = deploy(server, tmp_path, NEVER)
    for minutes in range(30):  # what the scheduler made while no worker was there
        schedule_late(server, minutes)
    wait_until(lambda: {r["state_name"] for r in flow_runs(server)} == {"Late"})
    worker = start_worker(server)
    try:
        wait_until(lambda: (run / "published.json").exists())
        wait_until(lambda: set(states(server)) <= {"COMPLETED", "CANCELLED"})
    finally:
        end_all(worker)
    assert states(server) == {"COMPLETED": 1, "CANCELLED": 29}


@pytest.mark.parametrize("killed", ["flow run", "worker and flow run"])
def test_a_killed_run_is_started_again_with_the_same_bits(
    server, calm, tmp_path, killed
):
    shutil.copytree(calm / "input", tmp_path / "input")
    run = deploy(server, tmp_path, NEVER, **LONG)
    automate(server, tmp_path, silence=70)
    prefect(server, "deployment", "run", "xnq-nightly/nightly")
    worker = start_worker(server)
    try:
        wait_until(lambda: checkpointed(run))
        if killed == "flow run":
            for process in psutil.Process(worker.pid).children(recursive=True):
                process.kill()
        else:
            # Everything on the machine at once, as when it loses power.
            end_all(worker)
            worker = start_worker(server)
        assert not (run / "published.json").exists()
        wait_until(lambda: set(states(server)) == {"COMPLETED"}, 400)
    finally:
        end_all(worker)
    assert_ended_on_the_second_try(server, run, calm)


def assert_ended_on_the_second_try(server, run, calm):
    (only,) = flow_runs(server)
    assert only["run_count"] == 2
    assert published_values(run).equals(published_values(calm / "run"))


def test_a_container_that_is_asked_to_end_saves_its_work_and_reschedules_its_run(
    server, calm, tmp_path
):
    """As a pod ends: SIGTERM to its first process, which Prefect's work pool starts."""
    shutil.copytree(calm / "input", tmp_path / "input")
    rarely = {**LONG, "checkpoint": {"every": 4000}}
    run = deploy(server, tmp_path, NEVER, **rarely)
    prefect(server, "deployment", "run", "xnq-nightly/nightly")
    (made,) = flow_runs(server)
    text = (ROOT / "deploy" / "prefect.yaml").read_text()
    variables = yaml.safe_load(text)["definitions"]["pool"]["job_variables"]["env"]
    environment = server | variables | {"XNQ_ROOT": str(ROOT)}
    execute = (PREFECT, "flow-run", "execute", made["id"])
    pod = started(*execute, env=environment, cwd=ROOT)
    try:
        wait_until(lambda: checkpointed(run))
        time.sleep(0.2)
        pod.terminate()
        assert pod.wait(60) == 0  # the pods' terminationGracePeriodSeconds
    finally:
        pod.kill()
    assert [each["state_name"] for each in flow_runs(server)] == ["AwaitingRetry"]
    steps = [int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/*")]
    assert max(steps) % 4000
    worker = start_worker(server)
    try:
        wait_until(lambda: set(states(server)) == {"COMPLETED"}, 400)
    finally:
        end_all(worker)
    assert_ended_on_the_second_try(server, run, calm)
