"""Reports to Prefect's API, which never delay a run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from tests.app.commands import PROGRAM, SMALL, executed, run_words
from tests.app.conftest import running_server
from tests.conftest import wait_until, write_graph
from xnq_dist.app import running
from xnq_dist.core.errors import SettingsError
from xnq_dist.monitor import on_prefect
from xnq_dist.monitor.on_prefect import PrefectRun, await_api
from xnq_dist.monitor.prefect_reports import GRACE
from xnq_dist.monitor.progress import in_view


def arguments(graph: Path, out: Path, *more: str) -> list[str]:
    return [*run_words(graph, out, *SMALL), "--json", *more]


def start(graph: Path, out: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *arguments(graph, out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def without_api(home: dict[str, str], **more: str) -> dict[str, str]:
    return {k: v for k, v in home.items() if k != "PREFECT_API_URL"} | more


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reporting") / "input"
    write_graph(folder, nodes=200, edges=700)
    return folder


LEAVES_PREFECT_OUT = """
import sys
from xnq_dist.app.cli import main

try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
sys.exit("prefect" in sys.modules)
"""


@pytest.fixture(scope="module")
def plain(graph, prefect_home) -> Path:
    """A run without reports, which does not import Prefect's client."""
    out = graph.parent / "plain"
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_PREFECT_OUT, *arguments(graph, out)],
        env=without_api(prefect_home),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def same_results(out: Path, plain: Path) -> bool:
    tables = [pq.read_table(f / "prevalence.parquet") for f in (out, plain)]
    return (out / "report.html").exists() and tables[0].equals(tables[1])


def test_a_run_without_an_api_leaves_prefect_unimported(plain):
    assert (plain / "prevalence.parquet").exists()


@pytest.mark.faults
def test_a_silent_api_is_waited_for_at_the_end_alone(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings({PREFECT_API_URL: url}):
            began = time.monotonic()
            report = PrefectRun("xnq-dist")
            with report.reported():
                for number in range(100):
                    report.do("graph", lambda p, n=number: p("nodes", n, 100))
                spent = time.monotonic() - began
            assert spent < 1
            assert GRACE <= time.monotonic() - began < GRACE + 3


def test_the_end_of_a_run_waits_until_the_api_is_back(monkeypatch, caplog):
    down = OSError("down")
    answers = [down, down, None]
    client = SimpleNamespace(api_healthcheck=lambda: answers.pop(0))
    monkeypatch.setattr(on_prefect, "get_client", lambda **_: nullcontext(client))
    monkeypatch.setattr(on_prefect, "POLL", 0.01)
    await_api(60.0)
    assert answers == []
    assert caplog.text.count("does not answer") == 1
    answers += [down] * 1000
    await_api(0.05)
    assert answers


@pytest.mark.faults
@pytest.mark.server
def test_results_are_the_same_with_an_api_that_stops_in_the_middle(
    graph, plain, prefect_home, tmp_path
):
    out = tmp_path / "run"
    with running_server(prefect_home) as (url, server):
        running = start(graph, out, without_api(prefect_home, PREFECT_API_URL=url))
        wait_until((out / "graph" / "_manifest.json").exists, 120, 0.02)
        server.send_signal(signal.SIGSTOP)
        try:
            _, log = running.communicate(timeout=240)
        finally:
            server.send_signal(signal.SIGCONT)
    assert running.returncode == 0, log
    assert same_results(out, plain)


@pytest.mark.ci
def test_a_run_is_a_flow_run_with_a_task_run_a_stage(
    graph, server_environment, tmp_path
):
    running = start(graph, tmp_path / "run", server_environment)
    _, log = running.communicate(timeout=240)
    assert running.returncode == 0, log
    from prefect.client.orchestration import SyncPrefectClient

    with SyncPrefectClient(server_environment["PREFECT_API_URL"]) as client:
        where = str(tmp_path / "run")
        (found,) = [
            r for r in client.read_flow_runs() if r.parameters.get("out") == where
        ]
        assert found.state_name == "Completed"
        tasks = client.request("POST", "/task_runs/filter", json={}).json()
        logs = client.request("POST", "/logs/filter", json={}).json()
        artifacts = client.read_artifacts()
    states = {
        t["name"]: t["state_name"] for t in tasks if t["flow_run_id"] == str(found.id)
    }
    assert states == dict.fromkeys(
        ("graph", "embed", "readout", "posteriors", "quantify", "publish"), "Completed"
    )
    assert any("log-loss" in line["message"] for line in logs)
    shown = {a.key or a.description for a in artifacts if a.flow_run_id == found.id}
    assert {"xnq-prevalence", "xnq-run"} <= shown
    for step in ("embed: supersteps", "posteriors: partitions"):
        assert any(text.startswith(step) for text in shown)


@pytest.mark.ci
def test_reporting_without_an_api_is_refused(graph, tmp_path, prefect_home):
    # In a new process, since other tests have an API in this one.
    done = executed(*arguments(graph, tmp_path / "run", "--prefect"), env=prefect_home)
    assert done.returncode == 2
    assert "prefect server start" in done.stderr


def test_without_prefect_a_run_is_only_reported_on_request(monkeypatch, caplog):
    monkeypatch.setattr(running, "find_spec", lambda name: None)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr(running.log, "propagate", True)
    with running.reporting(False, "xnq-dist", {}) as do:
        assert do == in_view
    assert "pip install 'xnq-dist[prefect]'" in caplog.text
    with (
        pytest.raises(SettingsError, match="--prefect needs Prefect"),
        running.reporting(True, "xnq-dist", {}),
    ):
        pass
