"""Publishing: complete versions, the pointer last, no outdated files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.report.fake_run import NASTY, prevalence_table, write_fake_run
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import DamagedError, RunDirectoryError, StageError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    MANIFEST,
    POINTER,
    Folder,
    Published,
    RunDirectory,
    delete_damage,
    read_published,
    verify,
)
from xnq_dist.monitor.news import published_rows
from xnq_dist.report import report
from xnq_dist.report.verdict import Verdict


def published(run: RunDirectory) -> set[str]:
    folder = Path(run.uri)
    return {
        str(path.relative_to(folder))
        for path in [*folder.glob("*"), *folder.glob("plots/*")]
        if path.is_file()
    }


def test_every_published_file_is_named_and_has_its_usual_path(tmp_path: Path) -> None:
    first, second = prevalence_table(NASTY), prevalence_table(["x", "y"], seed=1)
    run = write_fake_run(tmp_path / "run", [first, second])
    report(run, Settings())
    version = Published(run).current()
    assert version is not None
    manifest = version.manifest
    named = {record.name for record in manifest.files}
    names = ("prevalence", "totals", "partitions", "history")
    tables = {f"{name}.parquet" for name in names}
    assert named == {"report.html"} | tables
    assert published(run) == named | {POINTER}
    for name in named:
        there = (tmp_path / "run" / name).read_bytes()
        assert there == Path(version.folder.path(name)).read_bytes()
    table = pq.read_table(f"{run.uri}/prevalence.parquet")
    assert table.drop_columns("run_id").equals(pa.concat_tables([first, second]))
    assert set(table["run_id"].to_pylist()) == {version.run_id}
    assert table.schema.metadata[b"xnq_dist.run_id"].decode() == version.run_id
    assert {r.name: r.rows for r in manifest.files}["prevalence.parquet"] == 18
    cut = pq.read_table(f"{run.uri}/partitions.parquet")
    assert cut["bytes"].to_pylist() == [h * 128 * 4 for h in (700, 800, 650, 720)]


def test_anomalies_are_published_and_add_up(tmp_path: Path) -> None:
    table = prevalence_table(np.arange(9), intervals=True)
    run = write_fake_run(tmp_path / "run", [table])
    report(run, Settings())
    found = pq.read_table(f"{run.uri}/anomalies.parquet").to_pylist()
    known = {
        (r["community"], r["class"]): r
        for r in table.to_pylist()
        if r["prevalence"] is not None
    }
    assert {(r["community"], r["class"]) for r in found} == set(known)
    for row in found:
        own = known[row["community"], row["class"]]
        assert row["prevalence"] == own["prevalence"]
        assert row["effect"] == pytest.approx(own["prevalence"] - row["reference"])
        assert row["lower"] <= row["effect"] + 1e-9
        assert row["effect"] <= row["upper"] + 1e-9
        assert row["anomalous"] == (row["qvalue"] <= 0.05)
    effects = [abs(r["effect"]) for r in found]
    assert effects == sorted(effects, reverse=True)


def test_values_of_suppressed_communities_are_nulls_on_request(tmp_path: Path) -> None:
    table = prevalence_table(np.arange(9), intervals=True)
    small = table["community"].to_numpy() == 4
    ratings = np.where(small, "suppressed", "caution").tolist()
    at = table.schema.get_field_index("quality")
    run = write_fake_run(
        tmp_path / "run", [table.set_column(at, "quality", pa.array(ratings))]
    )
    report(run, Settings())
    everything = read_published(run.uri).read("prevalence").to_pylist()
    assert all(row["prevalence"] is not None for row in everything)
    artifact = published_rows(run, 50)
    assert [row["community"] for row in artifact if row["lower"] is None] == [4, 4]

    def missing(name: str, value: str) -> set[int]:
        rows = read_published(run.uri).read(name).to_pylist()
        return {row["community"] for row in rows if row[value] is None}

    for value in ("prevalence", "effect", "lower", "pvalue", "rank_prevalence"):
        assert missing("anomalies", value) == {4}
    report(run, load_settings(overrides=["disclosure.table=nulls"]))
    for value in ("prevalence", "lower", "upper", "n_labelled", "n_estimated"):
        assert missing("prevalence", value) == {4}


def test_no_published_result_depends_on_values_of_suppressed_communities(
    tmp_path: Path,
) -> None:
    """Two runs that differ in one suppressed community: equal but for its rows."""
    table = prevalence_table(np.arange(9), intervals=True)
    small = pa.array(table["community"].to_numpy() == 4)
    rating = pc.if_else(small, "suppressed", "caution")
    at = table.schema.get_field_index
    table = table.set_column(at("quality"), "quality", rating)
    made = []
    for name, share in (("one", 0.9), ("two", 0.2)):
        values = pc.if_else(small, share, table["prevalence"])
        other = table.set_column(at("prevalence"), "prevalence", values)
        run = write_fake_run(tmp_path / name, [other])
        report(run, Settings())
        made.append(read_published(run.uri).read("anomalies").drop_columns("run_id"))
    assert made[0].equals(made[1])


def test_detected_communities_are_published(tmp_path: Path) -> None:
    detected = pa.table(
        {"community": np.array([0, 0, 1]), "node_id": pa.array(["a", "b", "c"])}
    )
    run = write_fake_run(
        tmp_path / "run", [prevalence_table(np.arange(2))], detected=detected
    )
    report(run, Settings())
    found = pq.read_table(f"{run.uri}/communities.parquet")
    assert found.drop_columns("run_id").equals(detected)


def steps_of(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, last: str) -> list:
    """Names written to the run directory; the write of `last` fails."""
    order: list[str] = []
    write = Folder.write_bytes

    def watched(self: Folder, name: str, data: bytes, sync: bool = False) -> None:
        order.append(name)
        if name == last:
            raise RunDirectoryError("disk full")
        write(self, name, data, sync)

    monkeypatch.setattr(Folder, "write_bytes", watched)
    return order


def test_pointer_is_replaced_after_its_version_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    order = steps_of(run, monkeypatch, "")
    report(run, Settings())
    assert order == [MANIFEST, POINTER]


@pytest.mark.parametrize("step", [MANIFEST, POINTER])
def test_interrupted_publishing_leaves_the_last_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    report(run, Settings())
    before = {name: (tmp_path / "run" / name).read_bytes() for name in published(run)}
    shown = read_published(run.uri).run_id
    other = Settings(anomalies={"rate": 0.2})
    with monkeypatch.context() as patched:
        steps_of(run, patched, step)
        with pytest.raises(RunDirectoryError, match="disk full"):
            report(run, other)
    after = {name: (tmp_path / "run" / name).read_bytes() for name in published(run)}
    assert after == before
    assert read_published(run.uri).run_id == shown
    report(run, other)
    assert read_published(run.uri).run_id != shown


def test_publishing_killed_after_the_pointer_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    report(run, Settings())
    other = Settings(anomalies={"rate": 0.2})
    with monkeypatch.context() as patched:
        patched.setattr(Published, "_place", _killed)
        with pytest.raises(KeyboardInterrupt):
            report(run, other)
    run_id = read_published(run.uri).run_id
    top = tmp_path / "run" / "prevalence.parquet"
    assert set(pq.read_table(top)["run_id"].to_pylist()) != {run_id}
    report(run, other)
    assert set(pq.read_table(top)["run_id"].to_pylist()) == {run_id}


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_second_report_keeps_its_files_and_removes_stale_ones(
    tmp_path: Path,
) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(NASTY)])
    report(run, Settings())
    before = {name: (tmp_path / "run" / name).read_bytes() for name in published(run)}
    (tmp_path / "run" / "plots").mkdir()
    (tmp_path / "run" / "plots" / "old.svg").write_text("<svg/>")
    (tmp_path / "run" / "changes.parquet").write_text("of an earlier version")
    report(run, Settings())
    after = {name: (tmp_path / "run" / name).read_bytes() for name in published(run)}
    assert after == before
    assert len(Published(run).versions()) == 1


@pytest.fixture(params=["links", "copies", "store"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A disk, a disk without hard links, and a disk that acts as an object store."""
    if request.param == "copies":

        def refuse(*_: object) -> None:
            raise OSError("no links here")

        monkeypatch.setattr("xnq_dist.core.store.published.os.link", refuse)
    elif request.param == "store":
        monkeypatch.setattr(Folder, "is_local", property(lambda self: False))
    return str(request.param)


def test_results_are_published_and_repaired_on_any_storage(
    tmp_path: Path, storage: str
) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    for rate in (0.1, 0.2):
        report(run, Settings(anomalies={"rate": rate}))
    version = read_published(run.uri)
    for name in [record.name for record in version.manifest.files]:
        there, here = Path(version.folder.path(name)), tmp_path / "run" / name
        assert there.read_bytes() == here.read_bytes()
    here = tmp_path / "run" / "prevalence.parquet"
    assert here.samefile(version.path("prevalence")) == (storage == "links")
    (tmp_path / "run" / "partitions.parquet").write_bytes(b"torn")
    if storage == "links":  # one file under two names
        assert delete_damage(run) == 1
    assert verify(run.uri) != [] or storage == "links"
    report(run, Settings(anomalies={"rate": 0.2}))
    assert verify(run.uri) == []
    version = read_published(run.uri)
    Path(version.folder.path("report.html")).write_bytes(b"torn")
    assert delete_damage(run) == 1
    report(run, Settings(anomalies={"rate": 0.2}))
    assert verify(run.uri) == []


def test_a_users_folder_at_a_usual_path_is_refused_and_stays(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    mine = tmp_path / "run" / "prevalence.parquet" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(RunDirectoryError, match=r"prevalence\.parquet is a folder"):
        report(run, Settings())
    assert mine.read_text() == "mine"
    mine.parent.rename(tmp_path / "elsewhere")
    report(run, Settings())
    assert verify(run.uri) == []


def test_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        run = write_fake_run(tmp_path / name, [prevalence_table(["a"])])
        report(run, Settings())
        tables = ("prevalence.parquet", "partitions.parquet")
        found.append([(tmp_path / name / table).read_bytes() for table in tables])
    assert found[0] == found[1]


def test_oldest_versions_are_removed_and_the_last_two_stay(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    for rate in (0.1, 0.2, 0.3, 0.4):
        report(run, Settings(anomalies={"rate": rate}, retention={"versions": 2}))
    kept = Published(run).versions()
    assert [version.number for version in kept] == [3, 4]
    assert kept[1].run_id == read_published(run.uri).run_id
    assert kept[1].previous == kept[0].run_id


@pytest.mark.parametrize("file", ["prevalence.parquet", "report.html", MANIFEST])
def test_damaged_results_are_published_again(tmp_path: Path, file: str) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    report(run, Settings())
    before = read_published(run.uri)
    table = before.read("prevalence").drop_columns("run_id")
    path = Path(before.folder.path(file))
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    assert delete_damage(run) == 1
    report(run, Settings())
    after = read_published(run.uri)
    assert after.read("prevalence").drop_columns("run_id").equals(table)
    assert verify(run.uri) == []


def test_damaged_pointer_is_made_anew_from_the_last_version(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    report(run, Settings())
    (tmp_path / "run" / POINTER).write_bytes(b"{}")
    with pytest.raises(DamagedError, match="differs from its checksum"):
        read_published(run.uri)
    assert delete_damage(run) == 1
    report(run, Settings())
    assert read_published(run.uri).tables()
    assert verify(run.uri) == []


@pytest.mark.parametrize("stage", ["graph", "quantify"])
def test_reports_need_every_stage(tmp_path: Path, stage: str) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])], leave_out=stage)
    with pytest.raises(StageError, match=f"stage {stage} is incomplete"):
        report(run, Settings())


def test_reports_need_the_table_of_quantify(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [])
    with pytest.raises(StageError, match="no prevalence table"):
        report(run, Settings())


@pytest.mark.parametrize("stage", ["readout", "embeddings", "posteriors"])
def test_missing_facts_stop_the_report(tmp_path: Path, stage: str) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])], leave_out=stage)
    report(run, Settings())
    assert "report.html" in published(run)


def test_the_facts_of_published_results_hold_the_verdict(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a", "b"])])
    report(run, load_settings(overrides=["report.community=page"]))
    judged = Verdict.of(read_published(run.location).manifest.facts)
    assert judged is not None
    assert judged.level == "well"
    assert any("2 pages" in line for line in judged.lines)
    assert any(
        line.startswith("The model separates class bot from class person")
        for line in judged.lines
    )


def test_a_class_that_does_not_exist_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a", "b"])])
    report(run, load_settings(overrides=["report.class=robot"]))
    assert "report.class = robot is not a class" in caplog.text
    assert "choose one of person, bot" in caplog.text
