"""Damaged files of a run, by seed: the next run repairs them.

A case copies a run, damages one of its files (a flipped bit, a cut, a zeroed or
overwritten sector, the manifest of another stage), runs again, and compares every
published value with those of the same run undamaged. The run was finished, or finished
and has other settings now, for the readout or for the intervals, or was interrupted
between two supersteps.

    same        equal, nothing was deleted
    repaired    equal, after damaged files were deleted and computed again
    silent      a published value differs
    late        the first run failed, the second one repaired it
    stuck       the second run failed, too

``python -m tests.chaos.damage --cases 1000 --out damage.jsonl`` goes on where it was
interrupted: seeds that are in the file are not done again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import SmallGraph, small_settings, write_graph
from xnq_dist import jobs, pipeline
from xnq_dist.core.errors import XnqError
from xnq_dist.core.store import read_published

if TYPE_CHECKING:
    from distributed import Client

SECTOR = 512
KINDS = ("flip", "cut", "zero", "garbage", "foreign")
STATES = {
    "finished": (),
    "interrupted": (),
    "refitted": ("readout.C=0.5",),
    "requantified": ("intervals.level=0.9",),
}
"""States of runs to be damaged, and settings that have changed since."""
BEFORE = ["effect", "effect_lower", "effect_upper", "changed"]
"""Columns of the history that compare a run with the one before."""
QUICK = (
    "reservoir.dim=8",
    "reservoir.supersteps=6",
    "intervals.resamples=20",
    "readout.folds=3",
    "checkpoint.every=1",
    "partitions=2",
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case."""

    seed: int
    state: str
    """One of `STATES`."""
    file: str
    kind: str
    outcome: str
    seconds: float
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    """Runs to be damaged, and their published values without damage."""

    client: Client
    graph: SmallGraph
    folder: Path
    expected: dict[str, dict[str, pa.Table]] = field(default_factory=dict, repr=False)

    def state(self, name: str) -> Path:
        """The directory that cases of this state copy."""
        return self.folder / ("interrupted" if name == "interrupted" else "finished")


class Interrupted(Exception):  # noqa: N818 - an event, not an error
    """Raised to end a run between two supersteps."""


def run_again(bench: Bench, out: Path, *more: str, **given: Any) -> None:
    """A run using the Python functions."""
    settings = small_settings(*QUICK, *more)
    with pipeline.open_run(str(out), bench.graph.sources) as run:
        jobs.run_stages(run, bench.graph.sources, settings, bench.client, **given)


def published(out: Path) -> dict[str, pa.Table]:
    """Every published value: tables by the pointer, and at their usual paths.

    Names of the run and the locations of the partitions' files are left out.
    """
    version = read_published(out)
    found = {name: version.read(name) for name in version.tables()}
    for name in list(found):
        found[f"{name} at its usual path"] = pq.read_table(out / f"{name}.parquet")
    per_run = {"run_id", "run", "created"}
    return {
        name: table.select([one for one in table.column_names if one not in per_run])
        for name, table in found.items()
    }


def prepared(folder: Path, client: Client) -> Bench:
    """A finished run with two versions, and one interrupted between supersteps."""
    graph = write_graph(folder / "input", nodes=240, edges=1200)
    bench = Bench(client, graph, folder)
    # Earlier results with another seed, for the comparison.
    run_again(bench, bench.state("finished"), "seed=7")
    run_again(bench, bench.state("finished"))

    def stop(what: str, done: int, _total: int) -> None:
        if what == "supersteps" and done == 5:
            raise Interrupted

    with suppress(Interrupted):
        run_again(bench, bench.state("interrupted"), progress=stop)
    for name, more in STATES.items():
        out = folder / "undamaged"
        copied(bench.state(name), out)
        run_again(bench, out, *more)
        bench.expected[name] = published(out)
        shutil.rmtree(out)
    return bench


def copied(source: Path, target: Path) -> None:
    """Copy a folder; hard links between its files are kept."""
    seen: dict[int, Path] = {}
    for path in sorted(source.rglob("*")):
        there = target / path.relative_to(source)
        if path.is_dir():
            there.mkdir(parents=True, exist_ok=True)
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        number = path.stat().st_ino
        if number in seen:
            os.link(seen[number], there)
        else:
            seen[number] = there
            shutil.copyfile(path, there)


def damage(path: Path, kind: str, rng: np.random.Generator) -> None:
    """Change one file in place."""
    size = path.stat().st_size
    with path.open("r+b") as stream:
        if kind == "cut":
            stream.truncate(int(rng.integers(0, size)))
            return
        if kind == "flip":
            at = int(rng.integers(0, size))
            stream.seek(at)
            value = stream.read(1)[0] ^ (1 << int(rng.integers(0, 8)))
            stream.seek(at)
            stream.write(bytes([value]))
            return
        at = int(rng.integers(0, -(-size // SECTOR))) * SECTOR
        length = min(SECTOR, size - at)
        stream.seek(at)
        stream.write(bytes(length) if kind == "zero" else rng.bytes(length))


@contextmanager
def deletions() -> Iterator[list[str]]:
    """Messages of the block that name what is deleted because it is damaged."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "is deleted because it is damaged" in (text := record.getMessage()):
                found.append(text)

    handler, logger = Kept(), logging.getLogger("xnq_dist")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


def differing(bench: Bench, state: str, out: Path, uncompared: bool) -> list[str]:
    """Names of tables that differ from those of the undamaged run.

    `uncompared`: earlier results themselves were damaged, so that there is nothing to
    compare with, or older ones, and the history has no rows of theirs.
    """
    found, expected = published(out), bench.expected[state]

    def differs(name: str) -> bool:
        if name not in found or name not in expected:
            return True
        if uncompared and name.startswith("history"):
            left, every = (
                set(map(str, tables[name].drop_columns(BEFORE).to_pylist()))
                for tables in (found, expected)
            )
            return not left or not left <= every
        return not found[name].equals(expected[name])

    names = {*found, *expected}
    return sorted(
        name
        for name in names
        if not (uncompared and name.startswith("changes")) and differs(name)
    )


def one_case(bench: Bench, seed: int) -> Outcome:
    """Damage one file of one run, and run again."""
    rng = np.random.default_rng([14, seed])
    state = str(rng.choice(list(STATES)))
    out = bench.folder / f"case-{seed}"
    copied(bench.state(state), out)
    files = [path for path in out.rglob("*") if path.is_file() and path.stat().st_size]
    # Each folder has the same probability, for any number of files.
    places: dict[str, list[Path]] = {}
    for path in sorted(files):
        inside = path.relative_to(out).parts
        places.setdefault(inside[0] if len(inside) > 1 else "", []).append(path)
    among = places[str(rng.choice(sorted(places)))]
    path = among[int(rng.integers(0, len(among)))]
    kind = str(rng.choice(KINDS))
    if kind == "foreign":
        path, other = rng.permutation(sorted(out.glob("*/_manifest.json")))[:2]
        shutil.copyfile(other, path)
    else:
        damage(path, kind, rng)
    name = str(path.relative_to(out))
    began = time.perf_counter()
    errors: list[str] = []
    outcome = "stuck"
    with deletions() as deleted:
        for attempt in ("first", "second"):
            try:
                run_again(bench, out, *STATES[state])
                lost = any(f"{out}/versions/" in line for line in deleted)
                wrong = differing(bench, state, out, uncompared=lost)
            except (XnqError, ValueError, OSError, KeyError, TypeError) as error:
                errors.append(f"{attempt} run: {type(error).__name__}: {error}")
                continue
            if wrong:
                outcome = "silent"
                errors.append(f"{attempt} run: {', '.join(wrong)} differ")
            elif attempt == "second":
                outcome = "late"
            else:
                outcome = "repaired" if deleted else "same"
            break
    seconds = round(time.perf_counter() - began, 2)
    if outcome in ("same", "repaired"):
        shutil.rmtree(out)
    return Outcome(seed, state, name, kind, outcome, seconds, tuple(errors))


@contextmanager
def one_process() -> Iterator[Client]:
    """Workers as threads of this process."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def main() -> None:
    """Cases by seed, recorded as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    known = []
    if chosen.out.exists():
        known = [json.loads(line) for line in chosen.out.read_text().splitlines()]
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    done = {record["seed"] for record in known}
    counts = Counter(record["outcome"] for record in known)
    with (
        tempfile.TemporaryDirectory() as folder,
        one_process() as client,
        chosen.out.open("a") as record,
    ):
        bench = prepared(Path(folder), client)
        for seed in range(chosen.first, chosen.first + chosen.cases):
            if seed in done:
                continue
            found = one_case(bench, seed)
            record.write(json.dumps(asdict(found)) + "\n")
            record.flush()
            counts[found.outcome] += 1
            sys.stdout.write(f"{seed}: {found.outcome} {found.file} {found.kind}\n")
    sys.stdout.write(f"{dict(counts)}\n")


if __name__ == "__main__":
    main()
