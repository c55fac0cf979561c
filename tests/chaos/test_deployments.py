"""The harness of deployed runs, with four of its faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.deployments.cases import KINDS, choose, reached
from tests.chaos.deployments.outcomes import Attempt, judge
from tests.chaos.processes import ROOT

DONE = Attempt("COMPLETED", "", 1.0, 1)
FULL = Attempt("FAILED", "the disk of /run is full: free space", 1.0, 1)
VAGUE = Attempt("FAILED", "Flow run encountered an exception: KeyError", 1.0, 1)
OTHER = Attempt("COMPLETED", "", 1.0, 1, ["prevalence"])
HUNG = Attempt("HUNG", "Running", 1.0, 1)


def test_every_kind_is_chosen_and_a_seed_gives_the_same_cases():
    cases = choose(len(KINDS), 3)
    assert {case.kind for case in cases} == {kind.name for kind in KINDS}
    assert choose(200, 3)[: len(cases)] == cases
    assert choose(len(KINDS), 4) != cases
    places = {(case.kind, case.stage) for case in choose(999, 0)}
    assert places == {(kind.name, stage) for kind in KINDS for stage in kind.stages}


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ([DONE], "right"),
        ([FULL, DONE], "recovered"),
        ([VAGUE, DONE], "unclear"),
        ([OTHER], "silent"),
        ([FULL, OTHER], "silent"),
        ([FULL, FULL, FULL], "stuck"),
        ([HUNG], "hung"),
        ([FULL, HUNG], "hung"),
    ],
)
def test_verdicts_are_those_of_the_flow_runs(runs, verdict):
    assert judge(runs) == verdict


def test_the_stage_of_a_run_is_read_from_its_directory(tmp_path: Path):
    seen = [reached(tmp_path)]
    (tmp_path / "_run.json").write_text("{}")
    seen.append(reached(tmp_path))
    for folder in ("graph", "embeddings", "posteriors", "quantify"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "_manifest.json").write_text("{}")
        seen.append(reached(tmp_path))
    (tmp_path / "published.json").write_text("{}")
    seen.append(reached(tmp_path))
    wanted = ["start", "graph", "embed", "readout", "quantify", "publish", "over"]
    assert seen == wanted


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=5400,
        check=False,
    )


@pytest.mark.faults
@pytest.mark.server
def test_faults_of_deployed_runs_end_in_the_right_answer(tmp_path: Path):
    number = os.environ.get("XNQ_DEPLOYED_FAULTS", "4")
    out = ("--seed", "1", "--out", str(tmp_path))
    done = command("tests.chaos", "--deployments", number, *out)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = (tmp_path / "deployments.jsonl").read_text().splitlines()
    assert len({json.loads(line)["name"] for line in lines}) == int(number)
