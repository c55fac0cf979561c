"""Planned temporary disk equals the size of the files."""

from __future__ import annotations

import pytest

from tests.conftest import small_settings, write_graph
from xnq_dist.core.need import GraphSize
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import scratch
from xnq_dist.graph.needs import graph_scratch
from xnq_dist.graph.prepare import prepare

CASES = {
    "one run": ("1 GiB", 4, False),
    "weighted": ("256 KiB", 4, True),
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
    run.create()
    facts = prepare(run, graph.sources, settings, 3).facts
    counts = facts["n_nodes"], facts["n_edges"], facts["n_features"]
    planned = graph_scratch(GraphSize(*counts, weighted=weighted), sum(facts["halo"]))
    assert 0.95 <= planned / largest <= 1.05
    assert not list(folder.iterdir())
