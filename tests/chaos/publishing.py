"""Publishing in a process of its own, which a test may kill.

``python -m tests.chaos.publishing --publish OUT --number 3`` publishes the stages of a
finished run under settings that no other number has.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import IO

from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory, delete_damage
from xnq_dist.steps import publish as step


def settings_of(number: int) -> Settings:
    """Settings of one run, which no other run has."""
    return Settings(anomalies={"rate": 0.01 + 0.0001 * number, "last": None})


def publish(out: str, number: int) -> None:
    """One run, which prints when it begins."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    run = RunDirectory(out)
    delete_damage(run)
    step.publish(run, settings_of(number))


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", required=True)
    parser.add_argument("--number", type=int, default=0)
    chosen = parser.parse_args()
    publish(chosen.publish, chosen.number)
