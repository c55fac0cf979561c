"""Earlier results: found, or refused with a message."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.schemas import check
from xnq_dist.core.store import POINTER, Published, RunDirectory
from xnq_dist.report import report
from xnq_dist.report.earlier import check_named, earlier_results

NAMES = ["a", "b", "c"]


def settings_of(*overrides: str):
    return load_settings(overrides=["quantifier=auto", *overrides])


def publish(folder: Path, *overrides: str, intervals: bool = True, **more) -> str:
    """Publish a complete run; return its directory."""
    classes = more.pop("classes", ("person", "bot"))
    table = prevalence_table(NAMES, classes, intervals=intervals, **more)
    report(write_fake_run(folder, [table], classes), settings_of(*overrides))
    return str(folder)


def page_of(folder: Path) -> str:
    return " ".join((folder / "report.html").read_text(encoding="utf-8").split())


def test_earlier_results_of_the_directory_are_compared_with(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    publish(folder)
    first = pq.read_table(folder / "prevalence.parquet")
    run = RunDirectory(folder)
    shown = Published(run).current()
    own = shown.manifest.facts["results"]
    assert earlier_results(run, settings_of(), own) is None
    assert not (folder / "changes.parquet").exists()
    # An input of all later stages has changed.
    assert run.reuse("quantify", {"tables": "of tonight"}) is None
    assert pq.read_table(folder / "prevalence.parquet").equals(first)
    publish(folder, seed=1)
    rows = pq.read_table(folder / "changes.parquet").to_pylist()
    assert {row["status"] for row in rows} == {"both"}
    before = {(r["community"], r["class"]): r["before"] for r in rows}
    for row in first.to_pylist():
        assert before[row["community"], row["class"]] == row["prevalence"]
    assert "with the previous state of this run directory, made 20" in page_of(folder)
    # Publishing again compares with the same results.
    report(run, settings_of())
    assert pq.read_table(folder / "changes.parquet").to_pylist() == rows


def test_results_of_other_settings_are_compared_with_the_same_earlier_ones(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    publish(folder)
    publish(folder, seed=1)
    rows = pq.read_table(folder / "changes.parquet").drop_columns("run_id")
    report(RunDirectory(folder), settings_of("anomalies.rate=0.06"))
    again = pq.read_table(folder / "changes.parquet").drop_columns("run_id")
    assert again["before"].equals(rows["before"])
    assert len(Published(RunDirectory(folder)).versions()) == 3


def test_comparison_can_be_switched_off(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    publish(folder)
    publish(folder, "anomalies.last=null", seed=1)
    assert not (folder / "changes.parquet").exists()
    assert "Since the earlier results" not in page_of(folder)


def test_named_run_is_compared_with(tmp_path: Path) -> None:
    first = publish(tmp_path / "first")
    publish(tmp_path / "second", f"anomalies.last={first}", seed=1)
    assert f"Compared with {first}, made 20" in page_of(tmp_path / "second")
    assert (tmp_path / "second" / "changes.parquet").exists()


def test_bad_earlier_runs_are_named_before_the_work(tmp_path: Path) -> None:
    whole = publish(tmp_path / "whole")
    none = publish(tmp_path / "none", intervals=False)
    torn = publish(tmp_path / "torn")
    table = tmp_path / "torn" / "prevalence.parquet"
    table.write_bytes(b"\0" * table.stat().st_size)
    half = publish(tmp_path / "half")
    (tmp_path / "half" / POINTER).unlink()
    for wanted, override, said in (
        (str(tmp_path / "nowhere"), "seed=0", "is not a complete run with published"),
        (half, "seed=0", "is not a complete run with published results"),
        (torn, "seed=0", "cannot be read"),
        ("nosuch://bucket/run", "seed=0", "cannot be read"),
        (none, "seed=0", "has no intervals"),
        (whole, "quantifier=sld", "made with quantifier = auto and this run with sld"),
        (whole, "labelled=exclude", "made with labelled = count"),
    ):
        with pytest.raises(SettingsError, match=said) as caught:
            check_named(settings_of(f"anomalies.last={wanted}", override))
        text = str(caught.value)
        assert text.startswith("anomalies.last: ")
        assert wanted in text
        assert "\n" not in text
    named = settings_of(f"anomalies.last={whole}")
    with pytest.raises(SettingsError, match="is this run's own directory: set"):
        check_named(named, whole)
    with pytest.raises(SettingsError, match="has the classes person, bot and this run"):
        check_named(named, classes=("bot", "ghost"))
    assert check_named(named, classes=("bot", "person")) is not None
    assert check_named(settings_of()) is None


def test_results_are_published_where_the_comparison_fails(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    publish(tmp_path / "run", f"anomalies.last={gone}")
    assert "Not compared: anomalies.last: " in page_of(tmp_path / "run")
    assert not (tmp_path / "run" / "changes.parquet").exists()
    other = publish(tmp_path / "other", classes=("bot", "ghost"))
    publish(tmp_path / "run", f"anomalies.last={other}")
    assert "has the classes bot, ghost and this run person, bot" in page_of(
        tmp_path / "run"
    )
    whole = publish(tmp_path / "whole")
    publish(tmp_path / "run", f"anomalies.last={whole}", intervals=False)
    assert "this run has no intervals" in page_of(tmp_path / "run")


@pytest.mark.parametrize("ids", ["integers", "strings"])
def test_numbers_of_detected_communities_are_matched_by_members(
    tmp_path: Path, ids: str
) -> None:
    def detected(*communities: int) -> pa.Table:
        nodes = pa.array(range(len(communities)))
        return pa.table(
            {
                "community": np.array(communities),
                "node_id": nodes if ids == "integers" else nodes.cast(pa.string()),
            }
        )

    table = prevalence_table(np.arange(2), intervals=True)
    first = write_fake_run(
        tmp_path / "a", [table], detected=detected(0, 0, 1), source="leiden"
    )
    report(first, settings_of())
    for name, members, compared in (
        ("same", detected(0, 0, 1), True),
        ("other", detected(0, 1, 1), False),
    ):
        run = write_fake_run(
            tmp_path / name, [table], detected=members, source="leiden"
        )
        report(run, settings_of(f"anomalies.last={first.uri}"))
        assert (tmp_path / name / "changes.parquet").exists() == compared
        said = "has other detected communities" in page_of(tmp_path / name)
        assert said != compared
    shutil.rmtree(tmp_path / "a")


def test_names_are_compared_for_the_same_communities_and_labels(tmp_path: Path) -> None:
    table = prevalence_table(NAMES, ("person", "bot"), intervals=True)
    source = {"source": "column:region"}
    first = write_fake_run(tmp_path / "a", [table], ("person", "bot"), **source)
    report(first, settings_of())
    named = settings_of(f"anomalies.last={first.uri}")
    for name, column, compared in (("same", "region", True), ("other", "team", False)):
        source = {"source": f"column:{column}"}
        run = write_fake_run(tmp_path / name, [table], ("person", "bot"), **source)
        report(run, named)
        assert (tmp_path / name / "changes.parquet").exists() == compared
        said = "has the communities column:region and this run column:team"
        assert (said in page_of(tmp_path / name)) != compared
    with pytest.raises(
        SettingsError, match="labels in column label and this run those in"
    ):
        check_named(settings_of(f"anomalies.last={first.uri}", "columns.label=spam"))


def test_results_without_columns_that_were_added_since_are_read() -> None:
    table = prevalence_table(NAMES, intervals=True).drop_columns("se")
    check(table.schema, "prevalence", "here", {"community", "lower"})
    with pytest.raises(StageError, match="'se' is missing"):
        check(table.schema, "prevalence", "here")
