"""Planned temporary disk equals the size of the files."""

from __future__ import annotations

import pytest

from tests.conftest import small_settings, write_graph
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import scratch
from xnq_dist.graph.needs import graph_scratch, sort_scratch
from xnq_dist.graph.prepare import prepare

CASES = {
    "in memory": ("1 GiB", 4, False),
    "in runs": ("64 KiB", 4, False),
    "in runs, weighted": ("64 KiB", 4, True),
    "many features": ("1 GiB", 120, False),
}


@pytest.mark.parametrize(("memory", "features", "weighted"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "both ways"])
def test_planned_temporary_disk_is_what_is_written(
    tmp_path,
    monkeypatch,
    memory,
    features,
    weighted,
    directed,
):
    graph = write_graph(
        tmp_path / "in", 2000, 12_000, features=features, weighted=weighted
    )
    folder = tmp_path / "scratch"
    folder.mkdir()
    largest = 0
    append = scratch.append

    def watched(path, array):
        nonlocal largest
        append(path, array)
        found = [p.stat().st_size for p in folder.rglob("*") if p.is_file()]
        largest = max(largest, sum(found))

    monkeypatch.setattr(scratch, "append", watched)
    settings = small_settings(
        f"input.memory={memory}",
        f"input.directed={directed}",
        f"scratch={folder}",
        "partitioner=stream",
    )
    run = RunDirectory(str(tmp_path / "run"))
    run.folder.create()
    facts = prepare(run, graph.sources, settings, 3).facts
    counts = facts["n_nodes"], facts["n_edges"], facts["n_features"]
    planned = graph_scratch(
        *counts, sum(facts["halo"]), settings.input.memory_bytes, weighted
    )
    assert 0.95 <= planned / largest <= 1.05
    assert not list(folder.iterdir())


def test_runs_within_memory_take_no_disk():
    assert sort_scratch(1000, 64_064) == 0
    assert sort_scratch(1000, 64_000) == 8000
    assert sort_scratch(1000, 128_000, weighted=True) == 16_000
    assert graph_scratch(10, 1000, 2, 5, 1 << 20, False) == 8000 + 120 + 40 + 88
    assert graph_scratch(10, 1000, 2, 5, 1 << 10, False) == 12_000 + 88
