"""The measuring command at small size on the stand-in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gpu import measure
from tests.gpu.conftest import play_a_gpu
from xnq_dist.core import backend as backends


def test_every_part_gives_rows_and_a_section(monkeypatch, tmp_path, capsys):
    play_a_gpu(monkeypatch)  # put back afterwards
    report = tmp_path / "report.md"
    assert measure.main(["--standin", "--small", "--report", str(report)]) == 0
    text = report.read_text()
    assert "device none: g++ and NumPy play it" in text
    rows = re.findall(
        r"^\| (\w+) \| ([\w ]+) \| (.+) \| ([\d.e+-]+) \| \S* ?\|$", text, re.M
    )
    found = {(part, case, figure): float(value) for part, case, figure, value in rows}
    assert {part for part, _, _ in found} == set(measure.PARTS)
    gap = "largest difference from the CPU"
    assert found["superstep", "sparse", gap] == 0
    assert found["superstep", "dense", gap] < 1e-5
    assert found["superstep", "dense", "same bits run to run"] == 1
    assert found["pipeline", "gpu", "embeddings"] > 0
    for name in ("posterior", "prevalence"):
        both = found["pipeline", "gpu against cpu", f"largest difference, {name}"]
        assert both < 5e-3
    assert "| superstep | dense | times the floor |" in capsys.readouterr().out


def test_a_part_that_fails_is_named_and_others_run(monkeypatch, tmp_path):
    play_a_gpu(monkeypatch)

    def broken(job):
        yield "broken", "case", "figure", 1.0, "s"
        raise MemoryError("allocating 9 bytes")

    parts = {"broken": broken, "floor": measure.floor}
    monkeypatch.setattr(measure, "PARTS", parts)
    report = tmp_path / "report.md"
    assert measure.main(["--standin", "--small", "--report", str(report)]) == 1
    text = report.read_text()
    assert "| broken | case | figure | 1 | s |" in text
    assert "| floor | copy | bandwidth |" in text
    assert text.endswith("`broken` failed: MemoryError: allocating 9 bytes\n")


def test_a_machine_without_a_gpu_is_refused(monkeypatch, capsys):
    none = backends.GpuFacts({}, 0, "CuPy finds no CUDA device")
    monkeypatch.setattr(backends, "gpu_facts", lambda: none)
    assert measure.main([]) == 1
    assert "CuPy finds no CUDA device" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["tests/gpu/RESULTS.md", "docs/how-to/gpu.md"])
def test_the_command_starts_as_documented(place):
    text = (Path(__file__).parents[2] / place).read_text()
    calls = re.findall(r"python -m tests\.gpu\.measure(.*)$", text, re.MULTILINE)
    assert calls
    named = re.findall(r"--parts ([a-z ]+)", " ".join(calls))
    assert set(" ".join(named).split()) <= set(measure.PARTS)
