"""The paper's published values: transcribed exactly, contradictions documented."""

from __future__ import annotations

import pytest

from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.paper_figures import (
    COMPARISON,
    ERRORS,
    QUANTIFIERS,
)


@pytest.mark.parametrize(
    ("metric", "method", "dataset", "mean", "sd"),
    [
        ("ae", "xnq", "cora-2", 0.015, 0.011),
        ("ae", "xnq", "flickr", 0.075, 0.006),
        ("ae", "gat", "tolokers", 0.099, 0.111),
        ("rae", "enq", "twitch-de", 2.316, 0.949),
        ("rae", "wvrn", "questions", 12.718, 7.930),
        ("rae", "cdq", "amazon-ratings", 1.576, 0.360),
    ],
)
def test_figures_are_as_printed(
    metric: str, method: str, dataset: str, mean: float, sd: float
) -> None:
    found = ERRORS[metric][method][dataset]
    assert (found.mean, found.sd) == (mean, sd)


def test_every_row_has_every_data_set() -> None:
    for metric in ("ae", "rae"):
        for method in ("wvrn", "cdq", "enq", "xnq"):
            assert {*ERRORS[metric][method]} == {
                *published.BINARY,
                *published.MULTICLASS,
            }
    for method in published.EMBEDDERS:
        assert {*ERRORS["ae"][method]} == {*published.BINARY}
    assert {*QUANTIFIERS} == {"cc", "acc", "pcc", "pacc", "hdy", "dys", "sld"}
    assert QUANTIFIERS["dys"]["tolokers"].mean == 0.032


def test_probabilities_add_up() -> None:
    wrong = {
        (key, name)
        for key, rows in COMPARISON.items()
        for name, row in rows.items()
        if abs(sum(row) - 1) > 0.0015
    }
    # A misprint in the paper.
    assert wrong == {(("quantifier", "ae"), "acc")}
