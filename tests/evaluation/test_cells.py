"""Cells that tables name, confidence bounds of coverage, and their tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.evaluation.fake_results import table
from xnq_dist.evaluation.community_tables import (
    community_tables,
    coverage,
    means,
)

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


def above(found):
    return check(found).get("communities-above")


def test_cells_in_which_auto_errs_more_than_the_best_other_are_named():
    auto = {"twitch-de": 1.5, "twitch-engb": 0.7, "cora-2": 0.9}
    ratios = {"pcc": 1.0, "lab": 0.8, "auto": auto, "floor": 0.1}
    found = results(rows(ratios), rows(ratios | {"auto": 0.7}, design="half"))
    (first, second), texts = zip(*above(found).rows.items(), strict=True)
    assert first == ("twitch-de, random labels", "leiden 3, 6 %")
    assert second == ("cora-2, random labels", "leiden 3, 6 %")
    assert [other for other, *_ in texts] == ["lab", "lab"]
    assert float(texts[0][-1]) == pytest.approx(1.5 / 0.8, abs=0.03)


def test_cells_need_enough_communities_that_are_large_and_real():
    ratios = {"pcc": 1.0, "auto": 2.0}
    assert above(results(rows(ratios, draws=1, sets=20)))
    for few in {"sets": 19}, {"sizes": "5-20"}, {"kinds": ("app", "by-class")}:
        assert above(results(rows(ratios, draws=1, **few))) is None


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


def test_tables_say_what_covers():
    ratios = {"auto": 1.0, "pcc": 1.0}
    found = results(rows(ratios), rows(ratios, coverage=0.6, design="half"))
    made = check(found)
    name = "50-100, labels inside"
    intervals = made["communities-coverage"].rows
    assert intervals["random labels", name][1].startswith(".950 [.")
    assert intervals["half labels", name][1].startswith(".600 [.")
    by_family = made["communities-families-coverage"].rows
    assert [group for group, _ in by_family] == ["twitch", "cora"]


def test_size_classes_are_in_the_order_of_their_numbers():
    sizes = ("500-", "20-50", "100-500", "50-100")
    found = results(*(rows({"auto": 1.0}, sizes=size) for size in sizes))
    names = [name for _, name in check(found)["communities-coverage"].rows]
    assert [name.split(",")[0] for name in names] == [
        *("20-50", "50-100", "100-500", "500-")
    ]
