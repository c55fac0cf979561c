"""All measurements that need a GPU, in one command, compared with the goals.

    python -m tests.gpu.measure                           # on a GPU: all parts
    python -m tests.gpu.measure --parts tolokers --add    # add rows of further parts
    python -m tests.gpu.measure --standin --small         # on a CPU: test the command

Parts: `floor` (copy bandwidth, rate of products), `superstep` (400k nodes, 2 M
directed edges, d' = 1024, against its lower bound; error of each precision), `states`
(of the same graph at a low scale, against the CPU's), `sld` (1 M communities of about
100), `genius` (422k nodes, 985k edges, 12 features, d' = 1024, L = 30: embed, read
out, quantify), `profile` (time of that job by kernel), `memory` (peak against the
plan), `ingest` (the edge table with cuDF and with Arrow), `tolokers` (from
XNQ_DATA_DIR) and `made` (400k nodes, 2 M edges): the complete pipeline with backend=gpu
and backend=cpu, several seeds each: seconds, error over communities.

Every part runs in a new process. If a part fails, its rows are kept, the reason is
printed and the other parts continue; the exit status is then 1. Parts without the
required packages or data are skipped with a message.

Rows (part, case, figure, value, unit) are written to --out as they are measured. Goals
that are met and missed (`tests/gpu/aims.py`) are printed at the end and, with the rows,
written to --report, a section for RESULTS.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tests.gpu.aims import (
    FAILED,
    NOT_RUN,
    NotRunError,
    Row,
    markdown,
    verdict_lines,
    worst_terms,
)
from xnq_dist.core import backend as backends
from xnq_dist.core.errors import XnqError

PARTS = {
    "floor": "measure_kernels",
    "superstep": "measure_kernels",
    "states": "measure_kernels",
    "sld": "measure_kernels",
    "genius": "measure_job",
    "profile": "measure_job",
    "memory": "measure_kernels",
    "ingest": "measure_line",
    "tolokers": "measure_line",
    "made": "measure_line",
}
"""Where each part is: a package that one of them lacks is no other's loss."""

Said = tuple[str, Any]
"""``row`` and the row, or `NOT_RUN` or `FAILED` and a sentence."""


def environment() -> dict[str, str]:
    """Device, driver and versions, for RESULTS.md."""
    cupy = backends.gpu().xp
    about = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "device": about["name"].decode(),
        "driver": driver(),
        "cupy": cupy.__version__,
        "cuda": str(cupy.cuda.runtime.runtimeGetVersion()),
        "numpy": np.__version__,
    }


def driver() -> str:
    """Version of the driver, as far as nvidia-smi is there to say it."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def said_here(part: str, standin: bool, small: bool) -> Iterator[Said]:
    """What a part says, run in this process."""
    try:
        from tests.gpu.made import FULL, GENIUS, SMALL

        make = backends.gpu
        if standin:
            from tests.gpu.standin import take_the_gpus_place

            make = take_the_gpus_place()
        job = GENIUS if part in ("genius", "profile") else FULL
        found = getattr(import_module(f"tests.gpu.{PARTS[part]}"), f"part_{part}")
        for row in found(make, SMALL if small else job):
            yield "row", row
    except NotRunError as reason:
        yield NOT_RUN, str(reason)
    except Exception as error:  # whatever it is, the other parts are to go on
        sys.excepthook(type(error), error, error.__traceback__)
        yield FAILED, sentence(error)


def sentence(error: Exception) -> str:
    """One line of an error: what is wrong."""
    if isinstance(error, XnqError):
        return str(error)
    first = next(iter(str(error).splitlines()), "no more is known")
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is not installed"
    if isinstance(error, MemoryError):
        return f"out of memory ({first})"
    return f"{type(error).__name__}: {first}"


def said_there(part: str, options: list[str], limit: float) -> Iterator[Said]:
    """What a part says, run in a process of its own for so many seconds at most."""
    if limit <= 0:
        yield NOT_RUN, "the time given by --minutes was up"
        return
    with subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.measure", "--tell", part, *options],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as running:
        late = threading.Event()

        def stop() -> None:
            # Its workers too, which may have outlived it and hold its output open.
            late.set()
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)

        timer = threading.Timer(limit, stop)
        if limit < threading.TIMEOUT_MAX:
            timer.start()
        told = False
        try:
            for line in running.stdout or ():
                what, value = heard(line)
                told = told or what in (NOT_RUN, FAILED)
                if what:
                    yield what, value
                else:
                    say(line.rstrip())
            status = running.wait()
        finally:
            timer.cancel()
            if running.poll() is None:  # interrupted
                stop()
    if late.is_set():
        yield FAILED, "stopped when the time given by --minutes was up"
    elif status and not told:
        by = f"signal {-status}" if status < 0 else f"status {status}"
        yield FAILED, f"its process ended with {by}, perhaps for want of memory"


def heard(line: str) -> Said:
    """A line of a part's process; nothing said when a library wrote it."""
    try:
        what, value = json.loads(line)
    except (ValueError, TypeError):
        return "", None
    known = what in ("row", NOT_RUN, FAILED)
    return (what, tuple(value) if what == "row" else value) if known else ("", None)


def tell(part: str, standin: bool, small: bool) -> int:
    """Run a part here, and say what it says a line at a time; the status."""
    status = 0
    for what, value in said_here(part, standin, small):
        say(json.dumps([what, value], default=float))
        status = 1 if what == FAILED else status
    return status


def main(arguments: list[str] | None = None) -> int:
    """Measure; write and say the rows, then what of the aims they reach; the status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="gpu-rows.csv")
    parser.add_argument("--report", default="gpu-report.md")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--add", action="store_true", help="to the rows of --out")
    parser.add_argument("--minutes", type=float, help="in all; what is left is not run")
    parser.add_argument("--standin", action="store_true", help="g++ plays the GPU")
    parser.add_argument("--small", action="store_true", help="sizes of seconds")
    parser.add_argument(
        "--here", action="store_true", help="no processes, and so no --minutes"
    )
    parser.add_argument("--tell", choices=PARTS, help="one part, for another process")
    given = parser.parse_args(arguments)
    if given.tell:
        return tell(given.tell, given.standin, given.small)
    began = time.monotonic()
    about = {"date": time.strftime("%F")}
    if given.standin:
        about["device"] = "none: g++ and NumPy play it, and no time means anything"
    else:
        try:
            about |= environment()
        except XnqError as error:
            say(str(error))
            return 1
    say(json.dumps(about))
    before = read_rows(Path(given.out)) if given.add else []
    rows = [row for row in before if row[0] not in given.parts]
    silent: dict[str, tuple[str, str]] = {}
    options = [f"--{name}" for name in ("standin", "small") if getattr(given, name)]
    # What is there already is whole before anything is measured.
    whole = Path(f"{given.out}.new")
    with whole.open("w", newline="") as stream:
        write_rows(stream, rows, heading=True)
    whole.replace(given.out)
    with Path(given.out).open("a", newline="") as stream:
        for part in given.parts:
            limit = float("inf")
            if given.minutes is not None:
                limit = 60 * given.minutes - (time.monotonic() - began)
            said = (
                said_here(part, given.standin, given.small)
                if given.here
                else said_there(part, options, limit)
            )
            for what, value in said:
                if what == "row":
                    rows.append(value)
                    write_rows(stream, [value])
                    say("\t".join(map(str, value)))
                else:
                    silent[part] = what, value
                    say(f"{part}: {what}: {value}")
    for line in verdict_lines(rows):
        say(line)
    for name, took, share in worst_terms(rows)[:1]:
        say(f"worst term: {name}, {took:.4g} s, {share:.0%}")
    for part, (what, why) in silent.items():
        say(f"{what}: {part}: {why}")
    words = sys.argv[1:] if arguments is None else arguments
    page = markdown(rows, about, " ".join(["python -m tests.gpu.measure", *words]))
    for part, (what, why) in silent.items():
        page += f"\n`{part}` {what}: {why}\n"
    Path(given.report).write_text(page, encoding="utf-8")
    return int(any(what == FAILED for what, _ in silent.values()))


def say(line: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write_rows(stream: TextIO, rows: list[Row], heading: bool = False) -> None:
    """Rows to the file, at once."""
    writer = csv.writer(stream)
    if heading:
        writer.writerow(["part", "case", "figure", "value", "unit"])
    writer.writerows(rows)
    stream.flush()


def read_rows(path: Path) -> list[Row]:
    """Rows of an earlier call; none where there was none."""
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return [
            (r["part"], r["case"], r["figure"], float(r["value"]), r["unit"])
            for r in csv.DictReader(stream)
        ]


if __name__ == "__main__":
    sys.exit(main())
