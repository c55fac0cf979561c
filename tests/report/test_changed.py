"""Two runs joined by community name: complete and without mismatches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from xnq_dist.core import schemas
from xnq_dist.core.settings import Settings
from xnq_dist.report.changed import changed_rows, compare_with
from xnq_dist.report.earlier import Earlier, ResultFacts
from xnq_dist.report.view import PrevalenceView


def view_of(shares, classes=("person", "bot"), half=0.02, size=50):
    """A view of communities by name, with intervals of equal width."""
    names, width = list(shares), len(classes)
    values = np.array([np.atleast_1d(shares[name]) for name in names], np.float64)
    if values.shape[1] == 1:
        values = np.concatenate([1 - values, values], axis=1)
    flat = values.ravel()
    rows = len(flat)
    table = pa.table(
        {
            "community": pa.array([name for name in names for _ in range(width)]),
            "class": list(classes) * len(names),
            "n_nodes": np.full(rows, size),
            "n_labelled": np.zeros(rows, np.int64),
            "n_estimated": np.full(rows, size),
            "prevalence": pa.array(flat, mask=np.isnan(flat)),
            "lower": pa.array(flat - half, mask=np.isnan(flat)),
            "upper": pa.array(flat + half, mask=np.isnan(flat)),
            "note": pa.nulls(rows, pa.string()),
        }
    )
    return PrevalenceView.of(table)


def earlier_of(view, settings=None):
    values = (settings or Settings()).model_dump(mode="json")
    return Earlier("before", "yesterday", values, ResultFacts("given", ""), view)


def rows_of(now, then, settings=None):
    chosen = settings or Settings()
    found = compare_with(earlier_of(then), now, chosen)
    table = schemas.conform(changed_rows(now, found, chosen), "changes", "here")
    return found, table.to_pylist()


def test_new_and_gone_communities_are_listed():
    then = view_of({"a": 0.1, "gone": 0.7, "b": 0.4, "void": np.nan})
    now = view_of({"new": 0.9, "b": 0.8, "a": 0.1, "void": 0.3})
    found, rows = rows_of(now, then)
    status = {(row["community"], row["class"]): row["status"] for row in rows}
    assert len(rows) == len(status) == 5 * 2
    for name, expected in (("a", "both"), ("void", "both"), ("new", "new")):
        assert status[name, "bot"] == expected
    of = {row["community"]: row for row in rows if row["class"] == "bot"}
    assert of["b"]["effect"] == pytest.approx(0.4)
    assert of["b"]["before"] == pytest.approx(0.4)
    assert (of["b"]["changed"], of["a"]["changed"]) == (True, False)
    assert (of["b"]["rank_effect"], of["a"]["rank_effect"]) == (1, 2)
    assert of["new"]["prevalence"] == pytest.approx(0.9)
    assert of["gone"]["before"] == pytest.approx(0.7)
    assert of["gone"]["n_nodes_before"] == 50
    for name, without in (
        ("new", ("before", "n_nodes_before", "effect", "changed", "rank_effect")),
        ("gone", ("prevalence", "n_nodes", "effect", "changed", "rank_effect")),
        ("void", ("before", "effect", "qvalue", "changed", "rank_effect")),
    ):
        assert [of[name][column] for column in without] == [None] * len(without)
    order = [row["community"] for row in rows if row["class"] == "bot"]
    assert order == ["b", "a", "void", "new", "gone"]
    assert found.compared.tolist() == [False, True, True, False]


def test_classes_in_another_order_are_matched():
    names = ("x", "y", "z")
    then = view_of({"a": [0.1, 0.2, 0.7]}, ("z", "x", "y"))
    now = view_of({"a": [0.2, 0.7, 0.1]}, names)
    _, rows = rows_of(now, then)
    assert [abs(row["effect"]) < 1e-9 for row in rows] == [True] * 3
    gone = view_of({"b": [0.1, 0.2, 0.7]}, ("z", "x", "y"))
    _, rows = rows_of(now, gone)
    before = {row["class"]: row["before"] for row in rows if row["status"] == "gone"}
    assert before == pytest.approx({"x": 0.2, "y": 0.7, "z": 0.1})


@pytest.mark.parametrize(
    ("labels", "kind"), [([0, 1], pa.int64()), ([False, True], pa.bool_())]
)
def test_class_keeps_the_type_of_the_labels_and_is_compared_as_text(labels, kind):
    texts = [str(label) for label in labels]
    then = view_of({"a": 0.5, "gone": 0.3}, texts)
    now = view_of({"a": 0.9, "new": 0.2}, labels)
    assert now.classes == tuple(texts)
    found, rows = rows_of(now, then)
    assert changed_rows(now, found, Settings())["class"].type == kind
    before = {(row["community"], row["class"]): row["before"] for row in rows}
    assert before["a", labels[1]] == pytest.approx(0.5)
    assert before["gone", labels[0]] == pytest.approx(0.7)


def test_numbers_and_text_are_the_same_names():
    _, rows = rows_of(view_of({"7": 0.5, "8": 0.2}), view_of({7: 0.5, 9: 0.1}))
    status = {row["community"]: row["status"] for row in rows}
    assert status == {"7": "both", "8": "new", "9": "gone"}
