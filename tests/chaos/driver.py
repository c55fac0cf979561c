"""Runs the cases: a run with a fault, what it left behind, runs without faults."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.chaos.base import LONGEST, TIMEOUT, Base, overrides
from tests.chaos.cases import Case
from tests.chaos.processes import Cluster, Launch, Running, leaks, wait_until
from tests.chaos.published import differences
from tests.chaos.strikes import strike
from tests.chaos.verdict import Attempt, Outcome, judge, note, recorded
from tests.disks import NoSmallDisk, SmallDisk, mounted

__all__ = ["run_cases"]

SLACK = 60.0
"""Maximum seconds beyond ``cluster.timeout`` until a run recovers or ends."""
GRACE = 30.0
"""Maximum seconds between the end of a run and the end of its processes."""
MISSED = "nothing was left to strike"
TRIES = 2
"""Number of runs without faults after which a directory counts as stuck."""


def run_cases(
    cases: Sequence[Case], folder: Path, jobs: int = 1
) -> list[dict[str, Any]]:
    """Run the cases that are not recorded yet; return all records, in order.

    Parameters
    ----------
    folder
        ``outcomes.jsonl`` there has one line for every case that was run before.
    jobs
        Cases at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "outcomes.jsonl"
    done = recorded(file)
    base = Base(folder)
    writing = threading.Lock()

    def run(case: Case) -> None:
        record = _run_case(case, base).record()
        with writing:
            done[case.name] = note(record, file)

    left = [case for case in cases if case.name not in done]
    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(run, case) for case in left]:
            future.result()
    return [done[case.name] for case in cases]


def _run_case(case: Case, base: Base) -> Outcome:
    folder = base.folder / "cases" / case.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    mark = f"{case.name}-{uuid.uuid4().hex[:8]}"
    launch = Launch(mark, base.tables, folder / "tmp")
    with contextlib.ExitStack() as held:
        out, disk = folder / "run", None
        if case.kind.on_disk:
            try:
                disk = held.enter_context(mounted(folder / "disk"))
            except NoSmallDisk as error:
                return Outcome(case, "not run", why=str(error))
            out = disk.folder / "run"
        found = _outcome(case, base, launch, out, disk)
        left = leaks(mark, launch.temporary, out, GRACE)
        if found.verdict != "hung":
            found.leaked = left
    if found.verdict in ("ended", "refused", "recovered") and not found.leaked:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _outcome(
    case: Case, base: Base, launch: Launch, out: Path, disk: SmallDisk | None
) -> Outcome:
    """Inject a fault into a run, then run without faults until one completes."""
    first, landed = _struck(case, base, launch, out, disk)
    runs = [first]
    if disk is not None:
        disk.set_read_only(False)
        disk.empty()
    settings = overrides(case.kind.workers)
    while runs[-1].status not in (0, None) and len(runs) <= TRIES:
        calm = launch.start(out, settings)
        runs.append(_finish(base, launch, out, calm, LONGEST))
    verdict = judge(runs, case.kind.statuses, case.fault == "kill-client")
    if landed == MISSED and verdict == "ended":
        verdict = "not run"
    return Outcome(case, verdict, runs, landed)


def _struck(
    case: Case, base: Base, launch: Launch, out: Path, disk: SmallDisk | None
) -> tuple[Attempt, str]:
    settings, cluster, random = overrides(case.kind.workers), None, case.random()
    with contextlib.ExitStack() as held:
        if not case.kind.own_cluster:
            cluster = held.enter_context(Cluster(launch, 2))
            # The last one of a setting counts.
            settings += ["cluster.kind=address", f"cluster.address={cluster.address}"]
        running = launch.start(out, settings)
        order = ("start", "graph", "embed", "readout", "quantify", "publish")
        wanted = order.index(case.stage)
        wait_until(
            lambda: running.over or order.index(running.reached()) >= wanted, LONGEST
        )
        # Most stages of such a small graph take less.
        longest = 3.0 if case.stage == "start" else 0.4
        time.sleep(float(random.uniform(0, longest)))
        landed = running.reached()
        struck = strike(case.fault, running, cluster, disk, random)
        rest = 3 * max(base.seconds, 10.0)
        found = _finish(base, launch, out, running, TIMEOUT + SLACK + rest)
    return found, landed if struck else MISSED


def _finish(
    base: Base, launch: Launch, out: Path, running: Running, seconds: float
) -> Attempt:
    status = running.end(seconds)
    taken = time.monotonic() - running.began
    if status is None:
        running.kill()
    number = len(list(launch.temporary.parent.glob("run-*.log")))
    log = launch.temporary.parent / f"run-{number}.log"
    log.write_text("".join(running.lines))
    traceback = any(line.startswith("Traceback (") for line in running.lines)
    found = Attempt(status, round(taken, 1), running.sentences(), traceback)
    if status == 0:
        found.differing = differences(base.expected, out)
    return found
