"""The start of every case: a small graph, and runs of it without faults."""

from __future__ import annotations

import shutil
import threading
import time
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.chaos.processes import Launch, Running, wait_until
from tests.chaos.published import published
from tests.conftest import write_graph

__all__ = ["VARIANTS", "Base", "overrides", "write_tables"]

NODES, EDGES = 240, 900
TIMEOUT = 10
"""Seconds of ``cluster.timeout``."""
LONGEST = 240.0
"""Maximum seconds of a run without faults on a busy machine."""

QUICK = (
    "reservoir.dim=8",
    "reservoir.supersteps=30",
    "reservoir.recurrent_scale=1.0",
    "reservoir.input_scale=0.5",
    "checkpoint.every=5",
    "partitions=2",
    "intervals.resamples=20",
    "cluster.kind=local",
    "cluster.threads=1",
    "cluster.memory_limit=2GiB",
    f"cluster.timeout={TIMEOUT}",
)
VARIANTS = {
    "same": (),
    "quantify": ("quantifier=sld",),
    "readout": ("readout.C=0.3",),
    "half": (),
}
"""Settings of a run after damage: those of the run before, or others, so that stages
are read that would not be; ``half``: that run was killed at a checkpoint."""


def overrides(workers: int, *more: str) -> list[str]:
    """Settings of a run."""
    return [
        *QUICK,
        f"cluster.workers={workers}",
        "readout.C=1.0",
        *more,
    ]


def write_tables(folder: Path, seed: int) -> dict[str, str]:
    """Write the tables of a small graph; return their paths by name."""
    write_graph(folder, NODES, EDGES, seed=seed)
    nodes = np.arange(NODES)
    members = {"community": nodes // 30, "node_id": nodes}
    pq.write_table(pa.table(members), folder / "memberships.parquet")
    names = ("nodes", "edges", "memberships")
    return {table: str(folder / f"{table}.parquet") for table in names}


class Base:
    """Tables, finished runs and their published values, each made when first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables = write_tables(folder / "graph", seed=1)
        self._other = write_tables(folder / "other", seed=2)
        self._lock = threading.Lock()
        self._expected: dict[str, dict[str, pa.Table]] = {}
        self.seconds = 0.0
        """Of an undisturbed run."""

    def launch(self, mark: str, tables: dict[str, str] | None = None) -> Launch:
        """Runs without faults, using the Python functions."""
        temporary = self.folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        return Launch(mark, tables or self.tables, "functions", temporary)

    @cached_property
    def finished(self) -> Path:
        """A complete run directory."""
        return self.finish("finished", self.tables)

    @cached_property
    def other(self) -> Path:
        """A complete run directory of another graph."""
        return self.finish("finished-other", self._other)

    @cached_property
    def half(self) -> Path:
        """A run directory of a run that was killed at a checkpoint of the embedding."""
        out = self._cleared("half")
        for _ in range(5):
            running = self.launch("base").start(out, overrides(1))
            wait_until(partial(_at_a_checkpoint, out, running), LONGEST, 0.001)
            running.kill()
            if _checkpoints(out) and not (out / "embeddings/_manifest.json").exists():
                (out / "_lock.json").unlink(missing_ok=True)
                return out
            shutil.rmtree(out)
        raise RuntimeError("no run could be killed between two checkpoints")

    def begin(self, variant: str, out: Path) -> None:
        """Copy the run that a variant starts from to `out`."""
        with self._lock:
            source = self.half if variant == "half" else self.finished
        shutil.copytree(source, out)

    def foreign(self) -> Path:
        """A complete run directory of another graph, as a copy."""
        with self._lock:
            return self.other

    def expected(self, variant: str) -> dict[str, pa.Table]:
        """The published values of a run without faults."""
        key = "same" if variant == "half" else variant
        with self._lock:
            if key not in self._expected:
                out = self.finished
                if VARIANTS[key]:
                    out = self._cleared(f"finished-{key}")
                    self._run(out, self.tables, *VARIANTS[key])
                self._expected[key] = published(out)
            return self._expected[key]

    def finish(self, name: str, tables: dict[str, str]) -> Path:
        """A new run directory of a complete run."""
        out = self._cleared(name)
        began = time.monotonic()
        self._run(out, tables)
        self.seconds = max(self.seconds, time.monotonic() - began)
        return out

    def _run(self, out: Path, tables: dict[str, str], *more: str) -> None:
        running = self.launch("base", tables).start(out, overrides(1, *more))
        if running.end(LONGEST) != 0:
            running.kill()
            raise RuntimeError("an undisturbed run failed:\n" + "".join(running.lines))

    def _cleared(self, name: str) -> Path:
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        return out


def _checkpoints(out: Path) -> list[Path]:
    return list(out.glob("checkpoints/step-*/_manifest.json"))


def _at_a_checkpoint(out: Path, running: Running) -> bool:
    return running.over or bool(_checkpoints(out))
