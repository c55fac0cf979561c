"""A reader that polls a run directory while runs publish and half of them are killed.

Every run publishes the stages of one finished run under other settings, in a process of
its own; every second one is killed with SIGKILL at a moment that the seed chooses. The
reader, another process, opens every table at its usual path and through the pointer, as
often as it can.

``python -m tests.chaos.publishing --runs 200 --out seen.json`` records what it saw.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow.parquet as pq

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.errors import XnqError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory, delete_damage, read_published, verify
from xnq_dist.steps import publish as step

TABLES = ("prevalence", "totals", "anomalies", "partitions")
ROWS = {"prevalence": 80, "totals": 2, "anomalies": 80, "partitions": 4}


@dataclass(frozen=True)
class Seen:
    """Counts and findings of runs and reader."""

    runs: int
    killed: int
    polls: int
    versions: int
    """Number of different results that the reader saw."""
    faults: tuple[str, ...]
    """Invalid states that the reader saw, and failed runs."""


def settings_of(number: int) -> Settings:
    """Settings of one run, which no other run has."""
    return Settings(anomalies={"rate": 0.01 + 0.0001 * number, "last": None})


def publish(out: str, number: int) -> None:
    """One run, which prints when it begins and ends."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    run = RunDirectory(out)
    delete_damage(run)
    step.publish(run, settings_of(number))


def look(out: str) -> str:
    """The published run_id.

    Raises
    ------
    AssertionError
        When a table is missing, torn, or of another run than the pointer says.
    """
    for name in TABLES:
        rows = pq.read_table(Path(out, f"{name}.parquet"))
        assert rows.num_rows == ROWS[name], f"{name} has {rows.num_rows} rows"
        assert len(set(rows["run_id"].to_pylist())) == 1, f"{name} is of several runs"
    page = Path(out, "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>"), "the page is torn"
    version = read_published(out)
    for name in TABLES:
        found = set(version.read(name)["run_id"].to_pylist())
        assert found == {version.run_id}, f"{name} is of {found}"
    return version.run_id


def read(out: str) -> None:
    """Read until the end of standard input; print the findings."""

    ended = threading.Event()
    threading.Thread(
        target=lambda: (sys.stdin.read(), ended.set()), daemon=True
    ).start()
    polls, seen, faults = 0, set(), []
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not ended.is_set() and len(faults) < 10:
        polls += 1
        try:
            seen.add(look(out))
        except (AssertionError, KeyError, OSError, ValueError, XnqError) as error:
            faults.append(f"poll {polls}: {type(error).__name__}: {error}")
    sys.stdout.write(json.dumps([polls, sorted(seen), faults]) + "\n")


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs this module."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.publishing", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_of(stream: IO[str] | None) -> str:
    """One line of a process's output."""
    assert stream is not None
    return stream.readline().strip()


def poll_through(folder: Path, runs: int, seed: int = 0) -> Seen:
    """Publish `runs` times and kill half of them, while the reader polls."""
    rng = np.random.default_rng([4, seed])
    names = [f"page {number}" for number in range(40)]
    run = write_fake_run(folder / "run", [prevalence_table(names, intervals=True)])
    began = time.perf_counter()
    step.publish(run, settings_of(0))
    usual = time.perf_counter() - began
    faults: list[str] = []
    killed = 0
    with started("--read", run.uri) as reader:
        assert line_of(reader.stdout) == "ready"
        for number in range(1, runs + 1):
            with started("--publish", run.uri, "--number", str(number)) as child:
                assert line_of(child.stdout) == "ready"
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
                if number % 2:
                    time.sleep(float(rng.uniform(0, usual)))
                    child.kill()
                    killed += child.wait(60) != 0
                    continue
                _, complaint = child.communicate(timeout=120)
            if child.returncode:
                faults.append(f"run {number} failed: {complaint[-400:]}")
            rate = f"{settings_of(number).anomalies.rate:.6g}"
            if rate not in Path(run.uri, "report.html").read_text(encoding="utf-8"):
                faults.append(f"run {number} is not what is published")
        said, complaint = reader.communicate("", timeout=120)
    if reader.returncode:
        raise RuntimeError(f"the reader failed: {complaint}")
    polls, seen, wrong = json.loads(said)
    left = [f"{found.path} {found.what}" for found in verify(run.uri)]
    return Seen(runs, killed, polls, len(seen), (*faults, *wrong, *left))


def main() -> None:
    """The script, and its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--publish")
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--read")
    chosen = parser.parse_args()
    if chosen.publish:
        publish(chosen.publish, chosen.number)
    elif chosen.read:
        read(chosen.read)
    else:
        with tempfile.TemporaryDirectory() as folder:
            seen = poll_through(Path(folder), chosen.runs, chosen.seed)
        text = json.dumps(asdict(seen), indent=1)
        sys.stdout.write(text + "\n")
        if chosen.out:
            chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
