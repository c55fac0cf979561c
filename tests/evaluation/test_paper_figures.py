"""The paper's published values: transcribed exactly, contradictions documented."""

from __future__ import annotations

from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.paper_figures import (
    COMPARISON,
    ERRORS,
    QUANTIFIERS,
)


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
    last = ERRORS["rae"]["cdq"]["amazon-ratings"]
    assert (last.mean, last.sd) == (1.576, 0.360)


def test_probabilities_add_up() -> None:
    wrong = {
        (key, name)
        for key, rows in COMPARISON.items()
        for name, row in rows.items()
        if abs(sum(row) - 1) > 0.0015
    }
    # A misprint in the paper.
    assert wrong == {(("quantifier", "ae"), "acc")}
