"""`xnq-dist doctor DIR` names planted faults with their fixes, and only those."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.commands import ended
from tests.app.test_status import lock
from tests.conftest import flip
from tests.disks import NoSmallDisk, mounted
from xnq_dist.app import checks
from xnq_dist.app.checks import Check, examine_directory
from xnq_dist.core.store import sealed


def findings(run: Path) -> dict[str, Check]:
    """Checks that find something, by name."""
    found = examine_directory(str(run))
    return {check.name: check for check in found if check.state != "ok"}


def rewritten(name: str, **changes: Any) -> Callable[[Path], None]:
    """Changes values of a sealed record, or of a mapping in it."""

    def plant(run: Path) -> None:
        values = json.loads((run / name).read_text())
        for key, new in changes.items():
            values[key] = values[key] | new if isinstance(new, dict) else new
        (run / name).write_text(sealed(values))

    return plant


def damaged_file(run: Path) -> None:
    (file, *_) = run.glob("embeddings/*.parquet")
    flip(file)


FAULTS: dict[str, tuple[Callable[[Path], Any], str, str, str]] = {
    "live owner": (lock, "last run", "note", "running: wait"),
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
    "bad settings": (
        rewritten("_run.json", settings={"seed": -1}),
        *("due", "fault", "seed"),
    ),
    "killed": (
        rewritten(
            "_status.json",
            **{"state": "running", "ended": None, "stage": "embed", "step": "rounds"},
        ),
        *("last run", "note", "stopped.*resumes"),
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


@pytest.mark.faults
def test_a_read_only_disk_is_named(tmp_path):
    try:
        with mounted(tmp_path / "disk", "64m") as disk:
            disk.set_read_only()
            check = checks.disk(str(disk.folder / "run"))
            disk.set_read_only(False)
    except NoSmallDisk as why:
        pytest.skip(str(why))
    assert check.state == "fault"
    assert "make the folder writable" in check.text


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert checks.disk(str(tmp_path / "file" / "x")).state == "fault"
    assert checks.disk(str(tmp_path / "new")).state == "ok"


def test_an_object_store_is_tested_without_a_question_for_its_free_space():
    check = checks.disk("memory://a-folder")
    assert (check.state, check.text) == ("ok", "memory://a-folder can be written")
