"""Publishing: everything whole and named, the manifest last, nothing stale."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.fake_run import NASTY, prevalence_table, write_fake_run
from xnq_dist.config import Settings
from xnq_dist.errors import StageError
from xnq_dist.report import report
from xnq_dist.store import MANIFEST, RunDirectory, Stage

PLOTS = {"top", "histogram", "size", "reliability", "partitions"}


def published(run: RunDirectory) -> set[str]:
    folder = Path(run.uri)
    return {
        str(path.relative_to(folder))
        for path in [*folder.glob("*"), *folder.glob("plots/*")]
        if path.is_file()
    }


def test_published_files_are_missing_or_not_named(tmp_path: Path) -> None:
    first, second = prevalence_table(NASTY), prevalence_table(["x", "y"], seed=1)
    run = write_fake_run(tmp_path / "run", [first, second])
    report(run, Settings())
    manifest = Stage(run.folder, "published").manifest()
    assert manifest is not None
    named = {record.name for record in manifest.files}
    plots = {f"plots/{name}.svg" for name in PLOTS}
    assert named == {"prevalence.parquet", "partitions.parquet", "report.html"} | plots
    assert published(run) == named | {MANIFEST}
    table = pq.read_table(f"{run.uri}/prevalence.parquet")
    assert table.equals(pa.concat_tables([first, second]))
    assert {r.name: r.rows for r in manifest.files}["prevalence.parquet"] == 18
    cut = pq.read_table(f"{run.uri}/partitions.parquet")
    assert cut["bytes"].to_pylist() == [h * 128 * 4 for h in (700, 800, 650, 720)]
    for name in plots:
        ElementTree.fromstring((tmp_path / "run" / name).read_bytes())  # noqa: S314


def test_anomalies_are_not_published_or_do_not_add_up(tmp_path: Path) -> None:
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


def test_detected_communities_are_not_published(tmp_path: Path) -> None:
    detected = pa.table(
        {"community": np.array([0, 0, 1]), "node_id": pa.array(["a", "b", "c"])}
    )
    run = write_fake_run(
        tmp_path / "run", [prevalence_table(np.arange(2))], detected=detected
    )
    report(run, Settings())
    assert pq.read_table(f"{run.uri}/communities.parquet").equals(detected)


def test_manifest_is_not_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    order: list[str] = []
    publish = RunDirectory.publish

    def watched(self: RunDirectory, name: str, data: bytes) -> None:
        order.append(name)
        publish(self, name, data)

    monkeypatch.setattr(RunDirectory, "publish", watched)
    report(run, Settings())
    assert order[-1] == MANIFEST
    assert order.count(MANIFEST) == 1


def test_interrupted_publishing_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    report(run, Settings())
    publish = RunDirectory.publish

    def failing(self: RunDirectory, name: str, data: bytes) -> None:
        if name == "report.html":
            raise OSError("disk full")
        publish(self, name, data)

    monkeypatch.setattr(RunDirectory, "publish", failing)
    with pytest.raises(OSError, match="disk full"):
        report(run, Settings())
    assert MANIFEST not in published(run)
    assert "report.html" not in published(run)


def test_second_report_differs_or_leaves_stale_files(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(NASTY)])
    report(run, Settings())
    before = {name: (tmp_path / "run" / name).read_bytes() for name in published(run)}
    (tmp_path / "run" / "plots" / "old.svg").write_text("<svg/>")
    report(run, Settings())
    after = {name: (tmp_path / "run" / name).read_bytes() for name in published(run)}
    assert after == before


def test_unpublish_leaves_results(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])])
    report(run, Settings())
    run.unpublish()
    assert published(run) == set()
    assert run.stage("quantify").manifest() is not None


@pytest.mark.parametrize("stage", ["graph", "quantify"])
def test_report_of_half_a_run(tmp_path: Path, stage: str) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])], leave_out=stage)
    with pytest.raises(StageError, match=f"stage {stage} is not whole"):
        report(run, Settings())


def test_quantify_without_a_table(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", [])
    with pytest.raises(StageError, match="no prevalence table"):
        report(run, Settings())


@pytest.mark.parametrize("stage", ["readout", "embeddings", "posteriors"])
def test_missing_facts_stop_the_report(tmp_path: Path, stage: str) -> None:
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a"])], leave_out=stage)
    report(run, Settings())
    assert "report.html" in published(run)
