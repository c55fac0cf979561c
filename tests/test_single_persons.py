"""No label of a single person in anything that a run writes for people."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.test_estimate import FAST, people
from xnq_dist import PrevalenceResult, estimate_prevalence
from xnq_dist.core.store import RunDirectory

N = 120
OWL = 7
"""A node whose class only one other labelled node has."""
KEPT = {"community", "class", "n_nodes", "n_nodes_before", "quality", "note"}
KEPT |= {"method", "run_id", "status", "reference"}
KEPT |= {"run", "created", "series"}
"""Columns that may hold a value for a suppressed community."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two runs in a directory, the second with another seed; and the log."""
    folder = tmp_path_factory.mktemp("persons")
    _, nodes, edges = people(folder)
    words = nodes["label"].to_pylist()
    words[OWL] = words[90] = "owl"
    nodes = nodes.set_column(1, "label", pa.array(words))
    known = [at for at, word in enumerate(words) if word == "human"]
    sets = {
        "only the owl": [OWL],
        "only one without a label": [words.index(None)],
        "all have one label": known[:9],
        "a family": list(range(20, 26)),
        "all but the owl": [at for at in range(N) if at != OWL],
        "first half": list(range(60)),
        "first third": [at for at in range(40) if at != OWL],
        "the sixth after it": list(range(40, 60)),
        "second half": list(range(60, N)),
    }
    lines: list[str] = []
    handler = logging.Handler(logging.DEBUG)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log, level = logging.getLogger("xnq_dist"), logging.getLogger("xnq_dist").level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        for seed in (0, 1):
            result = estimate_prevalence(
                nodes.to_pandas(),
                edges.to_pandas(),
                sets,
                out=folder / "run",
                seed=seed,
                disclosure__table="nulls",
                **FAST,
            )
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    return {"out": folder / "run", "sets": sets, "log": lines, "result": result}


def suppressed(made: dict[str, Any]) -> set[str]:
    rows = made["result"].to_pandas()
    return {*rows["community"][rows["quality"] == "suppressed"]}


def rows_for_people(made: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row of every table, with its source."""
    out = made["out"]
    for path in sorted(out.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            yield path.name, row
    for row in made["result"].to_pandas().to_dict("records"):
        yield "result", row


def texts_for_people(made: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every page and the log."""
    result: PrevalenceResult = made["result"]
    yield "page", Path(result.report).read_text(encoding="utf-8")
    yield "notebook", result._repr_html_()
    yield "words", repr(result)
    yield "log", "\n".join(made["log"])


def test_rows_of_suppressed_communities_hold_nulls(made):
    gone, seen = suppressed(made), set()
    for source, row in rows_for_people(made):
        assert not {"node_id", "label"} <= row.keys(), source
        if row.get("community") not in gone:
            continue
        seen.add(source)
        values = {name: row[name] for name in row.keys() - KEPT}
        assert all(v is None or v != v for v in values.values()), (source, values)
    assert {"prevalence.parquet", "anomalies.parquet", "changes.parquet"} <= seen
    assert "result" in seen


def test_pages_and_log_lines_hide_suppressed_values(made):
    gone, stage = suppressed(made), RunDirectory(made["out"]).stage("quantify")
    raw = stage.read_table(
        RunDirectory(made["out"]).complete("quantify").named("prevalence-")[0],
        "prevalence",
    ).to_pylist()
    numbers = {
        (name, value)
        for row in raw
        if row["community"] in gone
        for name, value in row.items()
        if isinstance(value, float) and 0 < value < 1
    }
    assert len(numbers) > 10
    for source, text in texts_for_people(made):
        for name, value in numbers:
            assert f"{value:.5f}"[1:] not in text, (source, name)
        # The owls are two, and a number of so few labels is that of persons.
        words = re.sub(r"<[^>]+>", " ", text)
        assert not re.search(r"owl\W{1,3}[12]\b(?! %)", words), source
    html = Path(made["result"].report).read_text(encoding="utf-8")
    rows = re.findall(r"<tr>.*?</tr>", html, re.DOTALL)
    for name in gone:
        (row,) = [each for each in rows if f">{name}<" in each]
        assert "suppressed" in row
        assert "%" not in row
    assert not np.any([name in made["result"]._repr_html_() for name in gone])
