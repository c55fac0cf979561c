"""The measuring command, in small on the stand-in, so that it runs when needed."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import measure
from tests.gpu.aims import AIMS, APART, DIFFERENCE, Aim, markdown, worst_terms
from tests.gpu.conftest import make_backend
from tests.gpu.measure_line import compared
from xnq_dist import backend as backends

PARTS = [part for part in measure.PARTS if part not in ("tolokers", "made")]
"""All but those that run the line in processes of their own, which play no GPU."""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Rows, the file of rows and the page, measured in small."""
    pytest.importorskip("pandas")
    make_backend("standin")
    monkeypatch.setattr(backends, "gpu", backends.gpu)  # put back afterwards
    out, page = tmp_path / "rows.csv", tmp_path / "page.md"
    where = ["--standin", "--small", "--out", str(out), "--report", str(page)]
    rows = measure.main([*where, "--parts", *PARTS])
    return rows, out, page, where


def test_the_measuring_command_fails_or_says_what_cannot_be(measured, capsys):
    rows, out, page, where = measured
    with out.open() as stream:
        assert len(list(csv.DictReader(stream))) == len(rows)
    assert {row[0] for row in rows} == set(PARTS)
    found = {row[:3]: row[3] for row in rows}
    assert all(np.isfinite(value) for value in found.values())
    assert found["sld", "first 50", DIFFERENCE] < 1e-9
    assert found["auto", "first 50", DIFFERENCE] < 1e-9
    assert 0 < found["states", "dense-float32", DIFFERENCE] < 1e-5
    assert found["superstep", "dense-float32", "same bits run to run"] == 1
    assert 0 < found["superstep", "dense-bfloat16", "largest error"] < 0.05
    assert found["memory", "bfloat16", "plan"] < found["memory", "float32", "plan"]
    assert found["ingest", "cudf", "same edges"] == 1
    # All of the profiled job, each kernel by its name.
    names = " ".join(name for name, _, _ in worst_terms(rows))
    for name in (
        "gather",
        "tanh_add",
        "sld",
        "cuBLAS",
        "copies to the host",
        "all else",
    ):
        assert name in names
    assert sum(share for _, _, share in worst_terms(rows)) == pytest.approx(1)
    text = page.read_text()
    assert "none: g++ and NumPy play it" in text
    assert "| states equal the CPU's at a low scale | pass |" in text
    assert "| AE on Tolokers is the CPU's | not measured |" in text
    assert "Worst term of the Genius-sized job: " in text
    capsys.readouterr()
    # One part again, beside the rest.
    again = measure.main([*where, "--parts", "sld", "--add"])
    assert {row[0] for row in again} == set(PARTS)
    assert len(again) == len(rows)
    told = capsys.readouterr().out
    assert "pass          SLD of all communities" in told
    assert "worst term: " in told


def test_the_command_cannot_be_started_as_is_written():
    root = Path(__file__).parents[2]
    written = Path(__file__).with_name("RESULTS.md").read_text()
    assert "&& python -m tests.gpu.measure\n" in written
    command = [sys.executable, "-m", "tests.gpu.measure", "--help"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert all(part in done.stdout for part in measure.PARTS)


def test_a_missed_aim_passes():
    most = Aim("fast", "job", "s", 5.0, "again")
    rows = [("job", "first", "s", 9.0, "s"), ("job", "again 1", "s", 4.0, "s")]
    assert most.verdict(rows) == ("pass", "4 (at most 5)")
    assert most.verdict([*rows, ("job", "again 2", "s", 6.0, "s")])[0] == "miss"
    assert most.verdict([*rows, ("job", "again", "s", float("nan"), "s")])[0] == "miss"
    assert most.verdict(rows[:1]) == ("not measured", "at most 5")
    least = Aim("same", "job", "bits", 1.0, at_least=True)
    bits = [("job", "a", "bits", 1.0, ""), ("job", "b", "bits", 0.0, "")]
    assert least.verdict(bits[:1])[0] == "pass"
    assert least.verdict(bits)[0] == "miss"
    assert "| **miss** | 0.0 " not in markdown(bits, {}, "")
    gap = [("states", "x", DIFFERENCE, 1.0, "")]
    assert "| **miss** | 1 (at most 0.0001) |" in markdown(gap, {"device": "d"}, "c")
    # Every aim is one that some part can reach.
    assert {aim.part for aim in AIMS} <= set(measure.PARTS)


def test_errors_apart_by_more_than_the_seeds_pass():
    near = list(
        compared("made", {"cpu": [0.10, 0.12, 0.11], "gpu": [0.11, 0.12, 0.12]})
    )
    far = list(compared("made", {"cpu": [0.10, 0.12, 0.11], "gpu": [0.15, 0.16, 0.14]}))
    aim = next(aim for aim in AIMS if aim.part == "made")
    assert aim.figure == APART
    assert aim.verdict(near)[0] == "pass"
    assert aim.verdict(far)[0] == "miss"
