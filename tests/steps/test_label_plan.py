"""Which nodes to label next: the allocation, the sample, and its gain."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from distributed import Client
from scipy.optimize import minimize

from tests.conftest import small_settings
from tests.quantify.samples import (
    make_communities,
    make_nodes,
    with_own_reference,
)
from tests.quantify.test_stage import draw_memberships, finish, make_run, of
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import Folder
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.pooling import SPREADS
from xnq_dist.quantify.interface import combine
from xnq_dist.steps.label_plan import (
    POWER,
    SPREAD,
    Strata,
    allocate,
    choose,
    plan_labels,
    plan_writer,
)

AUTO = "quantifier=auto"


@pytest.fixture(scope="module")
def finished(thread_client: Client, tmp_path_factory: pytest.TempPathFactory):
    """A run, up to its stage ``quantify``, its communities and its place."""
    folder = tmp_path_factory.mktemp("finished")
    made = make_run(folder / "made")
    path, sets = draw_memberships(folder, 12)
    sources = of(made, memberships=path)
    finish(made, sources, small_settings(AUTO), thread_client)
    return made, sets, str(made.run.location)


def network(seed: int, n_classes: int = 2, share: float = 0.05):
    """Nodes in 20 groups with shifts of their own, most labels in half of them."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(20), rng.integers(30, 120, 20)).astype(np.int32)
    n = len(groups)
    shift = rng.normal(0, 0.6, (20, n_classes))[groups]
    logits = rng.normal(0, 1, (n, n_classes))

    def softmax(values):
        odds = np.exp(values)
        return odds / odds.sum(axis=1, keepdims=True)

    sure = softmax(logits + shift)
    truth = (sure.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    truth = np.minimum(truth, n_classes - 1).astype(np.int32)
    known = rng.random(n) < np.where(groups % 2, 2 * share, 0.002)
    known[:: n // 8] = True
    nodes = make_nodes(softmax(logits), np.where(known, truth, -1))
    return with_own_reference(nodes), groups, truth


def communities_of(groups, seed: int):
    """Sets of 15 to 150 nodes, within groups and across them."""
    rng = np.random.default_rng(seed)
    within = [np.flatnonzero(groups == g)[: 15 + 4 * g] for g in range(20)]
    n = len(groups)
    across = [np.sort(rng.choice(n, 15 * k, replace=False)) for k in range(1, 6)]
    return [*within, *across]


def strata_of(nodes, groups, sets):
    learnt = Learnt.of(nodes, groups)
    return Strata(nodes, learnt, sets)


def norm(strata, labels):
    """The objective of `allocate`: a norm of the standard errors."""
    return (strata.errors(labels) ** POWER).sum() ** (1 / POWER)


@pytest.mark.parametrize(
    ("n_classes", "labelled", "partitions", "pooled"),
    [
        (2, "count", 1, False),
        (2, "exclude", 3, False),
        (3, "count", 3, False),
        (3, "count", 3, True),
    ],
)
def test_errors_before_new_labels_are_those_of_auto(
    n_classes, labelled, partitions, pooled
):
    nodes, groups, _ = network(0, n_classes)
    place = np.arange(len(groups))
    groups = np.stack([groups, place // 7, place % 5])[:partitions]
    sets = communities_of(groups[0], 0)
    learnt = Learnt.of(nodes, groups)
    batch = make_communities(*sets)
    parts = np.full((2, 2 * len(SPREADS)), 0.5 / len(SPREADS)) if pooled else None
    strata = Strata(nodes, learnt, sets, labelled, parts)
    found = Auto(learnt=learnt, parts=parts).estimate(batch, nodes)
    answer = combine(batch, nodes, found, labelled)
    codes = [1] if n_classes == 2 else list(range(n_classes))
    now = strata.errors(np.zeros(len(strata.sizes)))
    np.testing.assert_allclose(now, answer.sd[:, codes], rtol=1e-9)


def test_the_allocation_is_that_of_a_general_optimiser():
    nodes, groups, _ = network(2)
    sets = [np.flatnonzero(groups == g)[: 20 * (g + 1)] for g in range(3)]
    sets.append(np.concatenate([sets[0][:10], sets[2]]))
    budget = 40
    strata = strata_of(nodes, groups, sets)
    labels = allocate(strata, budget)
    assert labels.sum() == pytest.approx(budget)
    least = SPREAD * budget * strata.shares
    assert (labels >= least - 1e-9).all()
    assert (labels <= strata.sizes + 1e-9).all()
    found = minimize(
        lambda x: np.log(norm(strata, x)),
        budget * strata.shares,
        bounds=list(zip(least, strata.sizes, strict=True)),
        constraints={"type": "eq", "fun": lambda x: x.sum() - budget},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    best, random = np.exp(found.fun), norm(strata, budget * strata.shares)
    assert norm(strata, labels) <= best + 0.02 * (random - best)
    assert norm(strata, labels) < random


def test_a_sample_has_the_budget_and_the_chances_of_its_strata():
    stratum = np.random.default_rng(0).integers(-1, 5, 400)
    chances = np.array([0.9, 0.05, 0.2, 1.0, 0.013])
    sizes = np.bincount(stratum[stratum >= 0])
    budget = 150
    chances[4] = (budget - (sizes * chances)[:4].sum()) / sizes[4]
    assert 0 < chances[4] < 1
    counts = np.zeros(400)
    for seed in range(2000):
        found = choose(stratum, chances, budget, seed)
        assert len(np.unique(found)) == budget
        counts[found] += 1
        drawn = np.bincount(stratum[found], minlength=5)
        assert (np.abs(drawn - sizes * chances) < 1).all()
    assert counts[stratum < 0].sum() == 0
    expected = chances[stratum[stratum >= 0]]
    error = np.sqrt(expected * (1 - expected) / 2000)
    apart = np.abs(counts[stratum >= 0] / 2000 - expected)
    assert (apart <= 5 * error + 1e-12).all()


def test_more_labels_than_nodes_label_all_of_them():
    nodes, groups, _ = network(3)
    free = int((nodes.labels < 0).sum())
    sets = communities_of(groups, 3)
    strata = strata_of(nodes, groups, sets)
    labels = allocate(strata, free)
    np.testing.assert_allclose(labels, strata.sizes)
    found = choose(strata.stratum, labels / strata.sizes, free, 0)
    np.testing.assert_array_equal(found, np.flatnonzero(nodes.labels < 0))


def simulated(seed: int, budget: int, worst: int = 8):
    """Widest half-widths before, with the plan's and with random labels."""
    nodes, groups, truth = network(seed)
    sets = communities_of(groups, seed)
    share = np.array([truth[members].mean() for members in sets])

    def widths(labels):
        """Half-widths, errors, and which intervals cover the share."""
        shown = with_own_reference(dataclasses.replace(nodes, labels=labels))
        learnt = Learnt.of(shown, groups)
        batch = make_communities(*sets)
        found = Auto(learnt=learnt).estimate(batch, shown)
        answer = combine(batch, shown, found, "count")
        low, p, high = (
            end[:, 1] for end in (answer.lower, answer.prevalence, answer.upper)
        )
        inside = (low - 1e-9 <= share) & (share <= high + 1e-9)
        return (high - low) / 2, np.abs(p - share), inside

    before, *_ = widths(nodes.labels)
    target = np.argsort(-before)[:worst]
    strata = strata_of(nodes, groups, [sets[s] for s in target])
    labels = allocate(strata, budget)
    picked = choose(strata.stratum, labels / strata.sizes, budget, seed)
    free = np.flatnonzero(nodes.labels < 0)
    at_random = np.random.default_rng(seed).choice(free, budget, replace=False)
    after = []
    for some in (picked, at_random):
        new = nodes.labels.copy()
        new[some] = truth[some]
        after.append([values[target] for values in widths(new)])
    planned, random = after
    return {
        "before": before[target].max(),
        "planned": planned[0].max(),
        "random": random[0].max(),
        "error planned": planned[1].mean(),
        "error random": random[1].mean(),
        "covered": planned[2].mean(),
        "predicted": 1.96 * strata.errors(labels).max(),
    }


@pytest.mark.parametrize("budget", [30, 100])
def test_plans_beat_random_labels_on_the_widest_interval(budget):
    rows = [simulated(seed, budget) for seed in range(60)]
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    gain = (mean["before"] - mean["planned"]) / (mean["before"] - mean["random"])
    assert gain > 1.5, mean
    better = [row["planned"] < row["random"] for row in rows]
    assert np.mean(better) >= 0.85, mean
    assert mean["error planned"] < mean["error random"], mean
    assert mean["covered"] >= 0.93, mean
    # Predictions are accurate, except for interval ends at counts of members.
    assert mean["planned"] == pytest.approx(mean["predicted"], rel=0.15), mean


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_plan_is_a_table_of_unlabelled_nodes_with_weights(finished, tmp_path, ending):
    made, sets, where = finished
    plan = plan_labels(where, 20, seed=3)
    path = str(tmp_path / "new" / f"plan.{ending}")
    plan_writer(path)(plan)
    table = pq.read_table(path) if ending == "parquet" else pacsv.read_csv(path)
    rows = table.to_pylist()
    assert len(rows) == 20
    free = made.graph.labels < 0
    assert plan.unlabelled == free.sum()
    strata: dict[int, float] = {}
    for row in rows:
        assert free[row["node_id"]]
        chance = row["inclusion_probability"]
        assert row["label_weight"] == pytest.approx(1 / chance)
        assert 0 < chance <= 1
        assert strata.setdefault(row["stratum"], chance) == chance
        if row["community"]:
            assert row["node_id"] in sets[row["community"]]
    assert len({row["node_id"] for row in rows}) == 20
    planned = plan.communities
    assert planned == sorted(planned, key=lambda row: -row["now"])
    assert all(row["planned"] < row["now"] and row["published"] > 0 for row in planned)
    assert max(row["planned"] for row in planned) <= max(
        row["random"] for row in planned
    )
    assert plan_labels(where, 20, seed=3).table.equals(plan.table)
    others = (plan_labels(where, 20, seed=seed).table for seed in range(4, 9))
    assert not all(other.equals(plan.table) for other in others)


def test_a_plan_is_for_the_communities_that_are_named(finished):
    _, sets, where = finished
    name = max((name for name in sets if name != "all"), key=lambda n: len(sets[n]))
    plan = plan_labels(where, 30, [name])
    (row,) = plan.communities
    assert row["community"] == name
    inside = [r["community"] == name for r in plan.table.to_pylist()]
    everyone = len(sets[name]) / 300
    assert np.mean(inside) > everyone
    assert row["planned"] < row["random"] < row["now"]


def test_errors_name_the_faulty_option_or_table(finished, tmp_path):
    _, sets, where = finished
    small = min(sets, key=lambda name: len(sets[name]))
    assert len(sets[small]) < 10
    for words, *asked in (
        ("there is no community 'x'", 5, ["x"]),
        (r"has no estimate, or is suppressed \(fewer than 10", 5, [small]),
        ("--budget and --worst must be 1 or more", 0),
        ("--budget and --worst must be 1 or more", 5, None, 0),
    ):
        with pytest.raises(SettingsError, match=words):
            plan_labels(where, *asked)
    plan = plan_labels(where, 5)
    (tmp_path / "file").touch()
    for words, path in (
        (r"ends neither in \.parquet nor in \.csv", "plan.xlsx"),
        ("cannot be written", "file/plan.csv"),
    ):
        with pytest.raises(SettingsError, match=words):
            plan_writer(str(tmp_path / path))(plan)
    record = RunRecord.read(Folder.of(where))
    memberships = Path(record.sources["memberships"])
    table = pq.read_table(memberships)
    memberships.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"does not exist: .* or run .* where they ar"):
        plan_labels(where, 5)
    pq.write_table(table.slice(5), memberships)
    with pytest.raises(InputError, match="the memberships changed since"):
        plan_labels(where, 5)
    pq.write_table(table, memberships)


def test_detected_communities_have_plans(thread_client, tmp_path):
    made = make_run(tmp_path / "made")
    settings = small_settings(AUTO, "communities=leiden")
    finish(made, made.graph.sources, settings, thread_client)
    plan = plan_labels(str(made.run.location), 10)
    assert plan.table.num_rows == 10
    assert isinstance(plan.table, pa.Table)
