"""The run directory: complete stages, resuming, errors, locks."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import wait_until
from xnq_dist.core import lock
from xnq_dist.core.errors import (
    DamagedError,
    InfrastructureError,
    RunDirectoryError,
    StageError,
)
from xnq_dist.core.lock import LOCK, holder, run_lock
from xnq_dist.core.store import (
    MANIFEST,
    POINTER,
    Folder,
    RunDirectory,
    Stage,
    read_published,
    sealed,
)


def table(rows=3):
    return pa.table(
        {
            "node_id": pa.array(range(rows), pa.int64()),
            "posterior": pa.FixedSizeListArray.from_arrays(
                pa.array(np.full(2 * rows, 0.5, np.float32)), 2
            ),
            "out_of_fold": pa.array([False] * rows),
        }
    )


def committed(run: RunDirectory, name="posteriors", inputs=None) -> Stage:
    stage = run.stage(name)
    attempt = stage.begin()
    record = attempt.write_table("part-00000", table(), "posteriors")
    attempt.commit([record], inputs or {"seed": 1}, {"n": 3})
    return stage


def test_embeddings_are_written_plain_and_other_vectors_compressed(run):
    attempt = run.stage("posteriors").begin()
    values = np.linspace(-1, 1, 8000, dtype=np.float32)
    columns = {
        "node_id": pa.array(range(1000)),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(values), 8),
    }
    kept = attempt.write_table("part-00000", pa.table(columns), "embeddings")
    small = attempt.write_table("part-00001", table(), "posteriors")

    def written(record, column):
        with attempt.open_input(record.name) as source:
            group = pq.ParquetFile(pa.BufferReader(source.read())).metadata.row_group(0)
        return group.column(column).compression, group.column(column).encodings

    assert written(kept, 0)[0] == "ZSTD"
    assert written(kept, 1)[0] == "UNCOMPRESSED"
    assert "BYTE_STREAM_SPLIT" not in written(kept, 1)[1]
    assert written(small, 1)[0] == "ZSTD"
    assert "BYTE_STREAM_SPLIT" in written(small, 1)[1]


@pytest.fixture
def run(tmp_path):
    found = RunDirectory(tmp_path / "run")
    found.create()
    return found


def test_committed_stage_is_read_back(run):
    stage = committed(run)
    manifest = stage.manifest()
    assert manifest.facts == {"n": 3}
    back = stage.read_table(manifest.files[0], "posteriors", ["node_id"])
    assert back["node_id"].to_pylist() == [0, 1, 2]
    # Any reader can open the folder, because the manifest's name begins with "_".
    assert pq.read_table(stage.uri).num_rows == 3


@pytest.mark.parametrize(
    "damage", ["truncated", "removed", "manifest", "no manifest", "version"]
)
def test_damage_to_a_stage_is_noticed(run, damage):
    stage = committed(run)
    record = stage.manifest().files[0]
    path = stage.path(record.name)
    if damage == "truncated":
        os.truncate(path, record.bytes - 1)
    elif damage == "removed":
        os.remove(path)
    elif damage == "manifest":
        stage.write_bytes(MANIFEST, b'{"stage": "post')
    elif damage == "no manifest":
        stage.delete(MANIFEST)
    else:
        values = stage.read_record(MANIFEST) | {"version": 99}
        stage.write_record(MANIFEST, values)
    assert stage.manifest() is None


def test_manifest_naming_a_file_that_is_not_there_is_refused(run):
    stage = run.stage("posteriors")
    attempt = stage.begin()
    record = attempt.write_table("part-00000", table(), "posteriors")
    stage.delete(record.name)
    with pytest.raises(StageError, match="all workers see the same run directory"):
        attempt.commit([record], {}, {})


def test_arrays_come_back_and_corruption_is_seen(run):
    stage = run.stage("graph")
    attempt = stage.begin()
    values = np.arange(1000, dtype=np.float32).reshape(10, 100)
    record = attempt.write_arrays("x", a=values, b=np.empty(0, np.int64))
    back = stage.read_arrays(record)
    np.testing.assert_array_equal(back["a"], values)
    assert back["b"].dtype == np.int64
    with open(stage.path(record.name), "r+b") as stream:
        stream.seek(300)
        stream.write(b"\x00\x01\x02\x03\x04")
    with pytest.raises(DamagedError, match="differs from its checksum") as caught:
        stage.read_arrays(record)
    there = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - what Dask does
    assert (there.folder, there.file, there.stage) == (
        stage.uri,
        record.name,
        "graph",
    )
    assert str(there) == str(caught.value)


def test_reuse_removes_later_stages_says_why_and_leaves_results(run, caplog):
    committed(run, "graph", {"seed": 1, "input": {"directed": True}})
    committed(run, "posteriors")
    run.write_bytes("prevalence.parquet", b"last night's")
    same = {"seed": 1, "input": {"directed": True}}
    assert run.reuse("graph", same) is not None
    with caplog.at_level("INFO", "xnq_dist"):
        other = {"seed": 1, "input": {"directed": False}}
        assert run.reuse("graph", other) is None
    assert "input.directed: true -> false" in caplog.text
    assert run.stage("posteriors").manifest() is None
    assert run.names() == ["prevalence.parquet"]


def test_unwritable_output_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match=r"cannot be written.*--out"):
        Folder.of(tmp_path / "file" / "run").create()


def test_a_folder_in_place_of_the_pointer_is_one_sentence(run):
    run.child(POINTER).create()
    with pytest.raises(RunDirectoryError, match="is a folder"):
        read_published(run.uri)


def test_table_that_does_not_fit_its_schema_is_refused_on_write_and_read(run):
    attempt = run.stage("posteriors").begin()
    wrong = table().rename_columns(["node_id", "posterior", "oof"])
    with pytest.raises(StageError, match="column 'out_of_fold' is missing"):
        attempt.write_table("part", wrong, "posteriors")
    nulls = table().set_column(2, "out_of_fold", pa.array([None, True, True]))
    with pytest.raises(StageError, match="has nulls"):
        attempt.write_table("part", nulls, "posteriors")
    with (
        pytest.raises(StageError, match="nothing written"),
        attempt.table_writer("part", "posteriors"),
    ):
        pass
    stage = committed(run)
    with pytest.raises(StageError, match="is not a 'embeddings' table"):
        stage.read_table(stage.manifest().files[0], "embeddings")


def enter(run: RunDirectory) -> None:
    with run_lock(run):
        pass


def test_lock_is_held_by_one_run(run):
    with run_lock(run):
        with pytest.raises(
            InfrastructureError, match=f"in use by process {os.getpid()}"
        ):
            enter(run)
        assert holder(run).mine
        # Whatever its file says, such as after the clock was set.
        file = run.read_bytes(LOCK)
        run.write_bytes(LOCK, lock_of(run, heartbeat=0.0))
        assert holder(run).alive
        with pytest.raises(InfrastructureError, match="in use by process"):
            enter(run)
        run.write_bytes(LOCK, file)
    assert not run.exists(LOCK)
    assert holder(run) is None


HOLDS = """
import subprocess, sys
from xnq_dist.core.lock import run_lock
from xnq_dist.core.store import Folder

with run_lock(Folder.of(sys.argv[1])):
    started = subprocess.Popen(["sleep", "60"])
    print(started.pid, flush=True)
    sys.stdin.read()
"""


def test_lock_of_a_killed_process_is_free_at_once(run, caplog):
    """Even if a program that it started goes on."""
    command = [sys.executable, "-c", HOLDS, run.uri]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        started = int(other.stdout.readline())
        found = holder(run)
        assert (found.alive, found.mine) == (True, False)
        with pytest.raises(InfrastructureError, match=f"in use by process {other.pid}"):
            enter(run)
        other.kill()
        other.wait(60)
    assert not holder(run).alive
    enter(run)
    assert "took over the lock of a dead run" in caplog.text
    os.kill(started, signal.SIGKILL)


def lock_of(folder: Folder, **changes) -> bytes:
    """The file of a process of this machine that does not hold the lock."""
    values = {
        "token": "x",
        "host": socket.gethostname(),
        "machine": lock._machine(folder),
        "pid": 1,
        "heartbeat": time.time(),
    }
    return sealed(values | changes).encode()


@pytest.mark.parametrize(
    "changes",
    [{"pid": os.getpid()}, {"heartbeat": time.time() + 3600}],
    ids=["reused process number", "clock that was set"],
)
def test_owner_here_that_has_ended_is_dead_whatever_its_file_says(run, changes):
    run.write_bytes(LOCK, lock_of(run, **changes))
    assert not holder(run).alive
    enter(run)


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 300])
def test_runs_start_over_a_damaged_lock_file(run, content):
    run.write_bytes(LOCK, content)
    assert holder(run) is None
    enter(run)


def test_runs_start_while_others_look_at_the_lock(run):
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            holder(run)

    run.write_bytes(LOCK, lock_of(run))
    looking = [threading.Thread(target=look) for _ in range(3)]
    for thread in looking:
        thread.start()
    try:
        for _ in range(10):
            enter(run)
    finally:
        stop.set()
        for thread in looking:
            thread.join()


@pytest.mark.parametrize("host", ["elsewhere", socket.gethostname()])
def test_lock_of_another_machine_lives_by_its_heartbeat(run, monkeypatch, host):
    """Two machines, or containers on them, may have one host name."""
    monkeypatch.setattr("xnq_dist.core.lock.HEARTBEAT", 0.02)
    there = {"machine": "another", "host": host}
    run.write_bytes(LOCK, lock_of(run, **there))
    assert holder(run).alive
    with pytest.raises(InfrastructureError, match=f"in use by process 1 on {host}"):
        enter(run)
    run.write_bytes(LOCK, lock_of(run, **there, heartbeat=time.time() - 999))
    enter(run)


@pytest.fixture(params=["file system", "object store"])
def without_flock(request, monkeypatch) -> None:
    """Places where the kernel keeps no lock."""
    if request.param == "object store":
        monkeypatch.setattr(Folder, "is_local", property(lambda self: False))
        # Unlike an object's, the copy of a file can be seen before it is complete.
        monkeypatch.setattr(Folder, "copy", atomic_copy)
    else:
        monkeypatch.setattr("xnq_dist.core.lock._flock", lambda *_: nullcontext(False))


def atomic_copy(folder: Folder, name: str, target: str) -> None:
    """The copy of an object store, on a disk."""
    aside = f"{folder.path(target)}.{uuid.uuid4().hex}"
    shutil.copyfile(folder.path(name), aside)
    os.replace(aside, folder.path(target))


@pytest.mark.usefixtures("without_flock")
@pytest.mark.parametrize("before", [None, {"heartbeat": 0.0}])
def test_one_of_many_runs_that_start_together_holds_a_lock_without_flock(
    run, monkeypatch, before
):
    monkeypatch.setattr("xnq_dist.core.lock.HEARTBEAT", 0.02)
    if before is not None:
        run.write_bytes(LOCK, lock_of(run, **before))
    begin, seen = threading.Barrier(4), []

    def start() -> None:
        begin.wait()
        try:
            with run_lock(run):
                seen.append("held")
                wait_until(lambda: len(seen) == 4, 10, 0.01)
        except InfrastructureError as error:
            seen.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen.count("held") == 1
    assert sum("in use by" in text for text in seen) == 3
    assert not run.exists(LOCK)


def test_heartbeat_goes_on_and_stops_when_the_lock_is_taken_away(
    run, monkeypatch, caplog
):
    monkeypatch.setattr("xnq_dist.core.lock.HEARTBEAT", 0.02)

    with run_lock(run):
        first = run.read_record(LOCK)["heartbeat"]
        wait_until(lambda: run.read_record(LOCK)["heartbeat"] > first, 10, 0.01)
        run.write_bytes(LOCK, lock_of(run, token="thief"))
        wait_until(lambda: "another run took the lock" in caplog.text, 10, 0.01)
    # A lock of another run is not removed.
    assert run.read_record(LOCK)["token"] == "thief"


def test_a_write_that_fails_removes_its_temporary_file(tmp_path):
    folder = Folder(str(tmp_path))
    in_the_way = tmp_path / "one.json"
    (in_the_way / "x").mkdir(parents=True)
    with pytest.raises(RunDirectoryError, match=r"one\.json cannot be written"):
        folder.write_bytes("one.json", b"{}")
    assert list(tmp_path.iterdir()) == [in_the_way]
