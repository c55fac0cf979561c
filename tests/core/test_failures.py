"""Low-level errors of every stage become messages with the right exit status."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xnq_dist
from tests.conftest import SmallGraph, rest_in, small_settings, with_graph, write_graph
from tests.disks import NoSmallDisk, SmallDisk, mounted
from xnq_dist import pipeline
from xnq_dist.core.errors import (
    DamagedError,
    DoesNotFitError,
    InfrastructureError,
    InputError,
    RunDirectoryError,
    StageError,
    XnqError,
)
from xnq_dist.core.failures import place_of, stage_errors
from xnq_dist.core.leftovers import owned_name, sweep_scratch
from xnq_dist.core.store import RunDirectory

SETTINGS = small_settings("partitions=2", "intervals.resamples=20")
STAGES = ("graph", "embeddings", "readout", "posteriors", "quantify", "publish")


class Steps:
    """The stages as functions of a run directory, in order."""

    def __init__(self, graph: SmallGraph, client) -> None:
        sources = graph.sources
        self.sources = sources
        self.at_first_superstep: Callable[[], None] = lambda: None
        self.all = {
            "graph": lambda run: xnq_dist.prepare(run, sources, SETTINGS),
            "embeddings": lambda run: xnq_dist.embed(run, SETTINGS, client, self.watch),
            "readout": lambda run: xnq_dist.fit_readout(run, SETTINGS, client),
            "posteriors": lambda run: xnq_dist.posteriors(run, SETTINGS, client),
            "quantify": lambda run: xnq_dist.quantify_communities(
                run, sources, SETTINGS, client
            ),
            "publish": lambda run: xnq_dist.publish(run, SETTINGS),
        }

    def watch(self, what: str, done: int, total: int) -> None:
        """Progress of the embedding."""
        if done == 1:
            self.at_first_superstep()

    def until(self, stage: str, run: RunDirectory) -> None:
        """Run all stages before a stage."""
        for name in STAGES[: STAGES.index(stage)]:
            self.all[name](run)
        if stage == "posteriors":
            run.stage("posteriors").delete_folder()

    def finish(self, out: Path) -> pa.Table:
        """Run all stages again; return the published values."""
        with pipeline.open_run(str(out), self.sources) as run:
            for step in self.all.values():
                step(run)
        return pq.read_table(out / "prevalence.parquet")


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> SmallGraph:
    return write_graph(tmp_path_factory.mktemp("failures") / "input", 200, 700)


@pytest.fixture
def steps(graph, client) -> Steps:
    return Steps(graph, client)


@pytest.fixture
def expected(steps, tmp_path) -> pa.Table:
    return steps.finish(tmp_path / "calm")


@pytest.fixture
def disk(tmp_path) -> Iterator[SmallDisk]:
    with ExitStack() as held:
        try:
            found = held.enter_context(mounted(tmp_path / "disk"))
        except NoSmallDisk as reason:
            pytest.skip(str(reason))
        yield found


@pytest.mark.parametrize("stage", rest_in("faults", STAGES, "embeddings"))
def test_full_disk_ends_a_stage_with_status_4_and_the_next_run_completes(
    stage, steps, expected, disk
):
    out = disk.folder / "run"
    with pipeline.open_run(str(out), steps.sources) as run:
        steps.until(stage, run)
        if stage == "embeddings":  # after the plan has checked the disk
            steps.at_first_superstep = disk.fill
        else:
            disk.fill()
        with pytest.raises(InfrastructureError) as ended:
            steps.all[stage](run)
        steps.at_first_superstep = lambda: None
        disk.empty()
    assert ended.value.exit_code == 4
    sentence = str(ended.value)
    assert f"stage {stage}" in sentence
    assert str(out) in sentence
    assert "run again to resume" in sentence
    assert steps.finish(out).equals(expected)
    assert not list(out.rglob("*.tmp"))


@pytest.mark.parametrize(
    "stage", rest_in("faults", ("graph", "readout", "publish"), "readout")
)
def test_read_only_disk_ends_a_stage_with_status_4_and_leaves_it_resumable(
    stage, steps, expected, disk
):
    out = disk.folder / "run"
    with pipeline.open_run(str(out), steps.sources) as run:
        steps.until(stage, run)
        disk.set_read_only()
        with pytest.raises(InfrastructureError, match=f"stage {stage}.*again"):
            steps.all[stage](run)
        disk.set_read_only(False)
    assert steps.finish(out).equals(expected)


def test_full_disk_for_temporary_files_names_the_setting(steps, tmp_path, disk):
    scratch = disk.folder / "scratch"
    scratch.mkdir()
    settings = small_settings(f"scratch={scratch}", "input.memory=1MiB")

    def fill(what: str, done: int, total: int) -> None:
        # The plan has checked the disk, and the edges are not sorted yet.
        if what == "read nodes":
            disk.fill()

    out = tmp_path / "run"
    with (
        pipeline.open_run(str(out), steps.sources) as run,
        pytest.raises(InfrastructureError, match=r"stage graph.*scratch"),
    ):
        xnq_dist.prepare(run, steps.sources, settings, fill)
    disk.empty()
    assert list(scratch.iterdir()) == []


def test_full_disk_when_a_run_begins_ends_with_status_4(steps, disk):
    disk.fill()
    with (
        pytest.raises(InfrastructureError, match=r"stage open.*run again"),
        pipeline.open_run(str(disk.folder / "run"), steps.sources),
    ):
        pass
    disk.empty()
    with pipeline.open_run(str(disk.folder / "run"), steps.sources):
        pass


@pytest.mark.faults
def test_object_store_that_does_not_answer_ends_with_status_4(steps, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    out = "s3://bucket/run?endpoint_override=127.0.0.1:9&scheme=http&region=none"
    with (
        pytest.raises(InfrastructureError, match=r"s3://bucket/run.*run again"),
        pipeline.open_run(out, steps.sources),
    ):
        pass


def _fail(kind: str):
    """On a worker."""
    if kind == "memory":
        raise MemoryError("6 GiB")
    if kind == "killed":
        os._exit(1)
    if kind == "disk":
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise StageError("states cannot be written") from error
    if kind == "close":
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise ValueError("cannot close the archive")
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("memory", DoesNotFitError),
        pytest.param("killed", DoesNotFitError, marks=pytest.mark.faults),
        ("disk", InfrastructureError),
        ("close", InfrastructureError),
        ("bug", ZeroDivisionError),
    ],
)
def test_error_of_a_worker_is_judged_by_its_causes(client, kind, expected):
    with pytest.raises(expected) as ended, stage_errors("/the/run", "quantify"):
        client.submit(_fail, kind, pure=False).result(timeout=60)
    if isinstance(ended.value, XnqError):
        assert "stage quantify" in str(ended.value)
        assert "/the/run" in str(ended.value)
        assert "again" in str(ended.value)
    else:
        assert place_of(ended.value) == "stage quantify of /the/run"


def test_damage_behind_another_error_stays_damage():
    damage = DamagedError("/r/graph", "values.npy", "is missing")
    with pytest.raises(DamagedError) as ended, stage_errors("/r", "graph"):
        raise ValueError("a library's own error") from damage
    assert ended.value is damage


def test_cancelled_futures_are_a_lost_connection(client):
    future = client.submit(sum, [1, 2], pure=False)
    client.cancel([future])
    with pytest.raises(InfrastructureError, match="scheduler"), stage_errors("/r", "x"):
        future.result(timeout=30)


def test_bad_input_keeps_its_sentence_and_status_in_a_stage():
    with pytest.raises(InputError) as ended, stage_errors("/r", "graph"):
        raise InputError("edges.parquet has no column 'src'")
    assert str(ended.value) == "edges.parquet has no column 'src'"
    with pytest.raises(RunDirectoryError), stage_errors("/r", "open"):
        raise RunDirectoryError("cannot be written") from PermissionError(
            errno.EACCES, "Permission denied"
        )


def test_innermost_stage_names_itself():
    with (
        pytest.raises(StageError) as ended,
        stage_errors("/r", "readout"),
        stage_errors("/r", "posteriors"),
    ):
        raise StageError("rows are missing")
    assert str(ended.value) == "stage posteriors of /r: rows are missing"


OWNS_A_FOLDER = """
import sys
from pathlib import Path
from xnq_dist.core.leftovers import scratch_folder

with scratch_folder(sys.argv[1]) as folder:
    (folder / "sorted").write_bytes(b"rows")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_temporary_folder_of_a_killed_run_is_removed_by_the_next(tmp_path):
    command = [sys.executable, "-c", OWNS_A_FOLDER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        sweep_scratch(tmp_path)
        assert (left / "sorted").exists(), "its owner lives"
        other.kill()
        other.wait(60)
        sweep_scratch(tmp_path)
        assert not left.exists()


def test_files_of_live_or_unknown_owners_stay(tmp_path):
    mine = tmp_path / owned_name()
    # A process of another machine, or from before folders carried their owner.
    elsewhere = tmp_path / "xnq-dist-00000000-1-aaaaaaaa"
    old = tmp_path / "xnq-dist-k2j3h4"
    for folder in (mine, elsewhere, old):
        folder.mkdir()
    link = tmp_path / f"xnq-dist-{mine.name.split('-')[2]}-999999999-bbbbbbbb"
    link.symlink_to(old)
    sweep_scratch(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine, elsewhere, old, link])


def test_half_written_files_of_a_killed_run_are_removed_by_the_next(
    tmp_path, graph, client
):
    out = tmp_path / "run"
    with_graph(out, graph.sources, SETTINGS)
    half, kept = out / "_run.json.0123abcd.tmp", out / "notes.tmp"
    for file in (half, kept):
        file.write_text("half")
    with pipeline.open_run(str(out), graph.sources):
        pass
    assert (half.exists(), kept.exists()) == (False, True)
