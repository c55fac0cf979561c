"""What a run records about itself while it works and when it has ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.app.test_bad_input import main_ok
from tests.conftest import wait_until
from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.core.lock import LOCK, run_lock
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import RunDirectory, sealed
from xnq_dist.monitor.on_prefect import results_text
from xnq_dist.monitor.progress import expecting, in_view
from xnq_dist.monitor.status import RunStatus, recorded, standing
from xnq_dist.steps.publish import publish


@pytest.fixture
def begun(tmp_path) -> RunDirectory:
    """A run directory without stages."""
    run = RunDirectory(tmp_path / "run")
    run.create()
    RunRecord().write(run)
    return run


def lock(run: Path, **values) -> None:
    """Write the lock of a process of another machine."""
    there = {"host": "other", "machine": "other", "pid": 77}
    record = {"token": "x", "heartbeat": time.time(), **there, **values}
    (run / LOCK).write_text(sealed(record))


def test_a_finished_run_has_its_results_and_nothing_to_do(finished_run):
    found = standing(str(finished_run))
    assert found["state"] == "finished"
    assert found["next"] == "nothing to do"
    assert found["report"] == str(finished_run / "report.html")
    assert found["published"]
    assert found["exit_code"] == 0


def test_a_run_shows_stage_superstep_and_owner_while_it_works(begun):
    def work(progress):
        progress("supersteps", 12, 30)

    with recorded(begun.uri) as status, run_lock(begun):
        in_view("embed", work)
        wait_until(lambda: standing(begun.uri).get("step") == "supersteps", 30)
        found = standing(begun.uri)
        assert (begun.read_record(LOCK) or {})["token"]  # still held
    assert found["state"] == "running"
    assert (found["step"], found["done"], found["total"]) == ("supersteps", 12, 30)
    assert found["place"] == "embed: supersteps 12/30"
    assert found["pid"] == os.getpid()
    assert found["heartbeat_age"] < 60
    assert found["run_id"] == status.run_id
    assert standing(begun.uri)["state"] == "finished"


def test_the_expected_time_of_a_long_run_is_logged(caplog):
    with caplog.at_level("INFO", "xnq_dist"):
        for seconds in (None, 59.0, 540.0):
            with expecting(seconds):
                pass
    assert caplog.messages == ["expected time: 9 min"]


def test_a_failed_run_shows_its_cause_and_what_is_next(begun):
    def work(progress):
        progress("read nodes", 1, 2)
        raise InputError("nodes.parquet has no column 'label'")

    with pytest.raises(InputError), recorded(begun.uri):
        in_view("graph", work)
    found = standing(begun.uri)
    assert found["state"] == "failed"
    assert found["message"] == "nodes.parquet has no column 'label'"
    assert found["exit_code"] == 2
    assert found["next"].startswith("correct the table or setting")
    with pytest.raises(KeyboardInterrupt), recorded(begun.uri):
        raise KeyboardInterrupt
    assert standing(begun.uri)["exit_code"] == InfrastructureError.exit_code
    lock(Path(begun.uri))  # the next run, before its first record
    assert (found := standing(begun.uri))["state"] == "running"
    assert "message" not in found


def test_a_killed_run_is_stopped_and_resumes_when_started_again(begun):
    begun.write_bytes("_status.json", sealed({"stage": "embed"}).encode())
    assert standing(begun.uri)["state"] == "stopped"
    assert "resumes" in standing(begun.uri)["next"]
    lock(Path(begun.uri))
    assert standing(begun.uri)["state"] == "running"
    assert standing(begun.uri)["host"] == "other"


def test_the_record_of_the_run_that_holds_the_directory_stays(begun):
    lock(Path(begun.uri))
    with pytest.raises(InfrastructureError), recorded(begun.uri):
        raise InfrastructureError("in use")
    assert RunStatus.read(begun) is None


def test_a_folder_that_is_no_run_directory_stays_empty(tmp_path):
    with recorded(str(tmp_path)):
        in_view("graph", lambda progress: progress("read nodes", 1, 2))
    assert list(tmp_path.iterdir()) == []


def test_status_prints_a_sentence_and_json_with_exit_code_0(finished_run, capsys):
    main_ok(["status", str(finished_run)])
    assert capsys.readouterr().out.startswith(f"{finished_run}: finished\n")
    main_ok(["status", str(finished_run), "--json"])
    assert json.loads(capsys.readouterr().out)["state"] == "finished"


def test_the_time_of_the_last_success_outlives_a_failure(begun):
    with recorded(begun.uri) as good:
        pass
    with pytest.raises(InputError), recorded(begun.uri):
        raise InputError("bad")
    assert RunStatus.read(begun).succeeded == good.ended


def test_the_message_for_prefect_has_the_changes_and_the_place_of_the_report(tmp_path):
    def night(seed: int) -> RunDirectory:
        names = [f"page {number}" for number in range(40)]
        table = prevalence_table(names, intervals=True, seed=seed)
        run = write_fake_run(tmp_path / "run", [table])
        publish(run, load_settings(overrides=["quantifier=auto"]))
        return run

    run = night(0)
    assert results_text(run, None, None).startswith("First results")
    before = run.current_id()
    assert results_text(run, before, None).startswith("Nothing changed")
    night(1)
    where = "http://reports.example/nightly/report.html"
    text = results_text(run, before, "http://reports.example/nightly/")
    assert f"0 new, 0 gone. Report: {where}" in text
