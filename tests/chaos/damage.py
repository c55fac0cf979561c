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
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Outcome(NamedTuple):
    """The outcome of one case."""

    outcome: str
    seed: int
    state: str
    """One of `STATES`."""
    file: str
    kind: str
    errors: tuple[str, ...]


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
    version, found = read_published(out), {}
    for name in version.tables():
        top = pq.read_table(out / f"{name}.parquet")
        for place, table in (("", version.read(name)), (" at its usual path", top)):
            per_run = {"run_id", "run", "created"} & {*table.column_names}
            found[name + place] = table.drop_columns(list(per_run))
    return found


def prepared(folder: Path, client: Client) -> Bench:
    """A finished run with two versions, and one interrupted between supersteps."""
    graph = write_graph(folder / "input", nodes=240, edges=1200)
    bench = Bench(client, graph, folder)
    # Earlier results with another seed, for the comparison.
    run_again(bench, bench.state("finished"), "seed=7")
    run_again(bench, bench.state("finished"))

    def stop(what: str, done: int, _total: int) -> None:
        if what == "embed: supersteps" and done == 5:
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
    """Copy a folder."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True, timeout=60)


def damage(path: Path, kind: str, rng: np.random.Generator) -> None:
    """Change one file in place."""
    data = bytearray(path.read_bytes())
    at = int(rng.integers(0, len(data)))
    if kind == "cut":
        del data[at:]
    elif kind == "flip":
        data[at] ^= 1 << int(rng.integers(0, 8))
    else:
        at -= at % SECTOR
        length = min(SECTOR, len(data) - at)
        data[at : at + length] = bytes(length) if kind == "zero" else rng.bytes(length)
    path.write_bytes(data)


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


def one_case(bench: Bench, seed: int, caplog: Any) -> Outcome:
    """Damage one file of one run, and run again."""
    rng = np.random.default_rng([14, seed])
    state = str(rng.choice(list(STATES)))
    out = bench.folder / f"case-{seed}"
    copied(bench.state(state), out)
    path, kind = damaged(out, rng)
    errors: list[str] = []
    outcome = "stuck"
    for attempt in ("first", "second"):
        caplog.clear()
        try:
            run_again(bench, out, *STATES[state])
            lines = caplog.messages
            deleted = [line for line in lines if "deleted because it is da" in line]
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
    shutil.rmtree(out)
    name = str(path.relative_to(out))
    return Outcome(outcome, seed, state, name, kind, tuple(errors))


def damaged(out: Path, rng: np.random.Generator) -> tuple[Path, str]:
    """Damage one file of a run directory; return its path and the kind of damage."""
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
    return path, kind
