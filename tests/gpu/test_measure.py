"""The measuring command at small size on the stand-in."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

from tests.gpu import measure
from tests.gpu.conftest import play_a_gpu
from xnq_dist.core import backend as backends


def test_every_part_gives_rows(monkeypatch, tmp_path, thread_client):
    play_a_gpu(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "FULL", measure.Job(400, 2_000, 32, 4))
    monkeypatch.setattr(measure, "machine", lambda: "nothing: g++ plays a GPU")
    monkeypatch.setattr(measure, "workers", lambda _: nullcontext(thread_client))
    assert measure.main([]) == 0
    rows = [
        [cell.strip() for cell in line.split("|")[1:5]]
        for line in Path("gpu-report.md").read_text().splitlines()[4:]
    ]
    found = {(case, figure): float(value) for _, case, figure, value in rows}
    assert {part for part, *_ in rows} == set(measure.PARTS)
    assert found["sparse", "largest difference from the CPU"] == 0
    assert found["dense", "largest difference from the CPU"] < 1e-5
    assert found["dense", "same bits run to run"] == 1
    assert found["dense", "times the floor"] > 0
    assert found["gpu", "embeddings"] > 0
    assert found["gpu against cpu", "largest difference, prevalence"] < 5e-3


def test_a_part_that_fails_is_named(monkeypatch, tmp_path):
    def broken(job):
        yield "case", "figure", 1.0, "s"
        raise MemoryError("allocating 9 bytes")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "machine", lambda: "nothing")
    monkeypatch.setattr(measure, "PARTS", {"broken": broken})
    assert measure.main([]) == 1
    text = Path("gpu-report.md").read_text()
    assert "| broken | case | figure | 1 | s |\n| broken | failed | MemoryError" in text


def test_a_machine_without_a_gpu_is_refused(monkeypatch, capsys):
    none = backends.GpuFacts({}, 0, "CuPy finds no CUDA device")
    monkeypatch.setattr(backends, "gpu_facts", lambda: none)
    assert measure.main([]) == 1
    assert "CuPy finds no CUDA device" in capsys.readouterr().out


def test_documented_parts_are_those_of_the_command():
    written = Path(__file__).with_name("RESULTS.md").read_text()
    calls = re.findall(r"^python -m tests\.gpu\.measure (\w+)$", written, re.MULTILINE)
    assert calls == list(measure.PARTS)
