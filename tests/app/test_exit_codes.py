"""Exit status of real commands that are interrupted or lose their infrastructure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.commands import PROGRAM, SMALL, run_words
from tests.chaos.processes import Cluster
from tests.conftest import started, wait_until, write_graph

pytestmark = pytest.mark.faults

SETTINGS = (
    *SMALL,
    *("reservoir.supersteps=20", "checkpoint.every=5", "partitions=2"),
    *("intervals.resamples=20", "cluster.timeout=20"),
)
WITH_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Under `nohup` or a shell's `&`, a run would ignore these signals."""


class Running:
    """A run in a process group of its own, whose output is kept in files."""

    def __init__(self, tables: Path, out: Path, *more: str) -> None:
        self.out = out
        self._files = [out.parent / f"{out.name}.{name}" for name in ("out", "err")]
        words = [*PROGRAM, *run_words(tables, out, *SETTINGS, *more), "--json"]
        temporary = {"TMPDIR": str(out.parent), "PYTHONUNBUFFERED": "1"}
        with self._files[0].open("w") as said, self._files[1].open("w") as told:
            self.process = started(
                *(sys.executable, "-c", WITH_SIGNALS, *words),
                env=os.environ | temporary,
                stdout=said,
                stderr=told,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._files[1].read_text()

    def reach(self, stage: str) -> None:
        """Wait until its log names a stage."""
        over = self.process.poll
        wait_until(lambda: f"{stage}: " in self.log or over() is not None, 120, 0.002)
        assert over() is None, self.log

    def group(self) -> list[psutil.Process]:
        """Its process and those that it started, as long as they live."""
        found = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                ours = os.getpgid(process.pid) == self.process.pid
                if ours and process.status() != "zombie":
                    found.append(process)
        return found

    def ended(self, status: int) -> str:
        """Its last sentence, which is also the only JSON on stdout."""
        assert self.process.wait(240) == status, self.log
        (sentence,) = (
            line for line in self.log.splitlines() if line.startswith("xnq-dist: ")
        )
        assert "Traceback (" not in self.log
        found = json.loads(self._files[0].read_text())
        error = sentence.removeprefix("xnq-dist: ")
        assert found == {"error": error, "exit_code": status}
        return sentence


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exit-codes")
    write_graph(folder, nodes=240, edges=900)
    return folder


def finished(tables: Path, out: Path, *more: str) -> pa.Table:
    """The published values of a run without interruption."""
    running = Running(tables, out, *more)
    assert running.process.wait(240) == 0, running.log
    wait_until(lambda: not running.group(), 60)
    assert list(out.parent.glob("xnq-dist-*")) == []
    return pq.read_table(out / "prevalence.parquet")


def test_signals_at_any_stage_end_with_status_4_and_the_next_run_resumes(
    tables, tmp_path
):
    """A run that is interrupted in every stage is completed, its processes end."""
    out = tmp_path / "run"
    killed = Running(tables, out)
    killed.reach("embed")
    killed.process.kill()
    assert killed.process.wait(120) == -signal.SIGKILL
    wait_until(lambda: not killed.group(), 60)
    for stage, number in (
        ("graph", signal.SIGINT),
        ("embed", signal.SIGTERM),
        ("quantify", signal.SIGHUP),
    ):
        running = Running(tables, out)
        running.reach(stage)
        # To all its processes, as a terminal or batch system does.
        os.killpg(running.process.pid, number)
        sentence = running.ended(4)
        assert f"interrupted by {number.name}" in sentence
        assert "run again to resume" in sentence
        wait_until(lambda ended=running: not ended.group(), 30)
        assert not (out / "_lock.json").exists()
    assert finished(tables, out).equals(finished(tables, tmp_path / "calm"))


def test_lost_scheduler_ends_with_status_4(tables, tmp_path):
    with Cluster(tmp_path, 1) as cluster:
        where = ("cluster.kind=address", f"cluster.address={cluster.address}")
        running = Running(tables, tmp_path / "run", *where)
        running.reach("embed")
        cluster.scheduler.kill()
        assert "run again" in running.ended(4)


@pytest.mark.parametrize("stage", ["embed", "quantify"])
def test_a_command_whose_workers_are_killed_recovers_or_names_it(
    tables, tmp_path, stage
):
    two, out = "cluster.workers=2", tmp_path / "run"
    running = Running(tables, out, two)
    running.reach(stage)
    for process in running.group():
        if "spawn_main" in " ".join(process.cmdline()):
            process.kill()
    if status := running.process.wait(240):
        assert status in (3, 4)
        running.ended(status)
    calm = finished(tables, tmp_path / "calm", two)
    assert finished(tables, out, two).equals(calm)


def test_ignored_hang_up_stays_ignored():
    """As under `nohup`."""
    code = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    code += "import xnq_dist.app.cli as cli, time; "
    code += "cli.app = lambda *_, **__: time.sleep(1); "
    code += "import os, threading; "
    code += "threading.Timer(.3, os.kill, (os.getpid(), signal.SIGHUP)).start(); "
    code += "cli.main([])"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0
