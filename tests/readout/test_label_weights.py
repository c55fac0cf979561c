"""Inclusion weights of labels: a label of weight 2 counts as two labels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings, with_graph, write_graph
from tests.readout.samples import fit_smooth
from tests.readout.test_plus import to_posteriors
from xnq_dist import pipeline
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.graph.layout import load_labels
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.quantify.loading import left_factors
from xnq_dist.readout.calibration import fit_calibration, quality
from xnq_dist.readout.logistic import fit
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.plus.first_stage import Variants, class_priors
from xnq_dist.readout.plus.learning import scaled_weights
from xnq_dist.readout.plus.second_stage import pool_weights
from xnq_dist.readout.plus.trees import Shape, binned, boosted_logits, fit_trees
from xnq_dist.readout.regularisation import cross_fit

N = 200
TWICE = np.repeat(np.arange(N), np.where(np.arange(N) % 3 == 0, 2, 1))
WEIGHTS = np.bincount(TWICE).astype(np.float64)
ONES = np.ones(len(TWICE))


def drawn(n_classes: int = 2):
    """Rows of logits and labels that partly depend on them."""
    rng = np.random.default_rng(n_classes)
    x = rng.normal(size=(N, 4))
    labels = (x[:, 0] + rng.normal(size=N) > 0).astype(np.int32)
    if n_classes == 3:
        labels += x[:, 1] > 0.5
    return x, labels.astype(np.int32)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit", [fit, fit_smooth])
def test_weights_act_in_logistic_regression_as_copies(n_classes, fit):
    x, y = drawn(n_classes)
    one = fit(x, y, n_classes, 1.0, WEIGHTS)
    two = fit(x[TWICE], y[TWICE], n_classes, 1.0)
    np.testing.assert_allclose(one.coef, two.coef, atol=1e-4)
    np.testing.assert_allclose(one.intercept, two.intercept, atol=1e-4)


@pytest.mark.parametrize("kind", ["bcts", "temperature", "platt", "platt_logit"])
def test_weights_act_in_calibration_as_copies(kind):
    x, y = drawn()
    logits = np.stack([np.zeros(N), 2 * x[:, 0] + 1], axis=1)
    one = fit_calibration(kind, logits, y, 2.0, WEIGHTS)
    two = fit_calibration(kind, logits[TWICE], y[TWICE], 2.0)
    for name in ("slope", "offset"):
        pair = getattr(one, name), getattr(two, name)
        np.testing.assert_allclose(*pair, rtol=1e-3, atol=1e-3)


def test_weights_act_in_pool_first_stage_trees_and_priors():
    x, y = drawn()
    folds = (np.arange(N) % 5).astype(np.int32)
    scores = [
        np.log(np.stack([1 - p, p], axis=1))
        for p in (1 / (1 + np.exp(-x[:, k])) for k in range(3))
    ]
    np.testing.assert_allclose(
        pool_weights(np.stack(scores), y, WEIGHTS),
        pool_weights(np.stack(scores)[:, TWICE], y[TWICE], ONES),
        atol=1e-3,
    )
    losses = []

    def first(loss, count):
        losses.append(loss(0))
        return 0

    def fitted(at, weights):
        rows = Rows(x[at, :4], y[at], folds[at], 2, weights, smooth=True)
        rows.penalty = rows.moments.total_variance()
        return cross_fit([rows] * 5, [1.0], first)[0][1]

    one, two = fitted(slice(None), WEIGHTS), fitted(TWICE, ONES)
    fitted(slice(None), ONES[:N])
    np.testing.assert_allclose(one.coef, two.coef, atol=1e-4)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0] / WEIGHTS.sum() != losses[2] / N
    shape = Shape(leaves=4, share=1.0)
    none = np.zeros(N, bool)
    bins = binned(x)
    heavy, _ = fit_trees(bins, y, np.where(y == 1, 5.0, 1.0), 2, shape, none)
    light, _ = fit_trees(bins, y, ONES[:N], 2, shape, none)
    raised = boosted_logits(heavy, x)[:, 1] - boosted_logits(light, x)[:, 1]
    assert raised.mean() > 0.5
    np.testing.assert_allclose(
        class_priors(y, folds, WEIGHTS, 2, Variants(5)),
        class_priors(y[TWICE], folds[TWICE], ONES, 2, Variants(5)),
    )
    logits = np.stack([np.zeros(N), x[:, 0]], axis=1)
    posterior = fit_calibration("none", logits, y).apply(logits)
    constant = np.where(y == 1, 0.4, 1.1)
    found = quality(posterior, y, constant, WEIGHTS)
    again = quality(posterior[TWICE], y[TWICE], constant[TWICE])
    assert found["skill"]["value"] == pytest.approx(again["skill"]["value"])
    assert found["log_loss"] == pytest.approx(again["log_loss"])
    assert found["accuracy"] == pytest.approx(again["accuracy"])


def test_weights_add_up_to_the_effective_number_of_labels():
    shown = np.arange(0, N, 2)
    np.testing.assert_allclose(scaled_weights(np.full(N, 7.0), shown)[shown], 1.0)
    scaled = scaled_weights(WEIGHTS, shown)[shown]
    own = WEIGHTS[shown]
    assert scaled.sum() == pytest.approx(own.sum() ** 2 / (own**2).sum())
    assert scaled.sum() < len(shown)


def test_intervals_follow_the_effective_number_of_labels():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 2, 1000)
    y = (rng.random(1000) < p).astype(np.int32)
    posteriors = np.stack([1 - p, p], axis=1).astype(np.float32)
    groups = (np.arange(1000) % 10).astype(np.int32)
    rows = np.arange(1000)

    def learnt(weights):
        reference = Reference(posteriors, y, rows, weights=weights)
        known, prior = np.ones(1000, np.bool_), np.array([0.6, 0.4])
        nodes = NodeTable(posteriors, y, known, ("0", "1"), prior, reference)
        return Learnt.of(nodes, groups)

    same, equal = learnt(None), learnt(np.full(1000, 3.0))
    np.testing.assert_allclose(equal.shared, same.shared)
    np.testing.assert_allclose(equal.within, same.within)
    weights = np.where(rows % 10 < 5, 19.0, 1.0)
    effective = weights.sum() ** 2 / (weights**2).sum()
    found = learnt(weights)
    np.testing.assert_allclose(found.information, same.information, rtol=0.01)
    assert found.shared[0] == pytest.approx(same.shared[0] * 1000 / effective, rel=0.1)


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    """A graph whose class 1 is five times as likely to have a label."""
    folder = tmp_path_factory.mktemp("weighted")
    graph = write_graph(folder / "input", nodes=300, edges=900, labelled=1.0)
    rng = np.random.default_rng(1)
    chance = np.where(graph.labels == 1, 0.5, 0.1)
    known = rng.random(300) < chance
    table = pq.read_table(graph.sources.nodes)

    def write(weights, name="weighted.parquet"):
        label = pa.array(graph.labels.astype(np.int64), mask=~known)
        made = table.set_column(table.schema.get_field_index("label"), "label", label)
        made = made.append_column("w", weights)
        pq.write_table(made, folder / "input" / name)
        return str(folder / "input" / name)

    return folder, graph, known, chance, write


@pytest.mark.parametrize("by", ["class", "place"])
def test_unlabelled_nodes_follow_the_labels_that_stand_for_them(by):
    """What is left of each class where labels follow it, else nothing changes."""
    rng = np.random.default_rng(0)
    p = rng.beta(1, 2, 20_000)
    y = rng.random(20_000) < p
    chance = np.where(y if by == "class" else p > 0.5, 0.8, 0.2)
    rows = np.flatnonzero(rng.random(20_000) < chance)
    held = np.stack([1 - p, p], axis=1)[rows]
    reference = Reference(held, y[rows].astype(np.int32), rows)
    factors = left_factors(reference, 1 / chance)
    ratio = 0.2 / 0.8 if by == "class" else 1.0
    assert factors[1] / factors[0] == pytest.approx(ratio, rel=0.1)


WEIGHTED = (
    "method=xnq+",
    "readout.folds=3",
    "labels.drawn=weighted",
    "columns.label_weight=w",
    "quantifier=auto",
    "communities=leiden",
)


@pytest.mark.usefixtures("no_trees")
def test_weights_reach_posteriors_prior_and_totals(weighted, thread_client):
    folder, graph, known, chance, write = weighted
    path = write(pa.array(1 / chance, mask=~known))
    sources = dataclasses.replace(graph.sources, nodes=path)
    truth = graph.labels.mean()
    errors = {}
    for name in ("weighted", "plain"):
        chosen = (
            WEIGHTED
            if name == "weighted"
            else [
                *(s for s in WEIGHTED if "weight" not in s),
                "labels.drawn=random",
            ]
        )
        settings = small_settings(*chosen)
        run = to_posteriors(folder / name, sources, settings, thread_client)
        made = pipeline.quantify(run, sources, settings, thread_client)
        stage = run.stage("labels")
        weights = load_labels(stage.manifest()).weights
        if name == "plain":
            assert weights is None
        else:
            np.testing.assert_allclose(weights, np.where(known, 1 / chance, 0))
            (prior,) = {tuple(run.stage("readout").manifest().facts["prior"])}
            own = np.bincount(graph.labels[known], (1 / chance)[known])
            np.testing.assert_allclose(prior, own / own.sum())
            assert made.facts["labels"]["drawn"] == "weighted"
            assert "verdict" not in made.facts["labels"]
        totals = run.stage("quantify").read_table(made.named("totals-")[0], "totals")
        errors[name] = abs(totals["prevalence"].to_pylist()[1] - truth)
    assert errors["weighted"] < errors["plain"] / 2


@pytest.mark.parametrize(
    "wrong", [0.0, -1.0, float("nan"), float("inf"), None, 1e-300, 1e200]
)
def test_a_wrong_weight_is_named_with_its_column_and_row(weighted, wrong):
    folder, graph, known, chance, write = weighted
    values = np.where(known, 1 / chance, None).tolist()
    row = int(np.flatnonzero(known)[3])
    values[row] = wrong
    path = write(pa.array(values, pa.float64()), "wrong.parquet")
    sources = dataclasses.replace(graph.sources, nodes=path)
    message = f"column 'w' holds .* in row {row + 1} of .*must be finite and above 0"
    with pytest.raises(InputError, match=message):
        with_graph(folder / "wrong", sources, small_settings(*WEIGHTED))


def test_a_missing_column_of_weights_is_named(weighted):
    folder, graph, *_ = weighted
    with pytest.raises(InputError, match=r"columns\.label_weight"):
        with_graph(folder / "missing", graph.sources, small_settings(*WEIGHTED))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("labels.drawn=weighted", "method=xnq+"), "go together"),
        (("columns.label_weight=w",), "go together"),
        (("labels.drawn=weighted", "columns.label_weight=w"), r"needs method = xnq\+"),
        (("labels.prior={a: .5, b: .4}",), "sums to 0.9"),
        (("labels.prior={a: 1.5, b: -.5}",), "between 0 and 1"),
        (("labels.prior={a: .5, b: .5}", "labels.drawn=random"), "is not used with"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        small_settings(*settings)
