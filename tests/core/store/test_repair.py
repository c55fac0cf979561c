"""Damaged files are found, deleted and computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.chaos.damage import QUICK
from tests.conftest import flip, published_values, small_settings, write_graph
from tests.reservoir.test_embed import write_checkpoint
from tests.test_pipeline import whole_line
from xnq_dist import jobs, pipeline
from xnq_dist.core.errors import DamagedError, InfrastructureError, RunDirectoryError
from xnq_dist.core.store import (
    MANIFEST,
    CheckedFile,
    RunDirectory,
    delete_damage,
    deleting_damage,
    read_published,
    repaired,
    verify,
)
from xnq_dist.reservoir.message_passing import Checkpoints

SETTINGS = small_settings(*QUICK)


def committed(run: RunDirectory, name: str, value: int = 0) -> Path:
    """Write a stage of one array; return its file."""
    stage = run.stage(name)
    attempt = stage.begin()
    record = attempt.write_arrays("values", values=np.full(1000, value))
    attempt.commit([record], {}, {})
    return Path(stage.path(record.name))


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    found = RunDirectory(tmp_path / "run")
    found.create()
    return found


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return write_graph(tmp_path_factory.mktemp("repair"), nodes=240, edges=1200)


def again(graph, out, client, *more: str) -> RunDirectory:
    sources = graph.sources
    with pipeline.open_run(str(out), sources) as run:
        settings = small_settings(*QUICK, *more)
        jobs.run_stages(run, sources, settings, client)
    return run


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 700, b'{"paths": [1, 2]}', b'{"stage": "graph", "files": [', b"[]"],
    ids=["empty", "zeros", "foreign", "cut", "list"],
)
def test_unreadable_manifest_is_deleted_with_its_stage(run, content, caplog):
    committed(run, "graph")
    committed(run, "embeddings")
    run.child("graph").write_bytes(MANIFEST, content)
    with caplog.at_level("WARNING", "xnq_dist"):
        assert delete_damage(run) == 1
    (line,) = caplog.messages
    assert f"graph is deleted because it is damaged: {MANIFEST} " in line
    assert not run.exists("graph")
    assert run.stage("embeddings").manifest() is not None


def test_one_damaged_read_deletes_everything_damaged(run):
    first = committed(run, "graph")
    flip(committed(run, "posteriors"))
    committed(run, "readout")
    flip(first)
    stage = run.stage("graph")
    with pytest.raises(DamagedError) as caught, deleting_damage(run):
        stage.read_arrays(stage.manifest().files[0])
    assert caught.value.stage == "graph"
    assert [stage.name for stage in run.stages()] == ["readout"]
    assert run.stage("readout").manifest() is not None


def test_a_file_whose_second_reading_is_right_stays(run, monkeypatch):
    """A disk or a memory may err once; what is deleted cannot be read again."""
    committed(run, "graph")
    real, read = CheckedFile.readinto, []

    def once(stream, buffer):
        read.append(stream)
        if len(read) == 1:
            raise DamagedError(run.uri, "values", "differs from its checksum")
        return real(stream, buffer)

    monkeypatch.setattr(CheckedFile, "readinto", once)
    assert delete_damage(run, thorough=True) == 0
    assert len(read) > 1
    assert run.stage("graph").manifest() is not None


def test_file_that_matches_its_checksum_stays(run, caplog):
    """Another machine may not see the directory, or has bad memory."""
    committed(run, "graph")
    uri = run.stage("graph").uri
    with pytest.raises(DamagedError), deleting_damage(run):
        raise DamagedError(uri, "values.npy", "is missing")
    assert "check that all workers see the same run directory" in caplog.text
    assert run.stage("graph").manifest() is not None


def test_damage_that_comes_again_and_again_ends_in_one_sentence(run):
    tried = []

    def work():
        tried.append(1)
        raise DamagedError("/run/graph", "values.npy", "differs")

    with pytest.raises(
        InfrastructureError, match="check the disk and the memory"
    ) as caught:
        repaired(work)
    assert not isinstance(caught.value, DamagedError)
    assert len(tried) == 4


def test_damaged_checkpoint_costs_one_checkpoint(run):
    """The one before it is used, and what is beyond the newest is removed."""
    checkpoints = Checkpoints(run.stage("checkpoints"), {"seed": 1}, 2)
    for step in (9, 2, 4, 6):
        write_checkpoint(checkpoints, step)
    assert run.child("checkpoints").names() == ["step-00004", "step-00006"]
    _, manifest = checkpoints.latest()
    stage = manifest.where
    flip(Path(stage.path(manifest.files[0].name)))
    with pytest.raises(DamagedError), deleting_damage(run):
        stage.read_arrays(manifest.files[0])
    step, manifest = checkpoints.latest()
    stage = manifest.where
    assert step == 4
    assert stage.read_arrays(manifest.files[0])["states"][0] == 4


def test_folder_that_only_looks_like_a_stage_is_left_alone(tmp_path, graph):
    mine = tmp_path / "run" / "graph" / MANIFEST
    mine.parent.mkdir(parents=True)
    mine.write_text('{"of": "another program"}')
    with (
        pytest.raises(RunDirectoryError, match="is not a run directory"),
        pipeline.open_run(str(tmp_path / "run"), graph.sources),
    ):
        pass
    assert mine.exists()
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        verify(tmp_path)


def test_damage_in_a_workers_task_is_repaired_by_the_same_run(
    tmp_path, graph, client, caplog
):
    """One run repeats the damaged stage and later ones, in other processes."""
    out = tmp_path / "run"
    run = again(graph, out, client)
    expected = published_values(out)
    kept = run.stage("graph").manifest().attempt
    (record, *_) = run.stage("embeddings").manifest().files
    flip(Path(run.stage("embeddings").path(record.name)))
    assert [found.path for found in verify(out)] == [f"{out}/embeddings/{record.name}"]
    again(graph, out, client, "readout.C=0.3")
    assert "embeddings is deleted because it is damaged" in caplog.text
    assert run.stage("graph").manifest().attempt == kept
    assert verify(out) == []
    again(graph, out, client)
    assert published_values(out).equals(expected)
    table = out / "prevalence.parquet"
    flip(table)
    assert [found.path for found in verify(out)] == [str(table)]
    again(graph, out, client)
    assert verify(out) == []


def test_stage_function_deletes_damage_for_the_next_run(tmp_path, graph, thread_client):
    """If the stages are called one by one, the error is raised once."""
    out = tmp_path / "run"
    run = whole_line(out, graph.sources, SETTINGS, thread_client)
    expected = published_values(out)
    (record, *_) = run.stage("posteriors").manifest().files
    flip(Path(run.stage("posteriors").path(record.name)))
    changed = small_settings(*QUICK, "quantifier=pcc")
    with (
        pipeline.open_run(str(out), graph.sources) as again,
        pytest.raises(DamagedError, match="which deletes the damaged stage"),
    ):
        pipeline.quantify(again, graph.sources, changed, thread_client)
    assert (
        read_published(out).read("prevalence").drop_columns("run_id").equals(expected)
    )
    whole_line(out, graph.sources, changed, thread_client)
    whole_line(out, graph.sources, SETTINGS, thread_client)
    assert published_values(out).equals(expected)
