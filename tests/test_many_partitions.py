"""Many partitions for each worker: the same results, and messages that do not grow."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.conftest import SmallGraph, published_values, small_settings, write_graph
from tests.test_pipeline import posteriors, whole_line
from xnq_dist.core.store import RunDirectory


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> SmallGraph:
    return write_graph(tmp_path_factory.mktemp("many"), nodes=1500, edges=5000)


def made(folder: Path, graph: SmallGraph, client, count: int, *more: str):
    settings = small_settings(f"partitions={count}", *more)
    return whole_line(folder, graph.sources, settings, client)


def check_same(run: RunDirectory, other: RunDirectory) -> None:
    assert posteriors(other).equals(posteriors(run))
    assert published_values(other.uri).equals(published_values(run.uri))


def test_same_results_and_small_references_with_48_partitions(tmp_path, graph, client):
    two, many = (made(tmp_path / str(n), graph, client, n) for n in (2, 48))
    check_same(two, many)
    manifests = [run.complete("graph") for run in (two, many)]
    assert max(len(pickle.dumps(manifest)) for manifest in manifests) < 1000
    assert "halo_sizes" not in manifests[1].facts
