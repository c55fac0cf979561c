"""A hundred scheduled runs on one server: what grows, and what does not.

The deployment `nightly` runs by a schedule on one server and one worker. Between runs a
share of the labels and of the memberships changes; some runs are killed at a random
moment and started again by the shipped automation. The shipped housekeeping, with the
server's own retention, begins after a part of the runs, so that Prefect's database is
seen to grow without it and to stay with it. Its times are shortened as the nights are.

``python -m tests.chaos.soak --runs 100 --kills 20 --out FOLDER`` goes on where it was
interrupted, with the same database and run directory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from tests.chaos.base import write_tables
from tests.chaos.deployments.stack import Stack
from tests.chaos.processes import MARK, marked, send, wait_until

__all__ = ["Sample", "soak", "summary"]

HOUSEKEEPING = 5
"""Completed runs between two runs of the housekeeping."""
KEPT = 10
"""Runs whose flow runs and versions are kept."""
LONGEST = 900.0
"""Maximum seconds until the next run is complete."""
SETTLED = 300.0
"""Minimum seconds between the making and the start of a run that is killed. The server
shows the states of a run made less than five minutes ahead 15 minutes late (its
`_timing_is_tight`); a nightly run is made days ahead.
"""
RETENTION = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "20",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ORPHAN_CLEANUP_LOOP_SECONDS": "20",
}
"""Of `docs/how-to/schedule.md`; the server's loops are as short as the nights are."""


@dataclass(frozen=True)
class Sample:
    """What there is after a completed run."""

    runs: int
    """Completed runs."""
    seconds: float
    retention: bool
    """Whether the housekeeping runs."""
    temporary: int
    """Temporary folders of the package and of Dask."""
    temporary_of_prefect: int
    """Folders that Prefect's worker makes for each run."""
    shared: int
    """Files in ``/dev/shm``."""
    processes: int
    """Processes older than the current run, but server and worker."""
    server_handles: int
    worker_handles: int
    server_memory: int
    worker_memory: int
    database: int
    """Bytes in use in Prefect's database, without free pages."""
    database_file: int
    run_directory: int
    versions: int
    flow_runs: dict[str, int] = field(default_factory=dict)
    """Flow runs that the server knows, by state."""


@dataclass
class _Soak:
    """One sitting."""

    stack: Stack
    folder: Path
    tables: dict[str, str]
    random: np.random.Generator
    done: int
    began: float
    killed: int = 0
    retention: bool = False

    @property
    def out(self) -> Path:
        return self.stack.folder / "run"

    def flow_runs(self, *states: str) -> list[dict[str, Any]]:
        """Flow runs of `nightly` in some states."""
        wanted = {
            "flow_runs": {"state": {"type": {"any_": list(states)}}},
            "deployments": {"name": {"any_": ["nightly"]}},
        }
        found: list[dict[str, Any]] = self.stack.ask(
            "POST", "/flow_runs/filter", wanted
        )
        return found

    def published(self) -> str:
        """The run id of the published results; empty if there are none."""
        try:
            found = json.loads((self.out / "published.json").read_text())
        except FileNotFoundError:
            return ""
        return str(found["run_id"])

    def change(self) -> None:
        """Other labels for some nodes, other communities for some members."""
        nodes = pq.read_table(self.tables["nodes"])
        labels = np.asarray(nodes["label"].fill_null(-1))
        some = self.random.random(len(labels)) < 0.05
        labels = np.where(some, self.random.integers(-1, 2, len(labels)), labels)
        made = pa.array(labels, pa.int64(), mask=labels < 0)
        at = nodes.schema.get_field_index("label")
        _replace(self.tables["nodes"], nodes.set_column(at, "label", made))
        members = pq.read_table(self.tables["memberships"])
        groups = np.asarray(members["community"])
        some = self.random.random(len(groups)) < 0.05
        groups = np.where(some, self.random.integers(0, 9, len(groups)), groups)
        made = pa.array(groups, pa.int64())
        at = members.schema.get_field_index("community")
        _replace(self.tables["memberships"], members.set_column(at, "community", made))

    def next_run(self, before: str, kill: bool) -> bool:
        """Wait until other results than `before` are published, and all runs are over.

        Returns whether a run was killed.
        """
        end = time.monotonic() + LONGEST
        strike = time.monotonic() + float(self.random.uniform(2, 20)) if kill else None
        while self.published() == before or self.flow_runs("RUNNING"):
            if time.monotonic() > end:
                raise TimeoutError(f"no run was completed after {self.done}")
            if strike and time.monotonic() > strike and self._strike():
                strike = None
            time.sleep(0.5)
        self.done += 1
        return kill and strike is None

    def _strike(self) -> bool:
        """Kill the flow run, its Dask workers, or Prefect's worker with both."""
        running = self.flow_runs("RUNNING")
        if not running or _ahead(running[0]) < SETTLED:
            return False
        hurt = [p for p in self._of_runs() if p.is_running()]
        if not hurt:
            return False
        if self.random.random() < 0.3:
            self.stack.worker.kill()
            self.stack.worker.wait(60)
            send(signal.SIGKILL, hurt)
            self.stack.start_worker()
        else:
            send(signal.SIGKILL, hurt)
        self.killed += 1
        return True

    def _of_runs(self) -> list[psutil.Process]:
        """Processes other than those of the server and the worker."""
        kept = {self.stack.server.pid, self.stack.worker.pid}
        found = marked(self.stack.environment[MARK])
        return [process for process in found if process.pid not in kept]

    def tidy(self) -> None:
        """Run the shipped housekeeping, and wait for its end."""
        days = KEPT * (time.monotonic() - self.began) / max(self.done, 1) / 86400
        given = {"runs": [str(self.out)], "keep_versions": KEPT}
        number = self.stack.run("housekeeping", keep_flow_runs_days=days, **given)
        ended = self.stack.ended(number, LONGEST)
        if ended is None or ended["state_type"] != "COMPLETED":
            raise RuntimeError(f"the housekeeping did not end well: {ended}")

    def sample(self) -> Sample:
        """What there is now."""
        starts = [psutil.Process().create_time()]
        starts += [_seconds(run["start_time"]) for run in self.flow_runs("RUNNING")]
        oldest = max(starts) if len(starts) > 1 else time.time()
        temporary = self.stack.temporary
        ours = [*temporary.glob("xnq-dist-*"), *temporary.glob("dask-scratch*/worker*")]
        busy = len(starts) > 1
        server = psutil.Process(self.stack.server.pid)
        worker = psutil.Process(self.stack.worker.pid)
        return Sample(
            runs=self.done,
            seconds=round(time.monotonic() - self.began, 1),
            retention=self.retention,
            temporary=len(ours) if not busy else -1,
            temporary_of_prefect=len(list(temporary.glob("prefect-*"))) - busy,
            shared=len(list(Path("/dev/shm").glob("*"))),  # noqa: S108
            processes=sum(_older(p, oldest - 60) for p in self._of_runs()),
            server_handles=server.num_fds(),
            worker_handles=worker.num_fds(),
            server_memory=server.memory_info().rss,
            worker_memory=worker.memory_info().rss,
            database=_used(self.stack.database),
            database_file=sum(
                file.stat().st_size
                for file in self.stack.database.parent.glob("prefect.db*")
            ),
            run_directory=_bytes(self.out),
            versions=len(list((self.out / "versions").iterdir())),
            flow_runs=self._states(),
        )

    def _states(self) -> dict[str, int]:
        counts = {}
        for state in ("COMPLETED", "CANCELLED", "FAILED", "CRASHED"):
            wanted = {"flow_runs": {"state": {"type": {"any_": [state]}}}}
            counts[state] = self.stack.ask("POST", "/flow_runs/count", wanted)
        return counts

    def schedule(self, seconds: float) -> None:
        """Start the schedule of `nightly`, or stop it with 0."""
        path = "/deployments/name/xnq-nightly/nightly"
        found = self.stack.ask("GET", path)
        path = f"/deployments/{found['id']}/schedules"
        for each in self.stack.ask("GET", path):
            self.stack.ask("DELETE", f"{path}/{each['id']}")
        if seconds:
            every = {"active": True, "schedule": {"interval": seconds}}
            self.stack.ask("POST", path, [every])


def soak(
    folder: Path, runs: int, kills: int, seed: int, without: int, interval: float
) -> list[Sample]:
    """Run until `runs` scheduled runs are complete; return all samples.

    Parameters
    ----------
    kills
        Number of runs to kill, in random order.
    without
        Number of runs before the housekeeping begins.
    interval
        Seconds between scheduled runs; those that meet a running one are cancelled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "samples.jsonl"
    samples = []
    if file.exists():
        lines = file.read_text().splitlines()
        samples = [Sample(**json.loads(line)) for line in lines]
    done = samples[-1].runs if samples else 0
    struck = np.random.default_rng([7, seed]).permutation(runs)[:kills]
    tables = write_tables(folder / "graph", seed=1)
    while done < runs:
        retention = done >= without
        last = runs if retention else min(runs, without)
        more = RETENTION if retention else {}
        mark = f"soak-{seed}-{done}"
        with Stack(folder / "stack", mark, tables, more) as stack:
            random = np.random.default_rng([7, seed, done])
            began = time.monotonic() - (samples[-1].seconds if samples else 0.0)
            one = _Soak(stack, folder, tables, random, done, began, 0, retention)
            one.schedule(interval)
            due = 0
            before = one.published()
            if before:
                one.change()
            while one.done < last:
                due += one.done in struck
                due -= one.next_run(before, due > 0)
                # A run may publish while the housekeeping runs.
                before = one.published()
                one.change()
                if retention and one.done % HOUSEKEEPING == 0:
                    one.tidy()
                samples.append(one.sample())
                with file.open("a") as stream:
                    stream.write(json.dumps(asdict(samples[-1])) + "\n")
            one.schedule(0)
            wait_until(lambda one=one: not one.flow_runs("RUNNING", "PENDING"), 120, 1)
            if retention:
                one.tidy()
                time.sleep(45)  # the server's own vacuum
            wait_until(lambda one=one: not one._of_runs(), 60, 1)
            samples.append(one.sample())
            with file.open("a") as stream:
                stream.write(json.dumps(asdict(samples[-1])) + "\n")
            with (folder / "killed").open("a") as stream:
                stream.write(f"{one.killed}\n")
            done = one.done
    return samples


MEASURES = {
    "temporary": ("temporary folders (xnq-dist, Dask)", 1),
    "temporary_of_prefect": ("temporary folders of Prefect's worker", 1),
    "shared": ("files in /dev/shm", 1),
    "processes": ("processes left", 1),
    "server_handles": ("open handles of the server", 1),
    "worker_handles": ("open handles of the worker", 1),
    "server_memory": ("memory of the server, MiB", 1 << 20),
    "worker_memory": ("memory of the worker, MiB", 1 << 20),
    "database": ("Prefect's database in use, MiB", 1 << 20),
    "database_file": ("Prefect's database on disk, MiB", 1 << 20),
    "run_directory": ("run directory, MiB", 1 << 20),
    "versions": ("versions in the run directory", 1),
}


def summary(samples: list[Sample]) -> str:
    """Figures before and with the housekeeping, and their growth, in Markdown."""
    parts = {
        "without": [s for s in samples if not s.retention],
        "with": [s for s in samples if s.retention],
    }
    head = "| | first | last without housekeeping | growth a run | "
    head += "last with housekeeping | growth a run, second half |"
    lines = [head, "|---|---|---|---|---|---|"]
    for name, (words, unit) in MEASURES.items():
        cells = [words, _shown(samples[0], name, unit)]
        for part in parts.values():
            half = part[len(part) // 2 :] if part is parts["with"] else part
            values = [_value(s, name) / unit for s in half if _value(s, name) >= 0]
            slope = 0.0
            if len(values) > 2:
                slope = float(np.polyfit(range(len(values)), values, 1)[0])
            cells += [_shown(part[-1], name, unit) if part else "", f"{slope:.3g}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| runs | database in use, MiB | flow runs known |", "|---|---|---|"]
    step = max(1, len(samples) // 12)
    for s in [*samples[:-1:step], samples[-1]]:
        known = sum(s.flow_runs.values())
        lines.append(f"| {s.runs} | {s.database / 2**20:.1f} | {known} |")
    return "\n".join(lines)


def _value(sample: Sample, name: str) -> float:
    return float(getattr(sample, name))


def _shown(sample: Sample, name: str, unit: int) -> str:
    value = _value(sample, name)
    return f"{value / unit:.1f}" if unit > 1 else f"{value:.0f}"


def _replace(path: str, table: pa.Table) -> None:
    aside = Path(path + ".new")
    pq.write_table(table, aside)
    aside.replace(path)


def _older(process: psutil.Process, than: float) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.create_time() < than)
    return False


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def _ahead(flow_run: dict[str, Any]) -> float:
    return _seconds(flow_run["start_time"]) - _seconds(flow_run["created"])


def _used(database: Path) -> int:
    """Bytes of an SQLite database without its free pages."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection:
        pages, free, size = (
            connection.execute(f"pragma {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def _bytes(folder: Path) -> int:
    """Bytes on disk; a file with several names counts once."""
    seen: dict[int, int] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                status = path.stat()
                seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _with_its_own_shared_memory() -> None:
    """Start this command again where ``/dev/shm`` is its own, if that is permitted."""
    place = "mount -t tmpfs tmpfs /dev/shm"
    words = ["unshare", "--mount", "sh", "-c", f'{place} && exec "$@"', "sh"]
    permitted = (
        shutil.which("unshare") and not subprocess.run([*words, "true"]).returncode
    )
    if permitted and "XNQ_SOAK" not in os.environ:
        command = [sys.executable, "-m", "tests.chaos.soak", *sys.argv[1:]]
        values = {**os.environ, "XNQ_SOAK": "1"}
        os.execvpe("unshare", [*words, *command], values)  # noqa: S606


def main() -> int:
    """Run the soak and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", type=int, default=40)
    parser.add_argument("--interval", type=float, default=10.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--again", action="store_true", help="from the beginning")
    chosen = parser.parse_args()
    _with_its_own_shared_memory()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = chosen.out.absolute()
    if chosen.again:
        shutil.rmtree(out, ignore_errors=True)
    samples = soak(
        out,
        chosen.runs,
        chosen.kills,
        chosen.seed,
        chosen.without,
        chosen.interval,
    )
    text = summary(samples)
    (out / "soak.md").write_text(text + "\n")
    sys.stdout.write(text + "\n")
    last = samples[-1]
    leaked = max(last.processes, 0) + max(last.temporary, 0)
    return 1 if leaked or last.flow_runs["FAILED"] + last.flow_runs["CRASHED"] else 0


if __name__ == "__main__":
    sys.exit(main())
