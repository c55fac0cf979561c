"""The temporary Prefect API: where it is wanted, waited for, and gone with its flow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from flows import server
from xnq_dist.errors import InfrastructureError

TELL = """
from flows.environment import prepare_environment
prepare_environment()
from flows.server import start_api
ready = start_api()
"""

ASK = (
    TELL
    + """
import os, sys, time
ready()
from prefect import flow, get_client

@flow
def asks():
    from prefect.context import FlowRunContext
    with get_client(sync_client=True) as client:
        mine = FlowRunContext.get().flow_run.id
        print(client.api_url, client.read_flow_run(mine).state.name, flush=True)

asks()
if len(sys.argv) > 1:
    time.sleep(120)
"""
)


def environment(home: dict[str, str], **more: str) -> dict[str, str]:
    return {k: v for k, v in home.items() if k != "PREFECT_API_URL"} | more


def says(code: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.server
def test_no_api_of_our_own_where_one_is_configured_or_forbidden(prefect_home, tmp_path):
    code = TELL + "print(ready)"
    theirs = "http://127.0.0.1:9/api"
    assert says(code, environment(prefect_home, PREFECT_API_URL=theirs)) == "None"
    without = environment(prefect_home, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE="false")
    assert says(code, without) == "None"
    # A profile is a configuration as well: `prefect config set` writes there.
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        f'active = "x"\n[profiles.x]\nPREFECT_API_URL = "{theirs}"\n', encoding="utf-8"
    )
    kept = environment(prefect_home, PREFECT_PROFILES_PATH=str(profiles))
    assert says(code, kept) == "None"


@pytest.mark.server
@pytest.mark.parametrize("number", [None, signal.SIGKILL], ids=["at its end", "killed"])
def test_the_flow_talks_to_it_and_it_does_not_stay_behind(prefect_home, number):
    command = [sys.executable, "-c", ASK, *(["stay"] if number else [])]
    with subprocess.Popen(
        command,
        env=environment(prefect_home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        ours = psutil.Process(running.pid)
        children: set[psutil.Process] = set()
        end = time.monotonic() + 120
        while not children and time.monotonic() < end:
            children.update(ours.children())
            time.sleep(0.05)
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line.startswith("http://127.0.0.1:")
        assert line.strip().endswith("Running")
        if number:
            os.kill(running.pid, number)
        running.wait(60)
    assert len(children) == 1
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_a_server_that_ends_is_said_in_a_sentence():
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as ended:
        ended.wait(60)
        with pytest.raises(InfrastructureError, match=r"status 7.*PREFECT_API_URL"):
            server._wait(ended, 9, 60.0)


def test_a_server_that_hangs_is_not_waited_for_without_end():
    code = "import sys; sys.stdin.read()"
    hangs = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        with server.socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with pytest.raises(InfrastructureError, match="TimeoutError"):
                server._wait(hangs, port, 0.2)
    finally:
        server._stop(hangs)
    assert hangs.returncode == 0
