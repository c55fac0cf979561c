"""Runs the cases: a flow run with a fault, what it left behind, flow runs without."""

from __future__ import annotations

import contextlib
import queue
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.app.test_deployment_faults import PROGRAMS, postgres
from tests.chaos.base import VARIANTS, Base
from tests.chaos.deployments.cases import STAGES, Case, reached
from tests.chaos.deployments.outcomes import Attempt, judge
from tests.chaos.deployments.stack import Stack
from tests.chaos.deployments.strikes import Target, replaced
from tests.chaos.files import damage
from tests.chaos.processes import (
    MARK,
    Cluster,
    Launch,
    leaks,
    marked,
    send,
    wait_until,
)
from tests.chaos.published import differences, published
from tests.chaos.verdict import Outcome, note, recorded
from tests.disks import NoSmallDisk, mounted

__all__ = ["run_cases"]

LONGEST = 600.0
"""Maximum seconds until a flow run is over on a busy machine: one that is silent is
given up after `stack.SILENCE` seconds and started again."""
GRACE = 45.0
"""Maximum seconds between the end of a run and the end of its processes."""
TRIES = 2
"""Number of runs without faults after which a directory counts as stuck."""
TABLES = ("nodes", "edges", "memberships")
DAMAGES = ("flip-bit", "truncate", "zero-sector")
SETTINGS: dict[str, dict[str, Any]] = {
    "quantify": {"quantifier": "sld"},
    "readout": {"readout": {"C": 0.3}},
}
"""Those of `VARIANTS`."""


class Inputs:
    """The graph of all cases, versions of it with one changed table, and answers."""

    def __init__(self, folder: Path) -> None:
        self.base = Base(folder)
        self._lock = threading.Lock()
        self._answers: dict[str, dict[str, pa.Table]] = {}

    def changed(self, name: str) -> Path:
        """A changed table: half of the labels, one edge, or one membership less."""
        file = self.base.folder / "changed" / f"{name}.parquet"
        with self._lock:
            if not file.exists():
                file.parent.mkdir(exist_ok=True)
                table = pq.read_table(self.base.tables[name])
                if name == "nodes":
                    half = pa.array(np.arange(len(table)) % 2 == 0)
                    labels = pc.if_else(half, table["label"], None)
                    at = table.schema.get_field_index("label")
                    table = table.set_column(at, "label", labels)
                else:
                    table = table.slice(1)
                pq.write_table(table, file)
        return file

    def answer(self, changed: str) -> dict[str, pa.Table]:
        """The published values of an undisturbed run with a changed table."""
        tables = {**self.base.tables, changed: str(self.changed(changed))}
        with self._lock:
            if changed not in self._answers:
                out = self.base.finish(f"finished-changed-{changed}", tables)
                self._answers[changed] = published(out)
            return self._answers[changed]


def run_cases(
    cases: Sequence[Case], folder: Path, jobs: int = 1, on_postgres: bool = False
) -> list[dict[str, Any]]:
    """Run the cases that are not recorded yet; return all records, in order.

    Parameters
    ----------
    folder
        ``deployments.jsonl`` there has one line for every case that was run before.
    jobs
        Servers with a worker each; every one takes the next case.
    on_postgres
        The servers' databases are on PostgreSQL, not SQLite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "deployments.jsonl"
    done = recorded(file)
    left: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cases:
        if case.name not in done:
            left.put(case)
    inputs, writing, failed = Inputs(folder), threading.Lock(), []
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The cases in progress end first, and their servers and disks go.
        signal.signal(number, lambda *_: stop.set())

    def lane(number: int) -> None:
        try:
            with _stack(folder / f"lane-{number}", inputs, on_postgres) as stack:
                while not left.empty() and not stop.is_set():
                    case = left.get()
                    record = _Disturbed(case, inputs, stack).outcome().record()
                    with writing:
                        done[case.name] = note(record, file)
        except BaseException as error:
            failed.append(error)
            raise

    lanes = [threading.Thread(target=lane, args=(n,)) for n in range(jobs)]
    for thread in lanes if not left.empty() else []:
        thread.start()
    for thread in lanes:
        if thread.ident:
            thread.join()
    if failed:
        raise failed[0]
    return [done[case.name] for case in cases if case.name in done]


@contextlib.contextmanager
def _stack(folder: Path, inputs: Inputs, on_postgres: bool) -> Iterator[Stack]:
    shutil.rmtree(folder, ignore_errors=True)
    mark = f"lane-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as held:
        more = {}
        if on_postgres and PROGRAMS:
            folder.mkdir(parents=True)
            url = held.enter_context(postgres(folder / "postgres"))
            more["PREFECT_API_DATABASE_CONNECTION_URL"] = url
        yield held.enter_context(Stack(folder, mark, inputs.base.tables, more))


class _Disturbed:
    """One case on one stack."""

    def __init__(self, case: Case, inputs: Inputs, stack: Stack) -> None:
        self._case = case
        self._inputs = inputs
        self._base = inputs.base
        self._stack = stack
        self._random = case.random()
        self._folder = self._base.folder / "cases" / case.name
        shutil.rmtree(self._folder, ignore_errors=True)
        self._temporary = self._folder / "tmp"
        self._temporary.mkdir(parents=True)
        self._mark = f"{case.name}-{uuid.uuid4().hex[:8]}"
        self._out = self._folder / "run"
        self._variant = "same"
        self._parameters: dict[str, Any] = {}
        self._answers = [partial(self._base.expected, "same")]
        """Of the disturbed run; the last one is that of the runs after it."""

    def outcome(self) -> Outcome:
        """Inject a fault into a flow run, then run until one completes."""
        case = self._case
        with contextlib.ExitStack() as held:
            disk = None
            if case.fault.on_disk:
                try:
                    disk = held.enter_context(mounted(self._folder / "disk"))
                except NoSmallDisk as error:
                    return Outcome(case, "not run", landed=str(error))
                self._out = disk.folder / "run"
            cluster = None
            if case.fault.own_cluster:
                cluster = held.enter_context(self._cluster("one"))
            change = self._change() if case.kind == "change-input" else lambda: None
            landed = self._damaged() if case.stage == "between" else ""
            began = time.monotonic()
            target = Target(
                self._stack,
                self._start(cluster),
                self._mark,
                self._out,
                self._random,
                disk,
                cluster,
                change,
            )
            if case.stage != "between":
                landed = self._struck(target)
            runs = [self._finish(target.run, began, self._answers)]
            target.repair()
            if case.fault.own_cluster:
                cluster = held.enter_context(self._cluster("two"))
            ordinary = self._answers[-1:]
            again = case.kind == "change-input"
            while (
                runs[-1].state != "HUNG"
                and len(runs) <= TRIES
                and (again or runs[-1].state != "COMPLETED")
            ):
                # As the message of a held lock says.
                wait_until(lambda: not marked(self._mark), LONGEST, 0.5)
                began, again = time.monotonic(), False
                runs.append(self._finish(self._start(cluster), began, ordinary))
            leaked = leaks(self._mark, self._temporary, self._out, GRACE)
        verdict = judge(runs)
        if verdict == "right" and not landed:
            verdict = "not run"
        if verdict in ("right", "recovered", "not run") and not leaked:
            shutil.rmtree(self._folder, ignore_errors=True)
        return Outcome(case, verdict, runs, landed, leaked=leaked)

    def _cluster(self, name: str) -> Cluster:
        folder = self._folder / name / "tmp"
        folder.mkdir(parents=True)
        launch = Launch(f"{self._mark}-cluster", self._base.tables, "", folder)
        return Cluster(launch, 2)

    def _start(self, cluster: Cluster | None) -> str:
        settings = dict(SETTINGS.get(self._variant, {}))
        if cluster is not None:
            settings["cluster"] = {"kind": "address", "address": cluster.address}
        environment = {MARK: self._mark, "TMPDIR": str(self._temporary)}
        given = {"out": str(self._out), "settings": settings, **self._parameters}
        return self._stack.run("nightly", environment, **given)

    def _change(self) -> Any:
        """Copy the inputs; return what changes one of the copies."""
        name = TABLES[self._random.integers(len(TABLES))]
        new, at_once = self._inputs.changed(name), bool(self._random.random() < 0.5)
        for table, path in self._base.tables.items():
            copy = self._folder / f"{table}.parquet"
            shutil.copyfile(path, copy)
            self._parameters[table] = str(copy)
        self._answers.append(partial(self._inputs.answer, name))
        return partial(replaced, new, Path(self._parameters[name]), at_once)

    def _damaged(self) -> str:
        self._variant = str(self._random.choice(list(VARIANTS)))
        self._answers = [partial(self._base.expected, self._variant)]
        self._base.begin(self._variant, self._out)
        fault = str(self._random.choice(DAMAGES))
        return f"{fault} {damage(fault, self._out, self._out, self._random)}"

    def _struck(self, target: Target) -> str:
        """Strike at the moment of the case; where it landed, empty if nowhere."""
        wanted = STAGES.index(self._case.stage)
        over = ("COMPLETED", "FAILED")
        state = {"at": 0.0, "over": False}

        def there() -> bool:
            if time.monotonic() > state["at"] + 1:
                flow_run = self._stack.flow_run(target.run)
                state["over"] = flow_run["state_type"] in over
                state["at"] = time.monotonic()
            found = reached(self._out)
            if state["over"] or found == "over":
                return True
            return bool(marked(self._mark)) and STAGES.index(found) >= wanted

        wait_until(there, LONGEST, 0.03)
        # Most stages of such a small graph take less.
        longest = 4.0 if self._case.stage == "start" else 0.3
        time.sleep(float(self._random.uniform(0, longest)))
        landed = reached(self._out)
        if landed == "over":
            landed = "publish"
        return landed if target.strike(self._case.kind) else ""

    def _finish(self, run: str, began: float, answers: Sequence[Any]) -> Attempt:
        found = self._stack.ended(run, LONGEST)
        seconds = round(time.monotonic() - began, 1)
        if found is None:
            state = self._stack.flow_run(run)
            send(signal.SIGKILL, marked(self._mark))
            return Attempt("HUNG", str(state["state_name"]), seconds, 0)
        message = str((found.get("state") or {}).get("message") or "")
        attempt = Attempt(found["state_type"], message, seconds, found["run_count"])
        if attempt.state == "COMPLETED":
            stages = self._case.kind != "damaged-file"
            unequal = [differences(known(), self._out, stages) for known in answers]
            attempt.differing = min(unequal, key=len)
        return attempt
