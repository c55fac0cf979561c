"""Runs the cases: a run with a fault, what it left behind, runs without faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.app.conftest import running_server
from tests.chaos.base import LONGEST, TIMEOUT, Base, overrides
from tests.chaos.cases import Case
from tests.chaos.processes import Cluster, Launch, Running, leaks, wait_until
from tests.chaos.published import differences
from tests.chaos.strikes import strike
from tests.chaos.verdict import Attempt, Outcome, judge, note, recorded
from tests.disks import NoSmallDisk, SmallDisk, mounted
from tests.links import Link, NoLink, linked
from xnq_dist.app.environment import DEFAULTS

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
    with contextlib.ExitStack() as held:
        out, disk = folder / "run", None
        if case.kind.on_disk:
            try:
                disk = held.enter_context(mounted(folder / "disk"))
            except NoSmallDisk as error:
                return Outcome(case, "not run", why=str(error))
            out = disk.folder / "run"
        link = None
        if case.kind.cluster == "beyond":
            try:
                link = held.enter_context(linked())
            except NoLink as error:
                return Outcome(case, "not run", why=str(error))
        environment = held.enter_context(_environment(case))
        mark = f"{case.name}-{uuid.uuid4().hex[:8]}"
        launch = Launch(mark, base.tables, case.way, folder / "tmp", environment)
        found = _Disturbed(case, base, launch, out, disk, link).outcome()
        left = leaks(mark, launch.temporary, out, GRACE)
        if found.verdict != "hung":
            found.leaked = left
    if found.verdict in ("ended", "refused", "recovered") and not found.leaked:
        shutil.rmtree(folder, ignore_errors=True)
    return found


@contextlib.contextmanager
def _environment(case: Case) -> Iterator[dict[str, str | None]]:
    """Variables of its runs: a Prefect API that refuses, or that says nothing."""
    if case.fault == "api-dead":
        yield {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    elif case.fault == "api-silent":
        with socket.create_server(("127.0.0.1", 0)) as silent:
            yield {"PREFECT_API_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/api"}
    else:
        yield {}


class _Disturbed:
    """One running case."""

    def __init__(
        self,
        case: Case,
        base: Base,
        launch: Launch,
        out: Path,
        disk: SmallDisk | None,
        link: Link | None,
    ) -> None:
        self._case = case
        self._base = base
        self._launch = launch
        self._out = out
        self._disk = disk
        self._link = link
        self._random = case.random()

    def outcome(self) -> Outcome:
        """Inject a fault into a run, then run without faults until one completes."""
        case = self._case
        first, landed = self._struck()
        runs = [first]
        if self._disk is not None:
            self._disk.set_read_only(False)
            self._disk.empty()
        calm = Launch(
            self._launch.mark, self._base.tables, case.way, self._launch.temporary
        )
        while runs[-1].status not in (0, None) and len(runs) <= TRIES:
            runs.append(self._finish(self._start(calm), LONGEST))
        verdict = judge(runs, case.kind.statuses, case.fault == "kill-client")
        if landed == MISSED and verdict == "ended":
            verdict = "not run"
        return Outcome(case, verdict, runs, landed)

    def _start(self, launch: Launch, address: str = "") -> Running:
        settings = overrides(self._case.kind.workers)
        if address:  # the last one of a setting counts
            settings += ["cluster.kind=address", f"cluster.address={address}"]
        return launch.start(self._out, settings)

    def _struck(self) -> tuple[Attempt, str]:
        case = self._case
        with contextlib.ExitStack() as held:
            cluster = None
            if case.kind.cluster != "local":
                cluster = held.enter_context(Cluster(self._launch, 2, self._link))
            launch, api = self._launch, None
            if case.fault == "api-killed":
                home = str(self._base.folder / "prefect")
                environment = os.environ | DEFAULTS | {"PREFECT_HOME": home}
                url, api = held.enter_context(running_server(environment))
                launch = replace(launch, environment={"PREFECT_API_URL": url})
            running = self._start(launch, cluster.address if cluster else "")
            order = ("start", "graph", "embed", "readout", "quantify", "publish")
            wanted = order.index(case.stage)
            wait_until(
                lambda: running.over or order.index(running.reached()) >= wanted,
                LONGEST,
            )
            # Most stages of such a small graph take less.
            longest = 3.0 if case.stage == "start" else 0.4
            time.sleep(float(self._random.uniform(0, longest)))
            landed = running.reached()
            struck = strike(
                case.fault, running, cluster, self._disk, api, self._link, self._random
            )
            rest = 3 * max(self._base.seconds, 10.0)
            found = self._finish(running, TIMEOUT + SLACK + rest)
        return found, landed if struck else MISSED

    def _finish(self, running: Running, seconds: float) -> Attempt:
        status = running.end(seconds)
        taken = time.monotonic() - running.began
        if status is None:
            running.kill()
        number = len(list(self._launch.temporary.parent.glob("run-*.log")))
        log = self._launch.temporary.parent / f"run-{number}.log"
        log.write_text("".join(running.lines))
        found = Attempt(
            status,
            round(taken, 1),
            running.sentences(),
            # By default, Dask logs tracebacks.
            self._case.way == "command"
            and any(line.startswith("Traceback (") for line in running.lines),
        )
        if status == 0:
            found.differing = differences(self._base.expected, self._out)
        return found
