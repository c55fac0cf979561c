"""Choice by validation only, means over folds, cost."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from tests.evaluation.fake_results import estimates, results, row
from xnq_dist.core.errors import StageError
from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.summary import (
    choose,
    costs,
    summarise,
)


def lr(quantifier: str, validation: float, test: float, fold: int = 0) -> list[dict]:
    """A quantifier of LR whose chosen draw is 1; draw 0 is worse."""
    common = {"method": "lr", "quantifier": quantifier, "fold": fold}
    return [
        row(9.0, split="validation", draw=0, selected=False, **common),
        row(validation, split="validation", draw=1, **common),
        row(test, draw=1, **common),
        row(7 * test, metric="rae", draw=1, **common),
    ]


def test_quantifier_is_chosen_by_the_validation_error() -> None:
    table = results(
        [
            *lr("pacc", 0.02, 0.30),
            *lr("acc", 0.03, 0.10),
            *lr("pacc", 0.05, 0.50, fold=1),
            *lr("acc", 0.04, 0.20, fold=1),
        ]
    )
    first, second = choose(table)
    assert (first.quantifier, first.errors["ae"]) == ("pacc", 0.30)
    assert (second.quantifier, second.errors["ae"]) == ("acc", 0.20)
    assert first.compared == 4
    figure = summarise(table).figure("cora-2", "lr", "ae")
    assert figure is not None
    assert figure.mean == pytest.approx(0.25)
    assert figure.sd == pytest.approx(math.sqrt(0.005))


def test_methods_take_the_quantifiers_of_the_paper() -> None:
    rows = [
        row(0.001, split="validation", quantifier="kdey_ml"),
        row(0.001, quantifier="kdey_ml"),
        row(0.02, split="validation"),
        row(0.02),
    ]
    (choice,) = choose(results(rows))
    assert (choice.quantifier, choice.compared) == ("sld", 1)
    # No allowed quantifier was evaluated: it is used instead.
    (other,) = choose(results(rows[:2]))
    assert other.quantifier == "kdey_ml"


def test_ties_are_independent_of_the_order_of_rows() -> None:
    rows = [*lr("sld", 0.1, 0.2), *lr("cc", 0.1, 0.3)]
    for order in (rows, rows[::-1]):
        (choice,) = choose(results(order))
        assert choice.quantifier == "sld"


def test_a_data_set_counts_once() -> None:
    once = results([row(0.1), row(0.1, split="validation")])
    with pytest.raises(StageError, match="occurs twice"):
        choose(pa.concat_tables([once, once]))


def test_a_choice_between_quantifiers_needs_validation() -> None:
    alone = row(0.1, method="xnq+")
    (choice,) = choose(results([alone]))
    assert choice.compared == 1
    several = [row(0.1, method="lr", quantifier=q) for q in ("cc", "acc")]
    with pytest.raises(StageError, match="no validation AE"):
        choose(results(several))


def test_kind_of_a_data_set_comes_from_its_number_of_classes() -> None:
    found = results([row(0.1, dataset=name) for name in ("flickr", "mine")])
    assert summarise(found).kinds == {"flickr": "multi-class", "mine": "binary"}
    two = estimates([{"dataset": "flickr", "estimate": 0.5}])
    assert summarise(found, two).kinds["flickr"] == "binary"


def test_variants_have_the_rules_of_their_method() -> None:
    rows = [
        row(value, method=method, quantifier=quantifier, split=split)
        for method, quantifier, value in [
            ("xnq", "sld", 0.2),
            ("wvrn-hard", "cc", 0.4),
            ("wvrn-hard", "kdey_ml", 0.3),
            ("mine", "cc", 0.5),
        ]
        for split in ("validation", "test")
    ]
    summary = summarise(results(rows))
    assert summary.methods == ("wvrn-hard", "xnq", "mine")
    assert [c.quantifier for c in summary.of("cora-2", "wvrn-hard")] == ["cc"]
    assert [shown(m) for m in summary.methods] == ["wvRN hard", "XNQ", "mine"]


def test_cost_is_the_mean_time_of_configurations_and_folds() -> None:
    rows = [
        row(0.1, split=split, quantifier=q, fold=f, draw=d, seconds=s)
        for f, d, s in [(0, 0, 1.0), (1, 0, 9.0), (0, 1, 6.0), (1, 1, 8.0)]
        for split in ("validation", "test")
        for q in ("sld", "cc")[: 1 + d]
    ]
    found = costs(results([*rows, row(0.1, method="lr")]))
    assert found == {("cora-2", "xnq"): 6.0}
