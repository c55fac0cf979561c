"""Tests over draws, confidence bounds of coverage, and their tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tests.evaluation.fake_results import table
from xnq_dist.evaluation.community_tables import (
    LEVEL,
    community_tables,
    coverage,
    holm,
    means,
    ratio_cells,
)
from xnq_dist.evaluation.estimators import TRIVIAL

GRAPHS = {"twitch-de": "twitch", "twitch-engb": "twitch", "cora-2": "cora"}


def rows(errors, draws=12, seed=0, graphs=GRAPHS, kinds=("leiden 3",), **more):
    """Rows of estimators whose errors are `errors` times those of PCC, and noise.

    `errors` gives a ratio for each estimator, or for each estimator and graph.
    """
    rng = np.random.default_rng(seed)
    made = []
    for dataset, kind, draw in itertools.product(graphs, kinds, range(draws)):
        base = 0.05 + 0.01 * rng.random()
        for estimator, ratio in errors.items():
            one = ratio[dataset] if isinstance(ratio, dict) else ratio
            noise = 0 if estimator == "pcc" else 0.002 * rng.normal()
            made.append(
                {
                    "dataset": dataset,
                    "graph_family": graphs[dataset],
                    "method": "xnq+",
                    "design": "random",
                    "label_share": 0.06,
                    "draw": draw,
                    "labels": 100,
                    "communities": kind,
                    "estimator": estimator,
                    "sizes": "50-100",
                    "labelled": True,
                    "sets": 30,
                    "ae": base * one + noise,
                    "rae": 0.5,
                    "bias": 0.0,
                    "coverage": 0.95,
                    "width": 0.2,
                }
                | more
            )
    return made


def results(*parts):
    return table("community_results", itertools.chain(*parts))


def test_means_weigh_sets_and_leave_nulls_out():
    some = rows({"pcc": 1.0}, draws=2, graphs={"g": "g"})
    some[0] |= {"sets": 10, "ae": 0.1, "coverage": None, "width": None}
    some[1] |= {"sets": 30, "ae": 0.2, "coverage": 0.5}
    (found,) = means(results(some), ("dataset",))
    assert found["ae"] == pytest.approx(0.175)
    assert found["coverage"] == pytest.approx(0.5)
    assert found["sets"] == 40
    assert [r["sets"] for r in means(results(some), ("draw",))] == [10, 30]


def test_cells_above_the_bound_are_those_of_a_paired_t_test():
    found = results(rows({"pcc": 1.0, "good": 1.0, "bad": 1.2, "near": 1.03}))
    for name, above in (("good", 0), ("bad", 3), ("near", 0)):
        cells = ratio_cells(found, name, "pcc")
        assert len(cells) == 3
        assert sum(cell.pvalue < LEVEL for cell in cells) == above
    cells = ratio_cells(found, "near", "pcc")
    rows_ = {
        (r["dataset"], r["draw"], r["estimator"]): r["ae"] for r in found.to_pylist()
    }
    pvalues = []
    for dataset, cell in zip(GRAPHS, cells, strict=True):
        own, other = (
            np.array([rows_[dataset, draw, name] for draw in range(12)])
            for name in ("near", "pcc")
        )
        test = stats.ttest_rel(own, 1.05 * other, alternative="greater")
        pvalues.append(test.pvalue)
        assert cell.ratio == pytest.approx(own.mean() / other.mean())
        assert cell.name == f"{dataset}, leiden 3, 6 %"
    expected = holm(np.array(pvalues))
    assert [cell.pvalue for cell in cells] == pytest.approx(expected.tolist())


def test_tests_need_enough_draws_and_communities():
    few = ratio_cells(results(rows({"pcc": 1.0, "bad": 2.0}, draws=9)), "bad", "pcc")
    assert np.isnan([cell.pvalue for cell in few]).tolist() == [True] * 3
    small = results(rows({"pcc": 1.0, "bad": 2.0}, sets=19))
    assert ratio_cells(small, "bad", "pcc") == []
    tiny = results(rows({"pcc": 1.0, "bad": 2.0}, sizes="5-20"))
    assert ratio_cells(tiny, "bad", "pcc") == []
    samples = results(rows({"pcc": 1.0, "bad": 2.0}, kinds=("app", "by-class")))
    assert ratio_cells(samples, "bad", "pcc") == []


def test_holm_is_that_of_its_definition():
    p = np.array([0.04, 0.001, 0.5, 0.02])
    assert holm(p) == pytest.approx([0.08, 0.004, 0.5, 0.06])
    with_few_draws = holm(np.array([0.04, np.nan, 0.01]))
    np.testing.assert_allclose(with_few_draws, [0.04, np.nan, 0.02])


def covered(shares, sets):
    """Coverage over draws with these shares of covered sets."""
    some = rows({"auto": 1.0}, draws=len(shares), graphs={"g": "g"}, sets=sets)
    for one, share in zip(some, shares, strict=True):
        one["coverage"] = share
    return coverage(results(some))


def test_bounds_of_coverage_hold_the_truth_where_draws_differ():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        # Coverage differs between draws; its mean is .9.
        each = rng.beta(18, 2, 20)
        found = covered([rng.binomial(50, share) / 50 for share in each], 50)
        held += found.lower <= 0.9 <= found.upper
    assert held >= 0.97 * 400


def test_coverage_without_an_error_keeps_a_bound_below_one():
    found = covered([1.0] * 3, 20)
    assert found.value == found.upper == 1
    assert found.lower < 0.95
    assert np.isnan(covered([1.0], 20).lower)
    assert covered([None], 20) is None


def check(found):
    return {one.name: one for one in community_tables(found)}


def test_tables_say_what_is_above_and_what_covers():
    ratios = {"auto": 1.2, "pcc": 1.0} | dict.fromkeys(TRIVIAL, 1.1)
    found = results(
        rows(ratios), rows({"auto": 1.0, "pcc": 1.0}, coverage=0.6, design="half")
    )
    made = check(found)
    ratios = made["communities-pcc-above"].rows
    assert {group for group, _ in ratios} == {"random labels", "half labels"}
    cells, mean, above, significant, _ = ratios["random labels", "auto"]
    assert (cells, above, significant) == ("3", "3", "3")
    assert float(mean) == pytest.approx(1.2, abs=0.03)
    assert ratios["half labels", "auto"][2:4] == ["0", "0"]
    prior = made["communities-prior-above"].rows
    assert prior["random labels", "auto"][3] == "3"
    name = "50-100, labels inside"
    intervals = made["communities-coverage"].rows
    assert intervals["random labels", name][0].startswith(".950 [.")
    assert intervals["half labels", name][0].startswith(".600 [.")
    by_family = made["communities-families-coverage"].rows
    assert [group for group, _ in by_family] == ["twitch", "cora"]


def test_size_classes_are_in_the_order_of_their_numbers():
    sizes = ("500-", "20-50", "100-500", "50-100")
    found = results(*(rows({"auto": 1.0}, sizes=size) for size in sizes))
    names = [name for _, name in check(found)["communities-coverage"].rows]
    assert [name.split(",")[0] for name in names] == [
        *("20-50", "50-100", "100-500", "500-")
    ]
