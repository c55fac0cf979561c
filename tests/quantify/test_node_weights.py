"""Node weights: prevalence of persons, views or followers instead of nodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import small_settings
from tests.quantify.default.test_auto import drawn
from tests.quantify.samples import make_communities, make_nodes
from tests.quantify.test_stage import answered, draw_memberships, make_run, of
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.due import due_stages
from xnq_dist.pipeline import check_sources, open_run, prepare
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.contrast import contrast
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.interface import combine
from xnq_dist.quantify.loading import load_groups, load_node_table
from xnq_dist.quantify.stage import estimate_with, quantify

AUTO = "quantifier=auto"
WEIGHTED = (AUTO, "columns.node_weight=persons")


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def slow_covariance(nodes, learnt: Learnt, a, b, k: int, code: int) -> float:
    """The definition, node by node, for two sets of which each node counts once."""
    p = nodes.posteriors.astype(np.float64)
    f = np.clip((p / p.sum(axis=1, keepdims=True))[:, code], learnt.least, 1)
    w = np.minimum(f, 1 - learnt.least)
    w = w * (1 - w)
    u = nodes.weights

    def free(members):
        return {v for v in members if nodes.labels[v] < 0}

    one, two = free(a), free(b)
    total = sum(u[v] ** 2 * w[v] for v in one & two)
    sums = [sum(u[v] * w[v] for v in some) for some in (one, two)]
    rows = np.flatnonzero(nodes.labels >= 0)
    for g in range(len(learnt.variances)):
        inside = (learnt.groups == g).any(axis=0)
        part = w[rows[inside[rows]]].sum() / (w[rows].sum() + 0.25)
        d_g = [
            sum(u[v] * w[v] for v in some if inside[v]) - whole * part
            for some, whole in zip((one, two), sums, strict=True)
        ]
        total += d_g[0] * d_g[1] * learnt.variances[g, k]
    total += sums[0] * sums[1] * learnt.shared[k]
    return float(total / (sum(u[v] for v in a) * sum(u[v] for v in b)))


def weighted(n_classes: int, weights=None):
    """Nodes with weights (drawn unless given), their reference and `auto`."""
    nodes, reference, groups, _ = drawn(n_classes)
    auto = Auto(learnt=Learnt.of(nodes, reference, groups))
    if weights is None:
        weights = np.random.default_rng(3).lognormal(0, 1, len(nodes.labels))
        weights[::17] = 0.0
    return dataclasses.replace(nodes, weights=weights), reference, auto


@pytest.mark.parametrize("n_classes", [2, 3])
def test_estimates_are_weighted_means_with_their_variance(n_classes):
    nodes, reference, auto = weighted(n_classes)
    known = np.flatnonzero(nodes.labels >= 0)
    sets = [np.arange(40), np.arange(30, 200), known[:5]]
    batch = make_communities(*sets)
    found = auto.estimate(batch, nodes, reference)
    answer = combine(batch, nodes, found, "count")
    p = nodes.posteriors.astype(np.float64)
    p /= p.sum(axis=1, keepdims=True)
    p[known] = np.eye(n_classes)[nodes.labels[known]]
    for s, members in enumerate(sets):
        u = nodes.weights[members]
        mean = (u[:, None] * p[members]).sum(axis=0) / u.sum()
        np.testing.assert_allclose(answer.prevalence[s], mean, atol=1e-12)
        codes = [1] if n_classes == 2 else range(n_classes)
        for k, code in enumerate(codes):
            slow = slow_covariance(nodes, auto.learnt, members, members, k, code)
            np.testing.assert_allclose(answer.sd[s, code] ** 2, slow, rtol=1e-10)
        assert answer.n_nodes[s] == len(members)
        assert answer.weighted.total[s] == pytest.approx(u.sum())
        effective = u.sum() ** 2 / (u**2).sum()
        assert answer.weighted.effective[s] == pytest.approx(effective)
    assert (answer.lower[2] == answer.upper[2]).all()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("labelled", ["count", "exclude"])
def test_weights_of_one_keep_every_bit(n_classes, labelled):
    nodes, reference, auto = weighted(n_classes, np.ones(600))
    plain = dataclasses.replace(nodes, weights=None)
    batch = make_communities(*(np.arange(k, 600, k + 1) for k in range(30)))
    answers = [
        combine(batch, each, auto.estimate(batch, each, reference), labelled)
        for each in (nodes, plain)
    ]
    wholes = [auto.estimate_all(each, reference) for each in (nodes, plain)]
    for one, two in (answers, wholes):
        for name in ("prevalence", "lower", "upper", "sd"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    sums = [each.groups for each in wholes]
    np.testing.assert_array_equal(sums[0].weights, sums[1].weights)
    np.testing.assert_array_equal(sums[0].squares, sums[1].weights)


@given(
    st.lists(st.integers(0, 5), min_size=8, max_size=40),
    st.floats(0.1, 1e6),
    st.randoms(use_true_random=False),
)
def test_estimates_are_the_same_in_any_unit_and_order_of_members(numbers, unit, order):
    weights = np.resize(np.array(numbers, float), 600)
    weights[0] = 1.0
    nodes, reference, auto = weighted(3, weights)
    scaled = dataclasses.replace(nodes, weights=unit * weights)
    members = np.arange(0, 600, 7)
    shuffled = members.copy()
    order.shuffle(shuffled)
    one = auto.estimate(make_communities(members), nodes, reference)
    two = auto.estimate(make_communities(shuffled), scaled, reference)
    np.testing.assert_allclose(one.prevalence, two.prevalence, atol=1e-12)
    np.testing.assert_allclose(one.sd, two.sd, atol=1e-12)
    # A node of weight k counts as often as k nodes.
    many = np.repeat(members, weights[members].astype(int))
    plain = dataclasses.replace(nodes, weights=None)
    copies = auto.estimate(make_communities(many), plain, reference)
    np.testing.assert_allclose(one.prevalence, copies.prevalence, atol=1e-12)


def test_estimates_need_members_of_weight():
    weights = np.zeros(600)
    nodes, reference, auto = weighted(2, weights)
    known, free = (
        np.flatnonzero((nodes.labels >= 0) == is_known)[:4] for is_known in (1, 0)
    )
    weights[known[0]] = 2.0
    batch = make_communities(free, np.concatenate([known, free]))
    found = auto.estimate(batch, nodes, reference)
    answer = combine(batch, nodes, found, "count")
    assert np.isnan(answer.prevalence[0]).all()
    assert answer.prevalence[1, nodes.labels[known[0]]] == 1
    assert "node weight 0: nothing to estimate" in answer.notes[0]
    assert answer.notes[1] == "every unlabelled member has the node weight 0"


@pytest.mark.parametrize("heavy", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [2, 5, 20, 100])
def test_intervals_cover_shares_of_unequal_weights(heavy, size):
    rng = np.random.default_rng(size)
    sets, n = 2000, 2000 * size
    f = rng.beta(0.5, 1.5, n)
    truth = rng.random(n) < f
    weights = rng.lognormal(0, heavy, n)
    nodes = make_nodes(np.stack([1 - f, f], axis=1))
    nodes = dataclasses.replace(nodes, weights=weights)
    none = np.zeros((1, 1))
    one = none[0]
    learnt = Learnt(np.zeros((1, n), np.int32), none, one, none, 1e-3, one, one, none)
    batch = make_communities(*np.arange(n).reshape(sets, size))
    reference = drawn(2)[1]
    found = Auto(learnt=learnt).estimate(batch, nodes, reference)
    u, y = weights.reshape(sets, size), truth.reshape(sets, size)
    share = (u * y).sum(axis=1) / u.sum(axis=1)
    inside = (found.lower[:, 1] - 1e-9 <= share) & (share <= found.upper[:, 1] + 1e-9)
    assert 0.93 <= inside.mean() <= 0.98


def with_weights(made, weights, kind=None):
    """The node table of a run once more, with a column of weights."""
    table = pq.read_table(made.graph.sources.nodes)
    column = pa.array(weights, kind)
    if "persons" in table.column_names:
        table = table.drop_columns("persons")
    pq.write_table(table.append_column("persons", column), made.graph.sources.nodes)


@pytest.mark.parametrize("labelled", ["count", "exclude"])
def test_levels_of_a_hierarchy_add_up_in_weights(client, tmp_path, labelled):
    made = make_run(tmp_path / "made")
    weights = np.random.default_rng(0).lognormal(0, 1, 300)
    with_weights(made, weights)
    part = np.arange(300) * 13 % 17
    path = tmp_path / "part.parquet"
    columns = {"community": part, "node_id": np.arange(300), "parent": 100 + part % 3}
    pq.write_table(pa.table(columns), path)
    settings = small_settings(*WEIGHTED, "labels.drawn=random", f"labelled={labelled}")
    sources = of(made, memberships=str(path))
    manifest = quantify(made.run, sources, settings, client)
    rows = answered(made.run, manifest).to_pylist()
    record = manifest.named("totals-")[0]
    totals = made.run.stage("quantify").read_table(record, "totals").to_pylist()
    own = "weight" if labelled == "count" else "weight_estimated"
    for total in totals:
        of_class = [row for row in rows if row["class"] == total["class"]]
        leaves = [row for row in of_class if row["community"] < 100]
        parents = [row for row in of_class if row["community"] >= 100]
        assert total["weight"] == pytest.approx(weights.sum(), rel=1e-12)
        assert total["n_nodes"] == 300
        for level in (leaves, parents):
            summed = sum(row[own] * row["prevalence"] for row in level)
            assert summed / total[own] == pytest.approx(total["prevalence"], abs=1e-9)
        for above in parents:
            below = [row for row in leaves if row["parent"] == above["community"]]
            summed = sum(row[own] * row["prevalence"] for row in below)
            assert summed / above[own] == pytest.approx(above["prevalence"], abs=1e-9)
    points = estimate_with(made.run, sources, settings, "auto", "1")
    ours = {row["community"]: row["prevalence"] for row in rows if row["class"] == 1}
    assert points == ours


def test_differences_are_of_weighted_shares(client, tmp_path):
    made = make_run(tmp_path / "made")
    weights = np.random.default_rng(0).lognormal(0, 1, 300)
    with_weights(made, weights)
    part = np.arange(300) * 13 % 17 % 5
    path = tmp_path / "part.parquet"
    columns = {"community": part, "node_id": np.arange(300), "parent": [9] * 300}
    pq.write_table(pa.table(columns), path)
    sources = of(made, memberships=str(path))
    quantify(made.run, sources, small_settings(*WEIGHTED), client)
    nodes, reference = load_node_table(made.run, [0.4, 0.6])
    nodes = dataclasses.replace(nodes, weights=weights)
    learnt = Learnt.of(nodes, reference, load_groups(made.run).stacked)
    a, b, everyone = (
        np.flatnonzero(part == 0),
        np.flatnonzero(part == 1),
        np.arange(300),
    )

    def slow(one, two):
        return slow_covariance(nodes, learnt, one, two, 0, 1)

    for names, two in ((("0", "1"), b), (("0", "9"), everyone)):
        found = contrast(str(made.run.location), *names)[1]
        variance = slow(a, a) + slow(two, two) - 2 * slow(a, two)
        assert found.se**2 == pytest.approx(variance, rel=1e-5)


def test_a_changed_weight_redoes_the_stage_quantify_alone(client, tmp_path):
    made = make_run(tmp_path / "made")
    path, _ = draw_memberships(tmp_path, 5)
    with_weights(made, np.ones(300))
    sources, settings = of(made, memberships=path), small_settings(*WEIGHTED)
    plain = answered(
        made.run, quantify(made.run, sources, small_settings(AUTO), client)
    )
    first = quantify(made.run, sources, settings, client)
    table = answered(made.run, first)
    new = ["weight", "weight_estimated", "n_effective"]
    assert table.drop_columns(new).equals(plain.drop_columns(new))
    assert table["n_effective"].to_pylist() == table["n_nodes"].to_pylist()
    with_weights(made, [1] * 300, pa.int64())  # the same values
    assert quantify(made.run, sources, settings, client).attempt == first.attempt
    assert "labels" not in due_stages(made.run, sources, settings)
    weights = np.ones(300)
    weights[5] = 200.0
    with_weights(made, weights)
    due = due_stages(made.run, sources, settings)
    assert "quantify" in due
    assert not {"graph", "labels"} & set(due)
    again = quantify(made.run, sources, settings, client)
    assert again.attempt != first.attempt
    rows = answered(made.run, again).to_pylist()
    everyone = next(row for row in rows if row["community"] == "all")
    # One node has most of the weight: the sample is as small as one of two.
    assert everyone["n_effective"] < 10 < everyone["n_nodes"]
    assert everyone["quality"] == "suppressed"


@pytest.mark.parametrize(
    ("weights", "kind", "error"),
    [
        (
            [1.0] * 7 + [-2.0],
            None,
            r"'persons' is -2.0 for node 7 in row 8 of .*parquet",
        ),
        ([1.0] * 7 + [None], None, "'persons' is null for node 7 in row 8"),
        ([1.0] * 7 + [np.inf], None, "'persons' is inf for node 7 in row 8"),
        ([1.0] * 7 + [np.nan], None, "'persons' is nan for node 7 in row 8"),
        (["1"] * 8, pa.string(), "'persons' of .* is string, not a number"),
    ],
)
def test_unusable_weights_are_named_before_anything_is_computed(
    tmp_path, weights, kind, error
):
    made = make_run(tmp_path / "made")
    with_weights(made, [*weights, *([weights[0]] * (300 - len(weights)))], kind)
    settings = small_settings(*WEIGHTED)
    with (
        open_run(str(tmp_path / "new"), made.graph.sources) as run,
        pytest.raises(InputError, match=error),
    ):
        prepare(run, made.graph.sources, settings)
    assert run.stage("graph").manifest() is None


def test_a_missing_column_of_weights_is_named_from_the_tables_heads(tmp_path):
    made = make_run(tmp_path / "made")
    with pytest.raises(InputError, match=r"no column .persons.*columns\.node_weight"):
        check_sources(made.graph.sources, small_settings(*WEIGHTED))


def test_weights_that_are_all_zero_are_refused(client, tmp_path):
    made = make_run(tmp_path / "made")
    path, _ = draw_memberships(tmp_path, 2)
    with_weights(made, np.zeros(300))
    sources = of(made, memberships=path)
    with pytest.raises(InputError, match="is 0 for every node"):
        quantify(made.run, sources, small_settings(*WEIGHTED), client)


@pytest.mark.parametrize("other", ["quantifier=pcc", "memberships.drawn=by_class"])
def test_estimators_that_ignore_weights_are_refused(other):
    with pytest.raises(SettingsError, match=r"columns\.node_weight needs quantifier"):
        load_settings(overrides=["columns.node_weight=persons", other])
