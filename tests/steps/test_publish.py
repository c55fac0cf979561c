"""Publishing: complete versions, the pointer once all is written, no outdated files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import flip
from tests.report.fake_run import NASTY, prevalence_table, write_fake_run
from tests.report.test_page import changed_columns
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import DamagedError, RunDirectoryError, StageError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    MANIFEST,
    POINTER,
    Folder,
    RunDirectory,
    delete_damage,
    read_published,
    verify,
)
from xnq_dist.steps.publish import publish

OTHER = Settings(anomalies={"rate": 0.2})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that is complete but not published."""
    return write_fake_run(tmp_path / "run", [prevalence_table(["a", "b"])])


def contents(run: RunDirectory) -> dict[str, bytes]:
    """The files at the top of a run directory."""
    files = [path for path in Path(run.uri).glob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in files}


def with_a_suppressed_one(share: float | None = None) -> pa.Table:
    """Nine communities, of which number 4 is suppressed."""
    table = prevalence_table(np.arange(9), intervals=True)
    small = pa.array(table["community"].to_numpy() == 4)
    rating = pc.if_else(small, "suppressed", "caution")
    values = table["prevalence"]
    if share is not None:
        values = pc.if_else(small, share, values).combine_chunks()
    return changed_columns(table, quality=rating, prevalence=values)


def test_every_published_file_is_named_and_has_its_usual_path(tmp_path: Path) -> None:
    parts = prevalence_table(NASTY), prevalence_table(["x", "y"], seed=1)
    detected = pa.table({"community": [0, 0, 1], "node_id": ["a", "b", "c"]})
    run = write_fake_run(tmp_path / "run", parts, detected=detected)
    publish(run, load_settings(overrides=["report.community=page"]))
    version = read_published(run.uri)
    shown = f"<results {version.run_id} in {run.uri}/versions/"
    assert str(version).startswith(shown)
    assert len(str(version)) < len(shown) + 200
    names = ("prevalence", "totals", "communities", "partitions", "history")
    named = {"report.html", *(f"{name}.parquet" for name in names)}
    assert {record.name for record in version.manifest.files} == named
    assert contents(run).keys() == named | {POINTER}
    for name in named:
        there = Path(version.stage.path(name)).read_bytes()
        assert contents(run)[name] == there
    table = pq.read_table(f"{run.uri}/prevalence.parquet")
    assert table.drop_columns("run_id").equals(pa.concat_tables(parts))
    assert set(table["run_id"].to_pylist()) == {version.run_id}
    assert table.schema.metadata[b"xnq_dist.run_id"].decode() == version.run_id
    assert version.read("communities").drop_columns("run_id").equals(detected)
    cut = version.read("partitions")
    assert cut["bytes"].to_pylist() == [h * 128 * 4 for h in (700, 800, 650, 720)]
    judged = version.manifest.facts["verdict"]
    assert judged["level"] == "well"
    assert "9 pages" in " ".join(judged["lines"])


def test_values_of_suppressed_communities_are_nulls_on_request(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [with_a_suppressed_one()])
    publish(run, Settings())
    assert read_published(run.uri).read("prevalence")["prevalence"].null_count == 0

    def missing(name: str, value: str) -> set[int]:
        table = read_published(run.uri).read(name)
        return set(table.filter(pc.is_null(table[value]))["community"].to_pylist())

    for value in ("prevalence", "effect", "lower", "pvalue"):
        assert missing("anomalies", value) == {4}
    publish(run, load_settings(overrides=["disclosure.table=nulls"]))
    for value in ("prevalence", "lower", "upper", "se", "n_labelled", "n_estimated"):
        assert missing("prevalence", value) == {4}


def test_anomalies_are_the_same_for_any_values_of_suppressed_communities(
    tmp_path: Path,
) -> None:
    made = []
    for share in (0.9, 0.2):
        table = with_a_suppressed_one(share)
        run = write_fake_run(tmp_path / str(share), [table])
        publish(run, Settings())
        made.append(read_published(run.uri).read("anomalies").drop_columns("run_id"))
    assert made[0].equals(made[1])


@pytest.mark.parametrize("failing", ["", MANIFEST, POINTER, "report.html"])
def test_the_pointer_is_replaced_after_its_version_is_complete(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A write that fails leaves the last results."""
    publish(run, Settings())
    before = contents(run)
    order: list[str] = []
    write, copy = Folder.write_bytes, Folder.copy

    def watched(self: Folder, name: str, data: bytes) -> None:
        order.append(name)
        if name == failing:
            raise RunDirectoryError("disk full")
        write(self, name, data)

    def copied(self: Folder, name: str, target: str) -> None:
        if name.endswith(f"/{failing}"):
            raise RunDirectoryError("disk full")
        copy(self, name, target)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write_bytes", watched)
        patched.setattr(Folder, "copy", copied)
        if failing:
            with pytest.raises(RunDirectoryError, match="disk full"):
                publish(run, OTHER)
            assert contents(run) == before
        else:
            publish(run, OTHER)
            assert order[:2] == [MANIFEST, POINTER]
    publish(run, OTHER)
    assert contents(run) != before


def test_publishing_killed_after_the_pointer_is_completed(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Folder.write_bytes

    def killed(self: Folder, name: str, data: bytes) -> None:
        write(self, name, data)
        if name == POINTER:
            raise KeyboardInterrupt

    def run_ids() -> set[str]:
        table = pq.read_table(f"{run.uri}/prevalence.parquet")
        return set(table["run_id"].to_pylist())

    publish(run, Settings())
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(run, OTHER)
    run_id = read_published(run.uri).run_id
    assert run_ids() != {run_id}
    publish(run, OTHER)
    assert run_ids() == {run_id}


def test_publishing_again_keeps_the_files_and_removes_stale_ones(
    run: RunDirectory,
) -> None:
    publish(run, Settings())
    Path(run.uri, "notes.parquet").write_text("mine")
    before = contents(run)
    publish(run, Settings())
    assert contents(run) == before
    Path(run.uri, "changes.parquet").write_text("of an earlier version")
    publish(run, OTHER)
    after = contents(run)
    assert after["notes.parquet"] == b"mine"
    assert "changes.parquet" not in after


@pytest.mark.parametrize("storage", ["disk", "store"])
def test_results_are_published_and_repaired_on_any_storage(
    run: RunDirectory, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk, and a disk that acts as an object store."""
    if storage == "store":
        monkeypatch.setattr(Folder, "is_local", property(lambda self: False))
    publish(run, Settings())
    top = Path(run.uri, "prevalence.parquet")
    before = top.read_bytes()
    with top.open("rb") as reading:
        publish(run, OTHER)
        # On a disk a file is replaced, never written in place.
        assert storage == "store" or reading.read() == before
    assert top.read_bytes() != before
    version = read_published(run.uri)
    flip(Path(run.uri, "partitions.parquet"))
    publish(run, OTHER)
    assert verify(run.uri) == []
    version = read_published(run.uri)
    for record in version.manifest.files:
        there = Path(version.stage.path(record.name)).read_bytes()
        assert contents(run)[record.name] == there


def test_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        run = write_fake_run(tmp_path / name, [prevalence_table(["a"])])
        publish(run, Settings())
        made = contents(run)
        found.append([made["prevalence.parquet"], made["partitions.parquet"]])
    assert found[0] == found[1]


def test_oldest_versions_are_removed_and_the_last_two_stay(run: RunDirectory) -> None:
    for rate in (0.1, 0.2, 0.3, 0.4):
        publish(run, Settings(anomalies={"rate": rate}, retention={"versions": 2}))
    kept = run.history()[::-1]
    assert [version.number for version in kept] == [3, 4]
    assert kept[1].run_id == read_published(run.uri).run_id


@pytest.mark.parametrize("file", ["prevalence.parquet", MANIFEST, POINTER])
def test_damaged_results_are_published_again(run: RunDirectory, file: str) -> None:
    publish(run, Settings())
    before = read_published(run.uri)
    table = before.read("prevalence").drop_columns("run_id")
    path = Path(run.uri if file == POINTER else before.stage.path(), file)
    path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))
    if file == POINTER:
        with pytest.raises(DamagedError, match="differs from its checksum"):
            read_published(run.uri)
    assert delete_damage(run) == 1
    publish(run, Settings())
    after = read_published(run.uri)
    assert after.read("prevalence").drop_columns("run_id").equals(table)
    assert verify(run.uri) == []


@pytest.mark.parametrize("stage", ["graph", "quantify"])
def test_publishing_needs_the_graph_and_the_estimates(
    tmp_path: Path, stage: str
) -> None:
    tables = [prevalence_table(["a"])]
    run = write_fake_run(tmp_path / "run", tables, leave_out=stage)
    with pytest.raises(StageError, match=f"has no complete stage '{stage}': run again"):
        publish(run, Settings())


def test_results_without_other_stages_are_published(tmp_path: Path) -> None:
    run = write_fake_run(
        tmp_path / "run", [prevalence_table(["a"])], leave_out="readout"
    )
    publish(run, Settings())
    assert "report.html" in contents(run)
