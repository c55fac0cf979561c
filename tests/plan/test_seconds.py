"""The time of a plan: that of measured runs within a factor of two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.plan import GraphSize, Workers, add_up

WIDE = ("reservoir.dim=64", "reservoir.supersteps=10")
SIZE = GraphSize(1000, 20_000, 8, 2, labelled=100, memberships=500)
ONE = Workers(1, 2, 20 * 2**30)
TWO = Workers(2, 1, 10 * 2**30)
MEASURED = {
    # Seconds on two cores of an AMD EPYC; of the tables, before they were read.
    "generated, 1,500 nodes": (
        GraphSize(1500, 14_958, 16, 2, 173, memberships=1939),
        ((), ONE, True, 3.8),
    ),
    "Cora": (
        GraphSize(2708, 21_112, 1433, 7, 1647),
        ((), ONE, True, 6.1),
    ),
    "Tolokers": (
        GraphSize(11_758, 2_076_000, 10, 2, 7082),
        ((), ONE, True, 11.1),
    ),
    "generated, four classes": (
        GraphSize(22_500, 337_462, 16, 4, 13_631, memberships=8180),
        ((), ONE, False, 9.0),
    ),
    "generated, seven classes": (
        GraphSize(500_000, 5_000_636, 16, 7, 50_043, memberships=331_892),
        ((), ONE, False, 55.6),
    ),
    "generated, 10 M edges": (
        GraphSize(1_000_000, 9_998_974, 8, 2, 100_095, memberships=856_726),
        ((), ONE, False, 49.4),
    ),
    "generated, 100 M edges": (
        GraphSize(10_000_000, 99_999_538, 16, 2, 1_000_702, memberships=2809),
        (WIDE, ONE, False, 342.0),
    ),
    "generated, 100 M edges, two workers": (
        GraphSize(10_000_000, 99_999_538, 16, 2, 1_000_702, memberships=2809),
        (WIDE, TWO, False, 374.0),
    ),
    "generated, 200 M edges": (
        GraphSize(20_000_000, 199_996_582, 16, 2, 1_999_669, memberships=4125),
        (WIDE, ONE, False, 705.0),
    ),
}


@pytest.mark.parametrize("case", MEASURED)
def test_planned_time_is_within_a_factor_of_two_of_the_measured(case):
    size, (overrides, workers, detects, seconds) = MEASURED[case]
    settings = load_settings(overrides=overrides)
    plan = add_up(size, settings, workers.count, workers, detects)
    assert 0.6 <= plan.seconds / seconds <= 1.6
    assert "within a factor of two" in dict(plan.lines())["time"]


def seconds(size=SIZE, workers=ONE, partitions=None, *overrides):
    settings = load_settings(overrides=overrides)
    return add_up(size, settings, partitions or workers.count, workers).seconds


def test_more_work_takes_longer_and_more_workers_less():
    large = replace(SIZE, nodes=10**6, edges=10**7, labelled=10**5)
    for more in ({"edges": 2 * 10**7}, {"labelled": 2 * 10**5}, {"classes": 5}):
        assert seconds(replace(large, **more)) > seconds(large)
    each = [seconds(large, Workers(count, 1, 2**34)) for count in (4, 2, 1)]
    assert each == sorted(set(each))
    assert seconds(large, Workers(1, 4, 2**34)) < seconds(large)
    assert seconds(large, ONE, None, "reservoir.dim=1024") > seconds(large)


def test_time_is_of_the_expected_supersteps_and_edges_and_bytes_of_the_most():
    # 1000 nodes of degree 20: 20^2 / 1000 < log 10 < 20^3 / 1000, and two more.
    assert seconds() == seconds(replace(SIZE, diameter=3))
    likely = replace(SIZE, edges=14_000, diameter=3)
    directed = seconds(likely, ONE, None, "input.directed=true")
    assert seconds() == pytest.approx(directed, rel=1e-3)
    assert add_up(SIZE, load_settings(), 2, TWO).edges == 20_000
    unknown = add_up(SIZE, load_settings(), 2, TWO)
    assert unknown.exchanged_bytes == 29 * unknown.bytes_per_superstep


def test_times_beyond_the_measured_are_marked():
    huge = replace(SIZE, nodes=10**8, edges=10**9 + 1)
    plan = add_up(huge, load_settings(), 1, Workers(1, 2, 2**41))
    assert dict(plan.lines())["time"].endswith("s, extrapolated, never measured")
    gpu = add_up(SIZE, load_settings(), 1, Workers(1, 1, 2**34, 2**34))
    assert gpu.seconds is None
    assert dict(gpu.lines())["time"] == "not known: GPUs were not measured"


def test_search_of_the_scales_is_counted():
    one = "method=xnq", "reservoir.recurrent_scale=1.0"
    large = replace(SIZE, nodes=10**6, edges=10**7)
    fixed = seconds(large, ONE, None, *one, "reservoir.input_scale=0.3")
    assert seconds(large, ONE, None, "method=xnq") > 1.5 * fixed
    assert seconds(large, ONE, None, *one) > 1.1 * fixed
