"""The measuring command at small size on the stand-in."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings, write_graph
from tests.gpu import measure
from tests.gpu.aims import (
    AIMS,
    APART,
    DIFFERENCE,
    FAILED,
    NOT_RUN,
    Aim,
    NotRunError,
    markdown,
    worst_terms,
)
from tests.gpu.conftest import make_backend, play_a_gpu
from tests.gpu.measure_line import cluster_of, compared, head
from xnq_dist.core import backend as backends
from xnq_dist.core.errors import SettingsError

PARTS = list(measure.PARTS)


def write_tolokers(folder: Path) -> Path:
    """A small graph registered as Tolokers, with all labels and splits."""
    write_graph(folder / "tolokers", nodes=450, edges=2500, labelled=1.0)
    fold = {
        "node_id": np.arange(450),
        "fold": np.zeros(450, np.int64),
        "role": np.resize(["train", "calibration", "test"], 450),
    }
    pq.write_table(pa.table(fold), folder / "tolokers" / "splits.parquet")
    return folder


@pytest.fixture
def where(tmp_path):
    """Options of a small measurement in this process, and its files."""
    out, page = tmp_path / "rows.csv", tmp_path / "page.md"
    files = ["--out", str(out), "--report", str(page)]
    return ["--standin", "--small", "--here", *files], out, page


@pytest.fixture
def measured(tmp_path, monkeypatch, where):
    """Rows, the file of rows and the page, measured in small."""
    pytest.importorskip("pandas")
    make_backend("standin")
    play_a_gpu(monkeypatch)  # put back afterwards
    monkeypatch.setenv("XNQ_DATA_DIR", str(write_tolokers(tmp_path / "data")))
    options, out, page = where
    assert measure.main(options) == 0
    return measure.read_rows(out), out, page, options


@pytest.mark.standin
def test_measured_figures_are_those_expected(measured, capsys):
    rows, out, page, where = measured
    with out.open() as stream:
        assert len(list(csv.DictReader(stream))) == len(rows)
    assert {row[0] for row in rows} == set(PARTS)
    found = {row[:3]: row[3] for row in rows}
    assert all(np.isfinite(value) for value in found.values())
    assert found["sld", "first 50", DIFFERENCE] < 1e-9
    assert 0 < found["states", "dense-float32", DIFFERENCE] < 1e-5
    assert found["superstep", "dense-float32", "same bits run to run"] == 1
    assert 0 < found["superstep", "dense-bfloat16", "largest error"] < 0.05
    assert found["memory", "bfloat16", "plan"] < found["memory", "float32", "plan"]
    assert found["ingest", "cudf", "same edges"] == 1
    for part in ("tolokers", "made"):
        here, there = (found[part, f"{name}-seed0", "AE"] for name in ("cpu", "gpu"))
        assert 0 < here < 0.3
        assert there == pytest.approx(here, abs=5e-3)
        assert found[part, "gpu-seed0", "seconds of embeddings"] > 0
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
    assert re.search(r"\| AE on Tolokers is the CPU's \| (pass|\*\*miss\*\*) \|", text)
    assert "failed" not in text
    assert "Worst term of the Genius-sized job: " in text
    capsys.readouterr()
    # One part again, beside the rest.
    assert measure.main([*where, "--parts", "sld", "--add"]) == 0
    again = measure.read_rows(out)
    assert {row[0] for row in again} == set(PARTS)
    assert len(again) == len(rows)
    told = capsys.readouterr().out
    assert "pass          SLD of all communities" in told
    assert "worst term: " in told


def test_the_command_starts_as_documented():
    root = Path(__file__).parents[2]
    written = Path(__file__).with_name("RESULTS.md").read_text()
    calls = re.findall(r"^python -m tests\.gpu\.measure(.*)$", written, re.MULTILINE)
    called = [re.findall(r"--parts ([a-z ]+)", call) for call in calls]
    named = [part for call in called for parts in call for part in parts.split()]
    assert sorted(named) == sorted(PARTS)
    command = [sys.executable, "-m", "tests.gpu.measure", "--help"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert all(part in done.stdout for part in PARTS)
    options = re.findall(r"--[a-z]+", " ".join(calls))
    assert all(option in done.stdout for option in options)


def test_documented_parts_are_those_of_the_command():
    written = Path(__file__).with_name("RESULTS.md").read_text()
    table = written.split("| part | what | aim |")[1].split("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert re.findall(r"`(\w+)`", " ".join(firsts)) == PARTS


def broken(error):
    def part(make, job):
        yield "broken", "case", "figure", 1.0, "s"
        raise error

    return part


def absent(make, job):
    raise NotRunError("no cudf")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("allocating 9 bytes\nmore"), "out of memory (allocating 9 bytes)"),
        (ModuleNotFoundError("x", name="dask"), "the package dask is not installed"),
        (SettingsError("a sentence"), "a sentence"),
        (AttributeError("no sort"), "AttributeError: no sort"),
    ],
)
def test_other_parts_run_after_one_fails(error, said, where, monkeypatch, capsys):
    modules = {
        "measure_broken": SimpleNamespace(part_broken=broken(error)),
        "measure_absent": SimpleNamespace(part_absent=absent),
        "measure_sound": SimpleNamespace(
            part_sound=lambda make, job: iter([("sound", "", "figure", 2.0, "")])
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"tests.gpu.{name}", module)
    parts = {name.removeprefix("measure_"): name for name in modules}
    monkeypatch.setattr(measure, "PARTS", parts)
    play_a_gpu(monkeypatch)
    options, out, page = where
    assert measure.main(options) == 1
    told = capsys.readouterr()
    assert f"{FAILED}: broken: {said}\n" in told.out
    assert f"{NOT_RUN}: absent: no cudf\n" in told.out
    assert type(error).__name__ in told.err  # where it came from
    kept = [("broken", "case", "figure", 1.0, "s"), ("sound", "", "figure", 2.0, "")]
    assert measure.read_rows(out) == kept
    assert f"`broken` {FAILED}: {said}\n" in page.read_text()
    # What only is not there is no failure.
    assert measure.main([*options, "--parts", "absent", "sound"]) == 0


def test_a_part_in_a_process_of_its_own_gives_rows(where, capsys):
    make_backend("standin")
    options, out, _ = where
    options.remove("--here")
    assert measure.main([*options, "--parts", "floor", "--minutes", "5"]) == 0
    rows = measure.read_rows(out)
    assert next(row[:3] for row in rows) == ("floor", "copy", "bandwidth")
    assert len(rows) == 5
    # The time is up: what was there stays, and the status says so.
    assert measure.main([*options, "--parts", "sld", "--add", "--minutes", "0"]) == 0
    assert measure.read_rows(out) == rows
    assert f"{NOT_RUN}: sld: the time given by --minutes" in capsys.readouterr().out


def test_a_process_that_dies_is_a_failed_part(monkeypatch):
    told = list(measure.said_there("floor", ["--standin"], 0.05))
    assert told == [(FAILED, "stopped when the time given by --minutes was up")]
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ((what, why),) = measure.said_there("floor", [], 60)
    assert (what, why[:34]) == (FAILED, "its process ended with status 1, p")
    assert measure.heard("a library's word\n") == ("", None)
    assert measure.heard("[1, 2]\n") == ("", None)


def test_a_machine_without_a_gpu_is_refused(where, monkeypatch, capsys):
    none = backends.GpuFacts({}, 0, "CuPy finds no CUDA device")
    monkeypatch.setattr(backends, "gpu_facts", lambda: none)
    assert measure.main(where[0][2:]) == 1
    assert "CuPy finds no CUDA device" in capsys.readouterr().out
    assert not where[1].exists()


def test_parts_that_lack_rapids_or_data_are_skipped(
    where, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(backends, "_installed", lambda name: name == "cupy")
    monkeypatch.setattr(backends, "gpu_facts", lambda: backends.GpuFacts({}, 1, "", 1))
    monkeypatch.setattr(measure, "environment", dict)
    monkeypatch.setenv("XNQ_DATA_DIR", str(tmp_path))
    assert measure.main([*where[0][1:], "--parts", "ingest", "tolokers"]) == 0
    told = capsys.readouterr().out
    assert f"{NOT_RUN}: ingest: cudf is not installed" in told
    assert f"{NOT_RUN}: tolokers: XNQ_DATA_DIR names no folder" in told


def test_a_device_has_workers_of_its_own():
    settings = small_settings("cluster.kind=local", "cluster.workers=1")
    with cluster_of(backends.gpu, settings) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        assert not client.scheduler.address.startswith("inproc")  # processes


def test_a_part_of_a_graph_has_the_edges_inside_it(tmp_path):
    data = write_tolokers(tmp_path)
    head(data / "tolokers", tmp_path / "less", 100)
    edges = pq.read_table(tmp_path / "less" / "edges.parquet").to_pydict()
    whole = pq.read_table(data / "tolokers" / "edges.parquet").to_pydict()
    inside = [
        pair for pair in zip(whole["src"], whole["dst"], strict=True) if max(pair) < 100
    ]
    assert list(zip(edges["src"], edges["dst"], strict=True)) == inside
    for name, rows in (("nodes", 100), ("splits", 100)):
        assert pq.read_metadata(tmp_path / "less" / f"{name}.parquet").num_rows == rows


def test_a_missed_aim_is_reported():
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
    # Every goal belongs to some part.
    assert {aim.part for aim in AIMS} <= set(measure.PARTS)


def test_errors_apart_by_more_than_the_seeds_miss_the_aim():
    near = list(
        compared("made", {"cpu": [0.10, 0.12, 0.11], "gpu": [0.11, 0.12, 0.12]})
    )
    far = list(compared("made", {"cpu": [0.10, 0.12, 0.11], "gpu": [0.15, 0.16, 0.14]}))
    aim = next(aim for aim in AIMS if aim.part == "made")
    assert aim.figure == APART
    assert aim.verdict(near)[0] == "pass"
    assert aim.verdict(far)[0] == "miss"
