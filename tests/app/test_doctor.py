"""`xnq-dist doctor DIR` names planted faults with their fixes, and only those."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.commands import ended
from tests.app.test_status import lock
from tests.disks import NoSmallDisk, mounted
from xnq_dist.app import machine_checks
from xnq_dist.app.directory_checks import Check, examine_directory
from xnq_dist.core.config import load_settings
from xnq_dist.core.lock import LOCK, _machine
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory, sealed


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch) -> Path:
    """A temporary folder without those of other tests."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def findings(run: Path, settings: Settings | None = None) -> dict[str, Check]:
    """Checks that find something, by name."""
    found = examine_directory(str(run), settings)
    return {check.name: check for check in found if check.state != "ok"}


def dead_process() -> int:
    """Number of a process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(60)
    return process.pid


def rewritten(name: str, **changes: Any) -> Callable[[Path], None]:
    """Changes values of a sealed record, or of a mapping in it."""

    def plant(run: Path) -> None:
        values = json.loads((run / name).read_text())
        for key, new in changes.items():
            values[key] = values[key] | new if isinstance(new, dict) else new
        (run / name).write_text(sealed(values))

    return plant


def of_settings(run: Path, *overrides: str) -> Settings:
    record = RunRecord.read(RunDirectory(run).folder)
    assert record is not None
    return load_settings(base=record.settings, overrides=overrides)


def dead_owner(run: Path) -> None:
    lock(run, pid=dead_process(), machine=_machine(RunDirectory(run).folder))


def silent_owner_elsewhere(run: Path) -> None:
    lock(run, heartbeat=time.time() - 7200)
    os.utime(run / LOCK, (time.time() - 7200,) * 2)


def damaged_file(run: Path) -> None:
    (file, *_) = run.glob("embeddings/*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 16
    file.write_bytes(data)


FAULTS: dict[str, tuple[Callable[[Path], Any], str, str, str]] = {
    "dead owner": (dead_owner, "lock", "note", "run again, which takes the lock over"),
    "silent owner": (
        *(silent_owner_elsewhere, "lock", "note"),
        "77 on other, last heartbeat 7200 s ago",
    ),
    "live owner": (lock, "lock", "note", "wait for it to end"),
    "damaged file": (
        *(damaged_file, "files", "fault"),
        "differs from its checksum.*run again",
    ),
    "no manifest": (
        lambda run: (run / "readout" / "_manifest.json").unlink(),
        *("due", "note", "the next run makes readout"),
    ),
    "no version": (
        lambda run: shutil.rmtree(*(run / "versions").iterdir()),
        *("files", "fault", "not complete: run again"),
    ),
    "newer format": (
        rewritten("quantify/_manifest.json", version=99, versions={"xnq-dist": "9.1"}),
        *("format", "fault", "xnq-dist 9.1.*install that version"),
    ),
    "newer stage": (
        rewritten("graph/_manifest.json", inputs={"format": 99}),
        *("format", "fault", "graph was made by .* install that version"),
    ),
    "bad settings": (
        rewritten("_run.json", settings={"seed": -1}),
        *("record", "fault", "seed"),
    ),
    "killed": (
        rewritten(
            "_status.json",
            **{"state": "running", "ended": None, "stage": "embed", "step": "rounds"},
        ),
        *("last run", "note", "embed: rounds.*resumes"),
    ),
    "no table": (
        rewritten("_run.json", sources={"nodes": "none.parquet"}),
        *("due", "fault", "none.parquet does not exist"),
    ),
}


def test_every_check_of_a_healthy_directory_is_ok(run_copy):
    assert findings(run_copy) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_with_its_fix(run_copy, fault):
    plant, name, state, text = FAULTS[fault]
    plant(run_copy)
    found = findings(run_copy)
    assert found[name].state == state, found
    assert re.search(text, found[name].text), found[name].text


def test_verify_names_damaged_files_and_what_repairs_them(run_copy, capfd):
    assert ended("doctor", "--verify", str(run_copy), "--json") == 0
    shown = capfd.readouterr()
    assert f"{run_copy}: all files are intact" in shown.err
    assert json.loads(shown.out)["files"][0] == "ok"
    damaged_file(run_copy)
    assert ended("doctor", "--verify", str(run_copy)) == 1
    words = r"parquet differs from its checksum between byte 0 and.*makes it again"
    assert re.search(words, capfd.readouterr().out, re.DOTALL)


def test_changed_settings_are_named_with_what_they_make_due(run_copy):
    found = findings(run_copy, of_settings(run_copy, "readout.C=0.5"))
    assert "readout.C: 1 -> 0.5" in found["settings"].text
    assert "the next run makes readout, posteriors, quantify" in found["due"].text
    assert {*found} == {"settings", "due"}


@pytest.mark.parametrize("kind", ["auto", "local"])
def test_a_memory_limit_above_the_machines_is_named(run_copy, kind):
    wide = (f"cluster.kind={kind}", "cluster.memory_limit=9TiB")
    found = findings(run_copy, of_settings(run_copy, *wide))
    assert found["memory limit"].state == "fault"
    assert "set it to auto" in found["memory limit"].text


@pytest.mark.faults
def test_a_disk_that_is_nearly_full_or_read_only_is_named(finished_run, tmp_path):
    try:
        with mounted(tmp_path / "disk", "64m") as disk:
            run = disk.folder / "run"
            subprocess.run(
                ["cp", "-a", str(finished_run), str(run)], check=True, timeout=60
            )
            assert "retention.versions" in findings(run)["space"].text
            disk.set_read_only()
            check = machine_checks.disk(str(run))
            disk.set_read_only(False)
    except NoSmallDisk as why:
        pytest.skip(str(why))
    assert check.state == "fault"
    assert "make the folder writable" in check.text


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert machine_checks.disk(str(tmp_path / "file" / "x")).state == "fault"
    assert machine_checks.disk(str(tmp_path / "new")).state == "ok"


@pytest.mark.server
def test_a_prefect_api_that_does_not_respond_is_named():
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        found = machine_checks.prefect()
    assert found.state == "fault"
    assert "run `prefect server start`" in found.text
