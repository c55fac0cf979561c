"""States on disk: the same bits as in memory, few rows in memory, files removed."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.conftest import small_settings, write_graph
from tests.reservoir.test_embed import embed, embeddings, kill_a_worker_when
from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.core.blocks import ROWS
from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.store import RunDirectory
from xnq_dist.reservoir import embed as driver
from xnq_dist.reservoir import state_files
from xnq_dist.reservoir.disk_engine import DiskExchange
from xnq_dist.reservoir.state_files import StateFiles, read_rows, row_tiles

DISK = "exchange.states=disk"


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    """Directed and weighted, 900 nodes: several blocks of rows a partition."""
    folder = tmp_path_factory.mktemp("disk") / "input"
    return write_graph(folder, nodes=900, edges=4000, weighted=True)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("exchange.dtype=float16",),
        ("reservoir.recurrent_scale=[1, 20]", "reservoir.matrix=sparse"),
        ("reservoir.dim=16",),  # too few units to compute the drive from the features
    ],
    ids=["dense", "float16", "side-by-side-sparse", "stored-drive"],
)
def test_same_bits_as_in_memory(overrides, tmp_path, weighted, client, monkeypatch):
    overrides = ("partitioner=random", *overrides)
    expected = embeddings(embed(tmp_path / "m", weighted, client, *overrides))
    # Far less than a partition: every block of rows is a tile.
    monkeypatch.setattr(driver, "tile_memory", lambda *_: 1000)
    for count in (1, 3):
        cut = (*overrides, f"partitions={count}", DISK)
        run = embed(tmp_path / f"{count}", weighted, client, *cut)
        np.testing.assert_array_equal(embeddings(run), expected)
        facts = run.stage("embeddings").manifest().facts
        assert facts["exchanged_bytes_per_superstep"] == 0
        assert facts["state_file_bytes_per_superstep"] > 900 * 24 * 4
        assert not run.folder.exists("states")


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::UserWarning:distributed.*")
def test_killed_worker_costs_no_bit_and_leaves_no_file(tmp_path, weighted, client):
    overrides = ("partitions=4", "reservoir.supersteps=30", "checkpoint.every=6")
    expected = embeddings(embed(tmp_path / "calm", weighted, client, *overrides))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (
        cluster.open_cluster(small_settings().cluster) as connection,
        cluster.connect(connection) as other,
    ):
        killed = threading.Event()
        folder = tmp_path / "killed"
        whole = folder / "checkpoints" / "step-00006" / "_manifest.json"
        thread = kill_a_worker_when(other, whole.exists, killed)
        where = f"scratch={scratch}"
        run = embed(folder, weighted, other, *overrides, DISK, where)
        thread.join()
    assert killed.is_set()
    np.testing.assert_array_equal(embeddings(run), expected)
    assert list(scratch.iterdir()) == []


def test_begun_in_memory_and_ended_on_a_disk(tmp_path, weighted, client):
    """Checkpoints of states in memory and on disk can be exchanged."""
    overrides = ("partitions=3", "checkpoint.every=4", "reservoir.supersteps=10")
    expected = embeddings(embed(tmp_path / "whole", weighted, client, *overrides))

    class StopError(Exception):
        pass

    def stop_after(limit):
        def watch(what, done, total):
            begun.append(done)
            if what == "supersteps" and done > limit:
                raise StopError

        return watch

    run = RunDirectory(tmp_path / "cut")
    run.folder.create()
    memory, disk = small_settings(*overrides), small_settings(*overrides, DISK)
    pipeline.prepare(run, weighted.sources, memory)
    begun: list[int] = []
    with pytest.raises(StopError):
        pipeline.embed(run, memory, client, stop_after(4))
    begun = []
    with pytest.raises(StopError):
        pipeline.embed(run, disk, client, stop_after(8))
    assert begun[0] == 4
    assert not run.folder.exists("states"), "files are left after a fault"
    begun = []
    pipeline.embed(run, memory, client, stop_after(100))
    assert begun[0] == 8
    np.testing.assert_array_equal(embeddings(run), expected)


def test_rows_of_a_tile_stay_within_their_memory():
    """Against a plain loop: complete blocks, in order, as many as fit."""
    rng = np.random.default_rng(0)
    rows, local = 9 * ROWS + 17, 4000
    counts = rng.integers(0, 4, rows)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = rng.integers(0, local, indptr[-1]).astype(np.int32)
    for most in (1, 9_000, 10**5, 10**9):
        begins = row_tiles(indptr, indices, local, 8, 12, most).tolist()

        def need(first, last):
            sources = np.unique(indices[indptr[first] : indptr[last]])
            return 8 * len(sources) + 12 * (last - first)

        expected, first = [0], 0
        for last in [*range(ROWS, rows, ROWS), rows]:
            if need(first, last) > most and last - first > ROWS:
                first = (last - 1) // ROWS * ROWS
                expected.append(first)
        assert begins == [*expected, rows], most
    assert row_tiles(np.zeros(1, np.int64), indices, 1, 1, 1, 1).tolist() == [0, 0]


def test_rows_that_are_read_are_those_written(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    table = rng.standard_normal((3000, 7)).astype(np.float32)
    table.tofile(tmp_path / "rows.raw")
    monkeypatch.setattr(state_files, "RUN", 200)
    for gap in (0, 60, 10**6):
        monkeypatch.setattr(state_files, "GAP", gap)
        for count in (0, 1, 40, 2500, 3000):
            rows = np.sort(rng.choice(3000, count, replace=False))
            out = np.empty((count, 7), np.float32)
            read_rows(tmp_path / "rows.raw", rows, out)
            np.testing.assert_array_equal(out, table[rows])
    with pytest.raises(StageError, match="ends early"):
        read_rows(tmp_path / "rows.raw", np.array([3000]), np.empty((1, 7), "f4"))
    with pytest.raises(StageError, match="cannot be read"):
        read_rows(tmp_path / "none.raw", np.array([0]), np.empty((1, 7), "f4"))


def test_folders_that_workers_cannot_use_are_refused(tmp_path, weighted, client):
    run = embed(tmp_path / "a", weighted, client)
    manifest = run.stage("graph").manifest()
    spec = driver.reservoir_spec(small_settings(), manifest.facts["rho"], 1.0, 1.0)
    shared = client, run.stage("graph"), manifest, spec
    engine = DiskExchange(*shared, StateFiles(str(tmp_path / "s"), 1 << 20))
    engine.close()  # as if the folder were on another machine
    with pytest.raises(StageError, match="set scratch to a folder that all workers"):
        engine.begin(None)
    (tmp_path / "file").write_text("")
    with pytest.raises(StageError, match="cannot be written"):
        DiskExchange(*shared, StateFiles(str(tmp_path / "file"), 1 << 20))
    remote = RunDirectory("memory://run").folder  # no folder of this machine
    with pytest.raises(SettingsError, match="set scratch"):
        driver.state_files(small_settings(DISK), remote, client)


def test_contradictions_with_states_on_a_disk_are_refused():
    for other in ("exchange.engine=spmd", "reservoir.tile=8", "backend=gpu"):
        with pytest.raises(SettingsError, match=r"exchange\.states = disk"):
            small_settings(DISK, other)
