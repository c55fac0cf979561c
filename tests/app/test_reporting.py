"""What Prefect shows of a flow run, and an API that does not answer."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import httpx
import pytest
from prefect.client.orchestration import get_client

from flows.nightly import nightly
from tests.app.commands import SMALL, run_words
from tests.app.conftest import running_server
from tests.conftest import small_settings, wait_until, write_graph
from xnq_dist.monitor import on_prefect
from xnq_dist.monitor.on_prefect import await_api
from xnq_dist.monitor.status import sentence_of

LEAVES_PREFECT_OUT = """
import sys
from xnq_dist.app.cli import main

try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
sys.exit("prefect" in sys.modules)
"""


def test_a_run_of_the_command_line_leaves_prefect_unimported(tmp_path):
    write_graph(tmp_path / "input", nodes=200, edges=700)
    words = run_words(tmp_path / "input", tmp_path / "run", *SMALL)
    call = [sys.executable, "-c", LEAVES_PREFECT_OUT, *words]
    subprocess.run(call, timeout=240, check=True)
    assert (tmp_path / "run" / "prevalence.parquet").exists()


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


def test_an_api_that_was_lost_is_named_with_status_4():
    lost = RuntimeError("Failed to reach API")
    lost.__cause__ = httpx.ConnectError("refused")
    sentence, status = sentence_of(lost, "run")
    assert "the connection to Prefect's API was lost (ConnectError refused)" in sentence
    assert status == 4


FLOW = """
import sys
from flows.nightly import nightly
from tests.conftest import small_settings

nodes, edges, out = sys.argv[1:]
settings = small_settings("cluster.workers=1")
assert nightly(nodes, edges, out, settings=settings, return_state=True).is_completed()
"""


@pytest.mark.faults
@pytest.mark.server
def test_a_run_continues_when_an_api_that_stopped_in_the_middle_is_back(
    prefect_home, tmp_path
):
    sources, out = write_graph(tmp_path, nodes=200, edges=700).sources, tmp_path / "run"
    words = (sources.nodes, sources.edges, str(out))
    with running_server(prefect_home) as (url, server):
        running = subprocess.Popen(
            [sys.executable, "-c", FLOW, *words],
            env=prefect_home | {"PREFECT_API_URL": url},
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until((out / "graph" / "_manifest.json").exists, 120, 0.02)
        server.send_signal(signal.SIGSTOP)
        time.sleep(10)
        server.send_signal(signal.SIGCONT)
        _, log = running.communicate(timeout=240)
    assert running.returncode == 0, log
    assert (out / "report.html").exists()


@pytest.mark.server
def test_a_flow_run_shows_the_packages_log_lines_and_how_it_ended(
    tmp_path, prefect_api
):
    sources = write_graph(tmp_path, nodes=200, edges=700).sources
    given = (sources.nodes, sources.edges, str(tmp_path / "run"))
    settings = small_settings("cluster.workers=1")
    state = nightly(*given, settings=settings, return_state=True)
    run_id = str(state.state_details.flow_run_id)
    assert state.message.startswith("First results")
    missing = ("missing.parquet", *given[1:])
    failed = nightly(*missing, settings=settings, return_state=True)
    assert "Next: correct" in failed.message
    with get_client(sync_client=True) as client:

        def logged() -> bool:
            logs = client.request("POST", "/logs/filter", json={}).json()
            ours = [line["message"] for line in logs if line["flow_run_id"] == run_id]
            begun = any(text.startswith("embed: start") for text in ours)
            return begun and any("log-loss" in text for text in ours)

        wait_until(logged, 30)
