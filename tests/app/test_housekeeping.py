"""The deployment that removes old flow runs, old versions and temporary files."""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import flow, tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError

from flows.housekeeping import housekeeping
from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.config import load_settings
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import Published, RunDirectory
from xnq_dist.steps.publish import publish


@pytest.mark.server
def test_old_flow_runs_versions_and_temporary_files_go(
    tmp_path: Path, prefect_api: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "run")
    for night in range(3):
        run.reuse("quantify", {"tables": night})
        table = prevalence_table(["a", "b"], intervals=True, seed=night)
        settings = load_settings(overrides=["quantifier=auto"])
        publish(write_fake_run(tmp_path / "run", [table]), settings)
    RunRecord().write(run.folder)
    assert len(Published(run).versions()) == 3
    leftover = tmp_path / "run" / "prevalence.1234abcd.tmp"
    leftover.write_bytes(b"x")
    with tags("xnq"):
        flow(name="old")(lambda: None)()
    flow(name="of somebody else")(lambda: None)()
    scratch = tmp_path / "scratch"
    of_a_killed_worker = scratch / "prefect-workspace-attempt-ab12"
    of_somebody_else = scratch / "prefect-other"
    for folder in (of_a_killed_worker, of_somebody_else):
        folder.mkdir(parents=True)
    shared = tmp_path / "shm"
    shared.mkdir()
    (shared / "sem.mp-ab12").write_bytes(bytes(32))
    (shared / "sem.mp-used").write_bytes(bytes(32))
    used = (shared / "sem.mp-used").open("rb")
    mapped = mmap.mmap(used.fileno(), 0, access=mmap.ACCESS_READ)
    monkeypatch.setattr("flows.housekeeping.SHARED", str(shared))
    found = housekeeping([run.uri], 2, keep_flow_runs_days=0, scratch=str(scratch))
    assert found["flow_runs_deleted"] >= 1
    assert not leftover.exists()
    assert not of_a_killed_worker.exists()
    assert of_somebody_else.exists()
    assert [path.name for path in shared.iterdir()] == ["sem.mp-used"]
    mapped.close()
    used.close()
    assert len(Published(run).versions()) == 2
    assert Published(run).current() is not None
    with get_client(sync_client=True) as client:
        left = client.read_flow_runs()
    assert not [each for each in left if "xnq" in each.tags]
    assert left


@pytest.mark.server
@pytest.mark.parametrize("before", [0, 1])
def test_flow_runs_that_a_busy_server_keeps_are_left_for_the_next_time(
    before: int,
    tmp_path: Path,
    prefect_api: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also one that the server's own retention deletes in between."""
    for _ in range(3):
        with tags("xnq"):
            flow(name="old")(lambda: None)()
    delete = SyncPrefectClient.delete_flow_run
    asked: list[Any] = []

    def busy(client: SyncPrefectClient, number: Any) -> None:
        asked.append(number)
        if len(asked) > before:
            request = httpx.Request("DELETE", "http://server/api/flow_runs")
            response = httpx.Response(503, request=request)
            cause = httpx.HTTPStatusError("", request=request, response=response)
            raise PrefectHTTPStatusError.from_httpx_error(cause)
        delete(client, number)
        delete(client, number)

    monkeypatch.setattr(SyncPrefectClient, "delete_flow_run", busy)
    state = housekeeping([], keep_flow_runs_days=0, return_state=True)
    if before:
        assert state.is_completed()
        assert state.result()["flow_runs_deleted"] == 1
        assert "left for the next time: 503 Service Unavailable" in caplog.text
    else:
        assert state.is_failed()
        assert "deletes no flow runs (it answers 503 Service Una" in state.message


@pytest.mark.server
def test_a_folder_that_is_no_run_directory_is_named(
    tmp_path: Path, prefect_api: None
) -> None:
    failed = housekeeping([str(tmp_path)], return_state=True)
    assert failed.is_failed()
    assert "is not a run directory: correct the parameter runs" in failed.message


@pytest.mark.server
def test_a_housekeeping_that_takes_too_long_fails_with_a_sentence(
    tmp_path: Path, prefect_api: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.housekeeping._clean", lambda *_: time.sleep(600))
    state = housekeeping([str(tmp_path)], timeout=0.5, return_state=True)
    assert state.is_failed()
    assert "longer than its parameter timeout" in state.message
