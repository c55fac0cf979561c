"""The printed figures: as in the paper, and not in contradiction unnoticed."""

from __future__ import annotations

import pytest

from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.paper_figures import (
    COMPARISON,
    ERRORS,
    IMPROVEMENT,
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
        for method in (*published.BASELINES, "xnq"):
            assert {*ERRORS[metric][method]} == {
                *published.BINARY,
                *published.MULTICLASS,
            }
    for method in published.EMBEDDERS:
        assert {*ERRORS["ae"][method]} == {*published.BINARY}
    assert {*QUANTIFIERS} == {"cc", "acc", "pcc", "pacc", "hdy", "dys", "sld"}
    assert QUANTIFIERS["dys"]["tolokers"].mean == 0.032
    assert QUANTIFIERS["hdy"]["genius"].spread == 0.0005


def test_improvements_agree_with_the_means_or_a_listed_misprint() -> None:
    for metric, row in IMPROVEMENT.items():
        for dataset, printed in row.items():
            others = [ERRORS[metric][m][dataset].mean for m in published.BASELINES]
            own = ERRORS[metric]["xnq"][dataset].mean
            change = 100 * (own / min(others) - 1)
            if printed is None:
                assert change > 0
            elif (metric, dataset) in (("ae", "questions"), ("ae", "genius")):
                noted = [
                    s for s in published.MISPRINTS if s.lower().startswith(dataset)
                ]
                assert len(noted) == 1
                assert f"{-change:.2f}" in noted[0]
            else:
                assert printed == pytest.approx(change, abs=0.06)


def test_probabilities_add_up() -> None:
    wrong = {
        (key, name)
        for key, rows in COMPARISON.items()
        for name, row in rows.items()
        if abs(sum(row) - 1) > 0.0015
    }
    # The paper's own misprint, noted beside the figures.
    assert wrong == {(("quantifier", "ae"), "acc")}
