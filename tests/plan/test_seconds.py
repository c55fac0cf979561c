"""Times of a plan: each kind of work is counted once, divided among workers."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.need import PartitionCounts, RunSize
from xnq_dist.groups.own_groups import ROUNDS
from xnq_dist.plan import GraphSize, Workers, add_up
from xnq_dist.plan.unit_costs import Costs
from xnq_dist.quantify.default.surroundings import WALKS
from xnq_dist.readout.needs import candidates_of, label_sums, turns_of
from xnq_dist.reservoir.needs import NeighbourSums, block_sums

NUMBERS = [field.name for field in fields(Costs) if field.name != "basis"]
FREE = Costs(**dict.fromkeys(NUMBERS, 0.0), basis="nothing costs anything")
SIZE = GraphSize(1000, 20_000, 8, 2, labelled=100, memberships=500)
GIVEN = ("reservoir.recurrent_scale=1.0", "reservoir.input_scale=0.3")
PLAIN = (
    "method=xnq",
    "reservoir.dim=64",
    "reservoir.supersteps=10",
    "reservoir.matrix=dense",
    *GIVEN,
)
PLUS = ("method=xnq+", "reservoir.dim=64", "reservoir.supersteps=10")


def stages(cost, *overrides, size=SIZE, workers=1, partitions=None, detects=False):
    """Stages of a plan in which one kind of work costs a second per unit."""
    settings = load_settings(overrides=[*overrides, "checkpoint.every=100"])
    crew = Workers(workers, 1, 2**34)
    costs = replace(FREE, **{cost: 1.0})
    plan = add_up(size, settings, partitions or workers, crew, detects, costs)
    return plan.stages


UNITS = {
    # Nodes 1000, edges 20,000, 64 units, 10 supersteps.
    "fixed": ("fixed", 1),
    "node": ("ingest", 1000),
    "edge": ("ingest", 20_000),
    "gather": ("supersteps", 10 * 20_000 * 64),
    # The input drive is computed from features and a one in each superstep.
    "flop": ("supersteps", 2 * 64_000 * 10 * (64 + 9)),
    "value": ("supersteps", 10 * 64_000),
    # One state per superstep; one partition has no halo.
    "copy": ("supersteps", 10 * 64_000 * 4),
    "load": ("supersteps", 20_000 * 4),
    "task": ("supersteps", 10 * 3),
    # Labelled rows are gathered, then all are scored.
    "read": ("readout", 2 * 64_000 * 4),
    # Fewer logits take as long as sixteen.
    "score": ("readout", 64_000 * 16),
    "share": ("readout", 2 * 1000),
    "posterior": ("readout", 1000),
    # Eight values of C by five folds, then all rows. A fit evaluates 12 + 64 // 24
    # points, rescales its coordinates once, and evaluates five more.
    "point": ("readout", 41 * 19),
    "row": ("readout", 41 * 19 * 64 * 100),
    "loss": ("readout", 41 * 19 * 100),
    # The covariance, one Hessian a fit, two changes of coordinates a point.
    "square": ("readout", 64 * 64 * (100 + 41 * (100 + 2 * 19))),
    "cube": ("readout", 41 * 64**3),
    "table": ("write", 64_000 * 4),
    "known": ("quantify", 1000),
    "name": ("quantify", 1000),
    "member": ("quantify", 500),
}


@pytest.mark.parametrize("cost", UNITS)
def test_work_of_plain_xnq_is_counted_once(cost):
    stage, units = UNITS[cost]
    found = stages(cost, *PLAIN, "quantifier=sld")
    assert found[stage] == pytest.approx(units)
    assert sum(found.values()) == pytest.approx(units)


def test_fits_of_several_classes_have_a_cost_of_their_own():
    several = replace(SIZE, classes=7)
    # Coordinates are rescaled after 12 + 64 // 24 evaluations, 1.5 times, and five.
    found = stages("class_row", *PLAIN, size=several)
    assert found["readout"] == 41 * (1.5 * 14 + 5) * 7 * 64 * 100
    losses = stages("class_loss", *PLAIN, size=several)["readout"]
    assert losses == found["readout"] / 64
    for one in "row", "loss":
        assert stages(one, *PLAIN, size=several)["readout"] == 0
        assert stages(f"class_{one}", *PLAIN)["readout"] == 0


def test_a_stored_input_drive_is_computed_and_written_once():
    many = replace(SIZE, features=40)
    flop, copy = (stages(n, *PLAIN, size=many)["supersteps"] for n in ("flop", "copy"))
    assert flop == 2 * 64_000 * (10 * 64 + 40)
    assert copy == 11 * 64_000 * 4


def test_time_is_of_the_expected_supersteps_and_bytes_of_the_most():
    auto = (*PLAIN, "reservoir.supersteps=auto")
    # 1000 nodes of degree 20: 20^2 / 1000 < log 10 < 20^3 / 1000, and two more.
    assert stages("gather", *auto)["supersteps"] == 5 * 20_000 * 64
    known = replace(SIZE, diameter=9)
    assert stages("gather", *auto, size=known)["supersteps"] == 11 * 20_000 * 64
    crew, settings = Workers(2, 1, 2**34), load_settings(overrides=auto)
    plan = add_up(SIZE, settings, 2, crew)
    assert plan.exchanged_bytes == 29 * plan.bytes_per_superstep
    # Times are of the edges that are likely, memory and bytes of those there may be.
    likely = replace(SIZE, likely_edges=10_000, diameter=9)
    assert stages("gather", *auto, size=likely)["supersteps"] == 11 * 10_000 * 64
    assert add_up(likely, settings, 2, crew).edges == 20_000
    # Few edges: there may be long paths.
    few = replace(SIZE, edges=900)
    assert stages("gather", *auto, size=few)["supersteps"] == 30 * 900 * 64


def test_auto_and_detection_are_counted():
    assert stages("judged", *PLAIN, "quantifier=auto")["quantify"] == 500
    # Labels around nodes, to study how they were chosen.
    plain, auto = (
        stages("visit", *PLAIN, f"quantifier={name}")["quantify"]
        for name in ("sld", "auto")
    )
    assert (plain, auto) == (0, 20_000 * WALKS)
    assert stages("leiden", *PLAIN, detects=True)["quantify"] == 20_000
    assert stages("leiden", *PLAIN)["quantify"] == 0


def test_groups_are_counted():
    # Coarse and fine groups.
    assert stages("leiden", *PLAIN)["readout"] == 2 * 20_000
    assert stages("visit", *PLAIN)["readout"] == 0
    # Label propagation, where the graph is too large for Leiden.
    many = (*PLAIN, "auto.reference_edges=19999")
    assert stages("leiden", *many)["readout"] == 0
    assert stages("visit", *many)["readout"] == 20_000 * ROUNDS


def test_work_of_xnq_plus_is_counted():
    for cost in ("tree", "column", "bin", "bins", "place", "leaf", "feature"):
        assert stages(cost, *PLAIN)["readout"] == 0
    # Two kinds of trees, five folds, 250 trees; of 8 features all, with degrees, at
    # three hops, and 32 columns of the spectrum. Log-odds of three blocks, 7 of labels.
    trees = 250
    assert stages("tree", *PLUS)["readout"] == 2 * 5 * trees
    # Half and a tenth of the columns are drawn for all leaves but the last two.
    assert stages("column", *PLUS)["readout"] == 5 * trees * (19 * 13 + 7 * 29)
    assert stages("bin", *PLUS)["readout"] == 5 * trees * 80 * (19 * 3 + 7 * 4)
    assert stages("bins", *PLUS)["readout"] == 5 * (37 + 69)
    assert stages("place", *PLUS)["readout"] == 5 * 80 * (37 + 69)
    assert stages("leaf", *PLUS)["readout"] == 2 * trees * 1000
    # All nodes; labelled rows in every variant, also with complete groups as folds.
    assert stages("feature", *PLUS)["readout"] == (1000 + 2 * 5 * 100) * 7
    without = (*PLUS, "plus.boosting=never")
    assert stages("tree", *without)["readout"] == 0
    three = replace(SIZE, classes=3)
    assert stages("tree", *PLUS, size=three)["readout"] == 3 * 2 * 5 * trees
    settings = load_settings(overrides=[*PLUS])
    size = RunSize.of(SIZE, 1, Workers(1, 1, 2**34))
    # Two classes in five folds, one in fifteen sets of hidden folds, twice ones; twice.
    narrow = load_settings(overrides=[*PLUS, "reservoir.dim=53"])
    assert label_sums(size, narrow) == (NeighbourSums(2, 27),) * 2
    # Wider states leave the memory for both at once.
    assert label_sums(size, settings) == (NeighbourSums(2, 54),)
    on_disk = load_settings(overrides=[*PLUS[:1], "exchange.states=disk"])
    assert label_sums(size, on_disk) == (NeighbourSums(2, 27),) * 2
    both = (NeighbourSums(2, 10), NeighbourSums(9, 138))
    assert block_sums(size, settings) == both
    assert stages("gather", *PLUS)["readout"] == 2 * 20_000 * 54
    plain = stages("gather", *PLAIN)["supersteps"]
    beside = stages("gather", *PLUS)["supersteps"] - plain
    assert beside == 20_000 * (2 * 10 + 9 * 138)
    directed = (*PLUS, "input.directed=true")
    assert block_sums(size, load_settings(overrides=[*directed])) == both[:1]

    def of_spectrum(cost):
        return stages(cost, *PLUS)["supersteps"] - stages(cost, *directed)["supersteps"]

    # Five times all 136 vectors are turned, and multiplied in float64; both read them,
    # as peaks do. A round reads the edges twice.
    assert of_spectrum("flop") == 5 * (2 + 4) * 1000 * 136**2
    assert of_spectrum("load") == 5 * 3 * 1000 * 136 * 4 + 9 * 2 * 20_000 * 4
    # Labelled rows, the neighbours' posteriors, then all posteriors.
    assert stages("read", *PLUS)["readout"] == 3 * 1000 * (64 + 27 + 128) * 4
    # A fit of each block with each of four values of C hides a fold, then one hides
    # each pair of them; with groups as folds once. The second stage tries three values.
    points = 12 + 64 // 24, 12 + 27 // 24, 12 + 128 // 24
    expected = sum(points) * (4 * 5 + 10 + 5 + 10) + 2 * 3 * 5 * 12
    assert stages("point", *PLUS)["readout"] == pytest.approx(expected)


def test_search_of_the_scales_is_counted():
    found = load_settings(overrides=["method=xnq"])
    one = load_settings(overrides=["method=xnq", GIVEN[0]])
    given = load_settings(overrides=PLAIN)
    assert [candidates_of(some) for some in (found, one, given)] == [6, 3, 0]
    assert candidates_of(load_settings(overrides=PLUS)) == 0
    wide = (*PLAIN[:1], "reservoir.dim=512", "reservoir.supersteps=10")
    searched = stages("gather", *wide)["supersteps"]
    # Candidates have 128 units at most.
    assert searched == 10 * 20_000 * (512 + 6 * 128)


def test_folds_share_the_threads_of_all_workers():
    def turns(*workers):
        return turns_of(RunSize.of(SIZE, 1, Workers(*workers, 2**34)), 5)

    assert [turns(*some) for some in ((1, 1), (2, 1), (2, 2), (8, 1))] == [5, 3, 2, 1]


def test_one_partition_is_computed_by_all_threads():
    settings = load_settings(overrides=[*PLUS, "checkpoint.every=100"])

    def supersteps(cost, threads):
        costs, crew = replace(FREE, **{cost: 1.0}), Workers(1, threads, 2**34)
        return add_up(SIZE, settings, 1, crew, False, costs).stages["supersteps"]

    for cost in ("visit", "gather", "flop"):
        assert supersteps(cost, 4) == pytest.approx(supersteps(cost, 1) / 4)
    # One task reads its edges and vectors.
    assert supersteps("load", 4) == supersteps("load", 1)


def test_the_busiest_worker_decides():
    for cost in ("gather", "read", "posterior"):
        stage = UNITS[cost][0]
        alone = stages(cost, *PLAIN, "quantifier=sld")[stage]
        four = stages(cost, *PLAIN, "quantifier=sld", workers=4)[stage]
        # Before partitioning, the largest partition is assumed to have 1.1 of the mean.
        assert four == pytest.approx(1.1 * alone / 4)
    uneven = PartitionCounts([900, 100], [5_000, 15_000], [50, 50], [[0, 50], [50, 0]])
    size = replace(SIZE, partition_counts=uneven, halo=(50, 50))
    found = stages("gather", *PLAIN, "quantifier=sld", size=size, workers=2)
    assert found["supersteps"] == 10 * 15_000 * 64
    found = stages("posterior", *PLAIN, size=size, workers=2)
    assert found["readout"] == 900


def test_what_one_process_does_is_shared():
    for cost in ("edge", "known", "name"):
        stage = UNITS[cost][0]
        assert stages(cost, *PLAIN, workers=4)[stage] == stages(cost, *PLAIN)[stage]


def test_halo_rows_are_counted():
    alone = stages("copy", *PLAIN)["supersteps"]
    four = stages("copy", *PLAIN, workers=4)["supersteps"]
    assert four > 1.1 * alone / 4
