"""Rounds of neighbour sums equal a plain loop, for any partitions and workers."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import small_settings, with_graph, write_graph
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.graph.layout import load_nodes, node_index, read_adjacency
from xnq_dist.reservoir.context import join
from xnq_dist.reservoir.propagation import propagate


@dataclass(frozen=True)
class Seeds:
    """Values of each node, made from its canonical index."""

    manifest: Manifest

    def __call__(self, number: int) -> np.ndarray:
        index = load_nodes(self.manifest, number, ["index"])["index"]
        return seeds(index.to_numpy())


@dataclass(frozen=True)
class HalfMix:
    """Half of the sums and half of the values before, and the round's number."""

    def __call__(self, number, turn, values, sums):
        return (values + sums) / np.float32(2) + np.float32(turn)


@dataclass(frozen=True)
class KillOnce:
    """As `HalfMix`, but the first task of round 2 kills its worker."""

    mark: str

    def __call__(self, number, turn, values, sums):
        if turn == 2:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return HalfMix()(number, turn, values, sums)


def seeds(index: np.ndarray) -> np.ndarray:
    return np.stack([np.sin(index), index % 7], axis=1).astype(np.float32)


def prepared(folder: Path, graph, partitions: int) -> tuple[RunDirectory, Manifest]:
    settings = small_settings(f"partitions={partitions}", "partitioner=contiguous")
    run = with_graph(folder, graph.sources, settings)
    return run, run.complete("graph")


def propagated(run, manifest, client, keep, step=None, **options):
    where = run.stage("rounds")
    attempt = where.begin()
    start = Seeds(manifest)
    found = propagate(
        client,
        manifest,
        start,
        step or HalfMix(),
        keep,
        attempt,
        "r",
        **options,
    )
    return {
        turn: join(
            [where.read_arrays(file)["values"] for file in files], node_index(manifest)
        )
        for turn, files in found.items()
    }


def twin(adjacency, rounds: int) -> list[np.ndarray]:
    """Every sum edge by edge, in float32."""
    values = seeds(np.arange(adjacency.shape[0]))
    history = [values]
    for turn in range(1, rounds + 1):
        sums = np.zeros_like(values)
        for row in range(adjacency.shape[0]):
            for edge in range(adjacency.indptr[row], adjacency.indptr[row + 1]):
                sums[row] += adjacency.data[edge] * values[adjacency.indices[edge]]
        values = HalfMix()(0, turn, values, sums)
        history.append(values)
    return history


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_same_bits_as_a_plain_loop_for_any_partitions(
    weighted, tmp_path, thread_client
):
    graph = write_graph(tmp_path / "in", 150, 600, weighted=weighted)
    for partitions in (1, 3, 20):
        run, manifest = prepared(tmp_path / str(partitions), graph, partitions)
        expected = twin(read_adjacency(manifest), 4)
        found = propagated(run, manifest, thread_client, [0, 2, 4])
        assert sorted(found) == [0, 2, 4]
        for turn, values in found.items():
            np.testing.assert_array_equal(values, expected[turn])


def test_edges_count_one_without_weights(tmp_path, thread_client):
    graph = write_graph(tmp_path / "in", 150, 600, weighted=True)
    run, manifest = prepared(tmp_path / "run", graph, 2)
    found = propagated(run, manifest, thread_client, [2], weighted=False)
    adjacency = read_adjacency(manifest)
    assert adjacency.data.min() < 1
    adjacency.data[:] = 1
    np.testing.assert_array_equal(found[2], twin(adjacency, 2)[2])


def test_rounds_are_reported_one_by_one(tmp_path, thread_client):
    graph = write_graph(tmp_path / "in", 130, 200)
    run, manifest = prepared(tmp_path / "run", graph, 2)
    told = []
    options = {"progress": lambda *said: told.append(said)}
    found = propagated(run, manifest, thread_client, [19], **options)
    assert told == [("rounds of r", turn, 19) for turn in range(1, 20)]
    expected = twin(read_adjacency(manifest), 19)[-1]
    assert list(found) == [19]
    np.testing.assert_array_equal(found[19], expected)


@pytest.mark.faults
def test_a_worker_lost_between_rounds_keeps_the_answer(tmp_path, client):
    graph = write_graph(tmp_path / "in", 150, 600)
    run, manifest = prepared(tmp_path / "run", graph, 3)
    step = KillOnce(str(tmp_path / "mark"))
    found = propagated(run, manifest, client, [4], step)
    # Other tests share the cluster: its nanny brings the worker back.
    client.wait_for_workers(2, timeout=120)
    assert (tmp_path / "mark").exists()
    expected = twin(read_adjacency(manifest), 4)[-1]
    np.testing.assert_array_equal(found[4], expected)
