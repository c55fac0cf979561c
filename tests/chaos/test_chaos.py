"""The harness itself, and twenty faults."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.cases import FAULTS, choose
from tests.chaos.published import differences, published
from tests.chaos.verdict import Attempt, bad, judge, table

ROOT = Path(__file__).parents[2]


def test_every_fault_is_chosen_and_a_seed_gives_the_same_cases():
    cases = choose(len(FAULTS), 3)
    assert {case.fault for case in cases} == {fault.name for fault in FAULTS}
    assert choose(200, 3)[: len(cases)] == cases
    assert choose(len(FAULTS), 4) != cases
    many = choose(999, 0)
    places = {(case.fault, case.stage) for case in many}
    wanted = {(fault.name, stage) for fault in FAULTS for stage in fault.stages}
    assert places == wanted


def of(status: int | None, *sentences: str, differing: tuple[str, ...] = ()) -> Attempt:
    return Attempt(status, 1.0, list(sentences), False, list(differing))


@pytest.mark.parametrize(
    ("runs", "killed", "verdict"),
    [
        ([of(0)], False, "ended"),
        ([of(4, "full"), of(0)], False, "refused"),
        ([of(4, "full", "again"), of(0)], False, "unclear"),
        ([of(1, "bug"), of(0)], False, "unclear"),
        ([of(-9), of(0)], True, "recovered"),
        ([of(-11), of(0)], False, "unclear"),
        ([of(-9), of(0, differing=("posteriors",))], True, "silent"),
        ([of(4, "x"), of(1, "x"), of(1, "x")], False, "stuck"),
        ([of(4, "x"), of(None)], False, "hung"),
    ],
)
def test_verdicts_are_those_of_the_outcome(runs, killed, verdict):
    assert judge(runs, (4,), killed) == verdict


def test_table_counts_leaks_in_addition_to_verdicts():
    records = [
        {"fault": "kill-client", "verdict": "recovered", "leaked": ["_lock.json"]},
        {"fault": "full-disk", "verdict": "refused", "leaked": []},
        {"fault": "full-disk", "verdict": "stuck", "leaked": []},
    ]
    rows = [line.strip("| ").split(" | ") for line in table(records).splitlines()]
    head = [name.strip() for name in rows[0]]
    total = dict(zip(head, rows[-1], strict=True))
    assert total["cases"] == "3"
    assert (total["refused"], total["stuck"], total["leaked"]) == ("1", "1", "1")
    assert [record["verdict"] for record in bad(records)] == ["recovered", "stuck"]


def test_any_published_value_that_differs_is_seen(tmp_path):
    out = tmp_path / "run"
    (out / "posteriors").mkdir(parents=True)
    rows = pa.table({"community": [0, 1], "prevalence": [0.25, 0.75], "run_id": "ab"})
    pq.write_table(rows, out / "prevalence.parquet")
    nodes = pa.table({"node_id": [1, 0], "posterior": [0.1, 0.2]})
    pq.write_table(nodes, out / "posteriors" / "part-00000-a.parquet")
    expected = published(out)
    other = tmp_path / "other"
    shutil.copytree(out, other)
    # From another run, whose files have other row ranges.
    again = rows.set_column(2, "run_id", pa.array(["cd", "cd"]))
    pq.write_table(again, other / "prevalence.parquet")
    (other / "posteriors" / "part-00000-a.parquet").unlink()
    for number in range(2):
        part = other / "posteriors" / f"part-0000{number}-b.parquet"
        pq.write_table(nodes.slice(number, 1), part)
    assert differences(expected, other) == []
    near = [0.25, float(np.nextafter(0.75, 1))]
    changed = rows.set_column(1, "prevalence", pa.array(near))
    pq.write_table(changed, other / "prevalence.parquet")
    assert differences(expected, other) == ["prevalence"]
    (other / "prevalence.parquet").write_bytes(b"PAR1")
    assert "unreadable" in differences(expected, other)[0]


@pytest.mark.faults
@pytest.mark.server
def test_twenty_faults_end_in_allowed_verdicts(tmp_path):
    """As in CI; if it fails, its message has the table."""
    command = ["--faults", "20", "--seed", "0", "--jobs", "2", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = (tmp_path / "outcomes.jsonl").read_text().splitlines()
    assert len({json.loads(line)["name"] for line in lines}) == 20
