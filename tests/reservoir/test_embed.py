"""The embedding on Dask: the same bits for any partitioning, kill or resume."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import (
    SmallGraph,
    own_cluster,
    rest_in,
    small_settings,
    wait_until,
    with_graph,
    write_graph,
)
from tests.reservoir.reference import draw, embed_reference
from xnq_dist import pipeline
from xnq_dist.core.errors import DoesNotFitError, StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.reservoir import embed as driver
from xnq_dist.reservoir import exchange
from xnq_dist.reservoir.embed import make_embeddings
from xnq_dist.reservoir.mailbox import WorkersLost
from xnq_dist.reservoir.message_passing import (
    Checkpoints,
    checkpoint_interval,
    run_reservoir,
)


def embeddings(run: RunDirectory) -> np.ndarray:
    """All embeddings in canonical order."""
    stage = run.stage("embeddings")
    manifest = stage.manifest()
    tables = [
        stage.read_table(record, "embeddings") for record in manifest.named("part-")
    ]
    ids = np.concatenate([t["node_id"].to_numpy() for t in tables])
    rows = [
        t["embedding"].combine_chunks().flatten().to_numpy().reshape(len(t), -1)
        for t in tables
    ]
    return np.concatenate(rows)[np.argsort(ids)]


def embed(folder: Path, graph: SmallGraph, client, *overrides: str) -> RunDirectory:
    settings = small_settings(*overrides)
    run = with_graph(folder, graph.sources, settings)
    pipeline.embed(run, settings, client)
    return run


def twin(run: RunDirectory, graph: SmallGraph, settings) -> np.ndarray:
    manifest = run.stage("graph").manifest()
    wanted = settings.reservoir
    weights = draw(
        settings.seed,
        wanted.dim,
        graph.features.shape[1],
        wanted.matrix,
        wanted.recurrent_scale,
        wanted.input_scale,
        manifest.facts["rho"],
    )
    adjacency = read_adjacency(manifest)
    return embed_reference(
        adjacency, graph.features, weights, wanted.supersteps, settings.exchange.dtype
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ("reservoir.matrix=dense",),
        (),
        ("reservoir.recurrent_scale=20.0", "reservoir.supersteps=12"),
        ("exchange.dtype=float16", "reservoir.dim=25"),
    ],
    ids=["dense", "sparse", "chaotic", "float16"],
)
def test_same_bits_for_any_partitions_and_equal_to_the_twin(
    overrides, tmp_path, small_graph, client
):
    answers = {}
    for count, partitioner in ((1, "auto"), (3, "contiguous"), (7, "stream")):
        name = f"{count}-{partitioner}"
        cut = (f"partitions={count}", f"partitioner={partitioner}")
        run = embed(tmp_path / name, small_graph, client, *overrides, *cut)
        answers[name] = embeddings(run)
    expected = twin(run, small_graph, small_settings(*overrides))
    for name, answer in answers.items():
        np.testing.assert_array_equal(answer, expected, err_msg=name)


def test_same_bits_with_weights_and_one_worker(tmp_path, client):
    graph = write_graph(tmp_path / "input", weighted=True)
    two = embeddings(embed(tmp_path / "two", graph, client, "partitions=5"))
    one_worker = small_settings("cluster.workers=1", "cluster.threads=2").cluster
    with own_cluster(one_worker) as other:
        one = embeddings(embed(tmp_path / "one", graph, other, "partitions=3"))
    np.testing.assert_array_equal(one, two)


@pytest.mark.filterwarnings("ignore::UserWarning:distributed.*")
@pytest.mark.parametrize("workers", rest_in("faults", (2, 1), 2))
def test_killed_worker_changes_nothing_in_the_answer(
    workers, tmp_path, small_graph, client
):
    """A single one is started again, and takes up the checkpoint."""
    overrides = ("partitions=4", "reservoir.supersteps=60", "checkpoint.every=8")
    expected = embeddings(embed(tmp_path / "calm", small_graph, client, *overrides))
    settings = small_settings("cluster.kind=local", f"cluster.workers={workers}")
    folder, killed = tmp_path / "killed", []
    with own_cluster(settings.cluster) as other:
        (pid, *_) = other.run(os.getpid).values()
        whole = folder / "checkpoints" / "step-00008" / "_manifest.json"

        def kill():
            wait_until(whole.exists, 60, 0.02)
            killed.append(os.kill(pid, signal.SIGKILL))

        thread = threading.Thread(target=kill)
        thread.start()
        run = embed(folder, small_graph, other, *overrides)
        thread.join()
    assert killed
    np.testing.assert_array_equal(embeddings(run), expected)
    assert not (folder / "checkpoints").exists()


class StopError(Exception):
    pass


def assert_resumes(folder, graph, client, at, *overrides):
    """A run that is stopped after a checkpoint goes on there, to the same bits."""
    expected = embeddings(embed(folder / "whole", graph, client, *overrides))

    def stop(what, done, total):
        if what == "supersteps" and done > at:
            raise StopError

    settings = small_settings(*overrides)
    run = with_graph(folder / "cut", graph.sources, settings)
    with pytest.raises(StopError):
        pipeline.embed(run, settings, client, stop)
    assert (folder / f"cut/checkpoints/step-{at:05d}/_manifest.json").exists()
    assert run.stage("embeddings").manifest() is None
    begun = []
    pipeline.embed(run, settings, client, lambda *it: begun.append(it[1]))
    assert begun[0] == at
    np.testing.assert_array_equal(embeddings(run), expected)


def test_a_stopped_embedding_resumes_from_its_last_checkpoint(
    tmp_path, small_graph, client
):
    overrides = ("partitions=3", "checkpoint.every=4", "reservoir.supersteps=10")
    assert_resumes(tmp_path, small_graph, client, 8, *overrides)


def write_checkpoint(checkpoints: Checkpoints, step: int) -> None:
    """Of one partition, whose states are all `step`."""
    states = np.full(1000, step)
    here = SimpleNamespace(step=step, apply=lambda write: [write(0, states)])
    checkpoints.write(here)


def test_checkpoints_of_other_settings_are_left_alone(tmp_path):
    run = RunDirectory(tmp_path)
    old = Checkpoints(run.stage("checkpoints"), {"seed": 1}, 2)
    write_checkpoint(old, 4)
    assert old.latest()[0] == 4
    assert Checkpoints(run.stage("checkpoints"), {"seed": 2}, 2).latest()[0] == 1
    # A checkpoint without its manifest is ignored.
    old.at(6).begin()
    assert old.latest()[0] == 4


def test_workers_lost_again_and_again_end_with_advice(
    tmp_path, small_graph, client, monkeypatch
):
    def always_lost(*_):
        raise WorkersLost("gone")

    run = embed(tmp_path / "a", small_graph, client)
    manifest = run.stage("graph").manifest()
    spec = driver.reservoir_spec(small_settings(), manifest.facts, 1.0, 1.0)
    never = Checkpoints(run.stage("checkpoints"), {}, spec.supersteps)
    monkeypatch.setattr(exchange.Exchange, "begin", always_lost)
    advice = r"lack of memory.*cluster\.memory_limit"
    with pytest.raises(DoesNotFitError, match=advice):
        run_reservoir(client, manifest, spec, len, never)


def test_a_fault_in_a_superstep_is_raised_and_not_retried_for_ever(
    tmp_path, small_graph, client
):
    run = embed(tmp_path / "a", small_graph, client)
    manifest = run.stage("graph").manifest()
    spec = driver.reservoir_spec(small_settings(), manifest.facts, 1.0, 1.0)
    never = Checkpoints(run.stage("checkpoints"), {}, spec.supersteps)
    with pytest.raises(ZeroDivisionError):
        run_reservoir(client, manifest, spec, _fail, never)


def _fail(number, states):
    return 1 / 0


def test_embedding_without_a_graph_is_refused(tmp_path, client):
    with pytest.raises(StageError, match="no complete stage 'graph': run again"):
        make_embeddings(RunDirectory(tmp_path), small_settings(), client)


def test_checkpoint_interval_follows_the_cost():
    assert checkpoint_interval(3, 10, 10, 10, 10, 30) == 3
    # Seconds of work: no checkpoint pays.
    assert checkpoint_interval("auto", 1000, 5000, 64, 64, 30) == 30
    # Hours of work: often enough, and below a tenth of the time.
    assert 1 <= checkpoint_interval("auto", 10**7, 10**8, 512, 512, 30) <= 30


def test_workers_release_the_states_of_a_finished_run(tmp_path, small_graph, client):
    gc.collect()
    gc.disable()  # objects in reference cycles are alive from here on
    try:
        embed(tmp_path / "a", small_graph, client)
        wait_until(lambda: not any(client.run(_keys).values()), 30, 0.02)
    finally:
        gc.enable()


def _keys(dask_worker):
    return [key for key in dask_worker.data if "State" in str(key)]
