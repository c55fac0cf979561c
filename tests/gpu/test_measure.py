"""The measuring command at small size on the stand-in."""

from __future__ import annotations

from pathlib import Path

from tests.gpu import measure
from tests.gpu.conftest import play_a_gpu


def test_supersteps_are_measured_and_compared_with_the_cpu(monkeypatch, tmp_path):
    play_a_gpu(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "FULL", measure.Job(400, 2_000, 32, 4))
    monkeypatch.setattr(measure, "machine", lambda: "nothing: g++ plays a GPU")
    assert measure.main() == 0
    rows = [
        [cell.strip() for cell in line.split("|")[1:4]]
        for line in Path("gpu-report.md").read_text().splitlines()[4:]
    ]
    found = {(case, figure): float(value) for case, figure, value in rows}
    assert found["sparse", "largest difference from the CPU"] == 0
    assert found["dense", "largest difference from the CPU"] < 1e-5
    assert found["dense", "same bits run to run"] == 1
    assert found["dense", "times the floor"] > 0
