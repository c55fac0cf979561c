"""Record the answers of the installed package, or make those of the recorded commit.

``python -m tests.answers.record`` writes the answers of cases that have none; the input
tables of a new case are put in its folder of `data` first. ``python -m
tests.answers.record --again FOLDER`` checks out the recorded commit in a folder of its
own, and writes what it answers on this machine to FOLDER: a comparison of bits on a
processor that rounds differently from the one of the records
(``XNQ_ANSWERS=FOLDER python -m pytest tests/answers``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.answers.cases import CASES, arguments

__all__ = ["HERE", "RECORD", "answer", "environment"]

HERE = Path(__file__).parent / "data"
"""A folder for each case: its input tables, and its answers."""
RECORD = "recorded.json"
"""The commit that gave the answers, and what its machine computed with."""
ANSWERS = ("prevalence", "totals", "posteriors")
LIBRARIES = (
    *("graspologic-native", "numba", "numpy", "pymetis", "scikit-learn", "scipy"),
)


def environment() -> dict[str, Any]:
    """Versions of libraries; a digest of the processor's products and functions."""
    numbers = np.random.default_rng(0).random(40_000).astype(np.float32) * 8 - 4
    digest = hashlib.sha256()
    for dtype in (np.float32, np.float64):
        values = numbers.astype(dtype)
        matrix = values.reshape(400, 100)
        products = matrix @ matrix.T[:, :77], matrix.T @ matrix, matrix @ matrix[0]
        functions = np.exp(values), np.tanh(values), np.log(values + dtype(4.5))
        for found in (*products, *functions, values.sum(), np.sqrt(np.abs(values))):
            digest.update(np.ascontiguousarray(found).tobytes())
    return {
        "libraries": {name: version(name) for name in LIBRARIES},
        "numbers": digest.hexdigest(),
    }


def answer(
    name: str, folder: Path, out: Path, cluster: dict[str, str] | None = None
) -> dict[str, pa.Table]:
    """Run a case by the command line in this process; its tables, without run ids."""
    from xnq_dist.app.cli import main

    try:
        main(arguments(CASES[name], folder, out, cluster))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"the run of {name} ended with {ended.code}") from ended
    posteriors = pq.read_table(out / "posteriors").sort_by("node_id")
    tables = {
        table: pq.read_table(out / f"{table}.parquet").drop_columns("run_id")
        for table in ("prevalence", "totals")
    }
    tables["posteriors"] = posteriors
    return {table: tables[table].replace_schema_metadata(None) for table in ANSWERS}


def record(into: Path, inputs: Path) -> None:
    """Write the answers of all cases that have none in the folder `into`."""
    for name in CASES:
        if (into / name / f"{ANSWERS[-1]}-answer.parquet").exists():
            continue
        (into / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as out:
            found = answer(name, inputs / name, Path(out, "run"))
        for table, rows in found.items():
            path = into / name / f"{table}-answer.parquet"
            pq.write_table(rows, path, compression="zstd")
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    (into / RECORD).write_text(
        json.dumps({"commit": head, **environment()}, indent=1) + "\n"
    )


def record_again(into: Path) -> None:
    """Write what the recorded commit answers on this machine."""
    commit = json.loads((HERE / RECORD).read_text())["commit"]
    root = HERE.parents[2]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(root), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), commit], check=True)
        try:
            here = tree / "tests" / "answers"
            shutil.rmtree(here, ignore_errors=True)
            shutil.copytree(HERE.parent, here)
            command = [sys.executable, "-m", "tests.answers.record"]
            subprocess.run(
                [*command, "--into", str(into.absolute())],
                cwd=tree,
                env={**os.environ, "PYTHONPATH": str(tree)},
                check=True,
            )
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", type=Path, metavar="FOLDER")
    parser.add_argument("--into", type=Path, default=HERE, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.again:
        record_again(given.again)
    else:
        record(given.into, HERE)
