"""Earlier results: found, or refused with a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import StageError
from xnq_dist.core.schemas import check
from xnq_dist.core.store import RunDirectory
from xnq_dist.steps.publish import publish

NAMES = ["a", "b", "c"]


def settings_of(*overrides: str):
    return load_settings(overrides=["quantifier=auto", *overrides])


def made(
    folder: Path,
    *overrides: str,
    intervals: bool = True,
    seed: int = 0,
    classes: tuple[str, ...] = ("person", "bot"),
    **more: Any,
) -> str:
    """Publish a complete run; return its directory."""
    table = prevalence_table(NAMES, classes, intervals, seed)
    run = write_fake_run(folder, [table], classes, **more)
    publish(run, settings_of(*overrides))
    return str(folder)


def page_of(folder: Path) -> str:
    return " ".join((folder / "report.html").read_text(encoding="utf-8").split())


def test_earlier_results_of_the_directory_are_compared_with(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made(folder)
    first = pq.read_table(folder / "prevalence.parquet")
    run = RunDirectory(folder)
    assert not (folder / "changes.parquet").exists()
    # An input of all later stages has changed.
    assert run.reuse("quantify", {"tables": "of tonight"}) is None
    assert pq.read_table(folder / "prevalence.parquet").equals(first)
    made(folder, seed=1)
    rows = pq.read_table(folder / "changes.parquet").to_pylist()
    assert {row["status"] for row in rows} == {"both"}
    before = {(r["community"], r["class"]): r["before"] for r in rows}
    for row in first.to_pylist():
        assert before[row["community"], row["class"]] == row["prevalence"]
    assert "with the previous state of this run directory, made 20" in page_of(folder)
    # Publishing again, under any settings, compares with the same results.
    publish(run, settings_of())
    assert pq.read_table(folder / "changes.parquet").to_pylist() == rows
    publish(run, settings_of("anomalies.rate=0.06"))
    again = pq.read_table(folder / "changes.parquet")["before"].to_pylist()
    assert again == [row["before"] for row in rows]


def test_comparison_can_be_switched_off(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made(folder)
    made(folder, "anomalies.last=null", seed=1)
    assert not (folder / "changes.parquet").exists()
    assert "Since the earlier results" not in page_of(folder)


def found(*communities: int) -> dict[str, Any]:
    """A run with these detected communities of its nodes."""
    ids = pa.array(map(str, range(len(communities))))
    table = pa.table({"community": np.array(communities), "node_id": ids})
    return {"detected": table, "source": "leiden"}


@pytest.mark.parametrize(
    ("then", "now", "why_not"),
    [
        ({}, {}, ""),
        ({}, {"intervals": False}, "without intervals a change cannot"),
        ({"classes": ("bot", "ghost")}, {}, "had classes = bot, ghost and this run"),
        ({"source": "column:a"}, {"source": "column:a"}, ""),
        (
            {"source": "column:a"},
            {"source": "column:b"},
            "had communities = column:a and this run column:b",
        ),
        (found(0, 0, 1), found(0, 0, 1), ""),
        (found(0, 0, 1), found(0, 1, 1), "had detected communities = "),
    ],
)
def test_earlier_results_are_compared_with_or_the_page_says_why_not(
    tmp_path: Path, then: dict[str, Any], now: dict[str, Any], why_not: str
) -> None:
    folder = tmp_path / "run"
    made(folder, **then)
    made(folder, seed=1, **now)
    assert (folder / "changes.parquet").exists() == (not why_not)
    assert ("Compared with the previous" in page_of(folder)) == (not why_not)
    assert why_not in page_of(folder)


def test_results_without_columns_that_were_added_since_are_read() -> None:
    table = prevalence_table(NAMES, intervals=True).drop_columns("se")
    check(table.schema, "prevalence", "here", {"community", "lower"})
    with pytest.raises(StageError, match="'se' is missing"):
        check(table.schema, "prevalence", "here")
