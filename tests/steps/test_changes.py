"""Changes since an earlier run: two runs joined, simulated rates, values by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import betaincinv
from scipy.stats import norm

from xnq_dist.core import schemas
from xnq_dist.steps.changes import find_changes
from xnq_dist.steps.history import _compared

LEVEL = 0.95
Z = norm.ppf(0.975)


def estimates(values, se=None, members=0, labelled=0, names=None, labels=None):
    """A table of prevalences and the ends of their intervals, of so many members."""
    p, lower, upper = values
    size, width = p.shape
    se = np.full(p.shape, np.nan) if se is None else np.stack([se] * width, axis=1)
    names = np.arange(size) if names is None else names
    labels = list("abc"[:width]) if labels is None else list(labels)
    columns = {"prevalence": p, "lower": lower, "upper": upper, "se": se}
    sizes = {"n_nodes": members, "n_labelled": labelled}
    sizes["n_estimated"] = members - labelled
    return pa.table(
        {
            "community": pa.array(names).take(
                pa.array(np.repeat(np.arange(size), width))
            ),
            "class": schemas.class_column(labels, size),
            **{name: np.full(p.size, one) for name, one in sizes.items()},
            **{k: pa.array(v.ravel(), from_pandas=True) for k, v in columns.items()},
            "quality": pa.nulls(p.size, pa.string()),
        }
    )


def changes(now, then, level=LEVEL):
    """Changes between two tables of as many classes, shape (S, C) each."""
    width = max(len(now["class"].unique()), 1)
    found = find_changes(now, then, level)
    return SimpleNamespace(**{k: v.reshape(-1, width) for k, v in found.items()})


def independent(now, then):
    """Changes between runs that have no member in common."""
    return changes(estimates(now), estimates(then, None, 9))


def estimated(rng, share, n):
    """Skewed intervals, as of shares estimated from n labels: (p, lower, upper)."""
    x = rng.binomial(n, share)
    ends = (0.5, (1 - LEVEL) / 2, (1 + LEVEL) / 2)
    p, low, high = (betaincinv(x + 0.5, n - x + 0.5, end) for end in ends)
    return both_classes(p, low, high)


def both_classes(p, low, high):
    mirror = (1 - p, 1 - high, 1 - low)
    pairs = zip(mirror, (p, low, high), strict=True)
    return tuple(np.stack(pair, axis=1) for pair in pairs)


def draw_world(rng, size=1000, moved=0.1):
    """True shares then and now of communities of which some have moved."""
    then = rng.beta(1, 2.3, size)
    has_moved = rng.random(size) < moved
    now = np.where(has_moved, rng.random(size), then)
    return then, now, rng.integers(5, 60, size), has_moved


def test_at_most_the_rate_of_the_changes_are_false():
    rng = np.random.default_rng(0)
    false = found = there = 0
    for _ in range(60):
        then, now, n, moved = draw_world(rng)
        later, earlier = estimated(rng, now, n), estimated(rng, then, n)
        flagged = independent(later, earlier).qvalue[:, 1] <= 0.05
        false += np.count_nonzero(flagged & ~moved)
        found += np.count_nonzero(flagged)
        there += np.count_nonzero(moved)
    assert false <= 0.05 * found
    assert found - false >= 0.3 * there


def two_nights(rng, size=300, moved=0.0, noise=0.3, labels=0):
    """Estimates of two runs that share their errors but for noise with heavy tails."""
    truth = rng.beta(2, 3, size)
    error = rng.uniform(0.03, 0.1, size)
    now = np.where(rng.random(size) < moved, truth + 0.25, truth)
    shared = rng.normal(0, error)
    spread = error * noise * np.sqrt(3 / 5)
    runs = []
    for real in (truth, now):
        p = real + shared + spread * rng.standard_t(5, size)
        runs.append(both_classes(p, p - Z * error, p + Z * error))
    nights = [
        estimates(values, error, 100, known)
        for values, known in zip(runs, (20, 20 + labels), strict=True)
    ]
    return nights[1], nights[0], now - truth


def apart(now, then):
    """The same two runs as if they had no member in common."""
    for name in ("n_nodes", "n_estimated"):
        none = np.zeros(len(now), np.int64)
        now = now.set_column(now.column_names.index(name), name, pa.array(none))
    return changes(now, then)


def test_noise_of_runs_that_share_errors_is_flagged_at_the_rate():
    rng = np.random.default_rng(7)
    nights = 300
    for noise, limit in ((0.0, 0.0), (0.15, 0.05), (0.3, 0.05), (0.6, 0.05)):
        outside, flagged = [], 0
        for _ in range(nights):
            now, then, _ = two_nights(rng, noise=noise)
            found = changes(now, then)
            outside.append(np.mean((found.lower > 0) | (found.upper < 0)))
            flagged += bool((found.qvalue <= 0.05).any())
        assert np.mean(outside) <= limit
        assert flagged <= 0.05 * nights + 2 * np.sqrt(nights * 0.05 * 0.95)


def test_real_changes_are_found_and_few_others():
    rng = np.random.default_rng(8)
    found = false = there = plain = 0
    for _ in range(40):
        now, then, real = two_nights(rng, moved=0.05)
        flags = changes(now, then).qvalue[:, 1] <= 0.05
        found += np.count_nonzero(flags & (real > 0))
        false += np.count_nonzero(flags & (real == 0))
        there += np.count_nonzero(real > 0)
        alone = apart(now, then).qvalue[:, 1] <= 0.05
        plain += np.count_nonzero(alone & (real > 0))
    assert found >= 0.6 * there
    assert plain < 0.5 * there
    assert false <= 0.1 * (found + false)


def test_new_labels_widen_the_interval_of_a_change():
    rng = np.random.default_rng(9)
    widths = []
    for labels in (0, 20, 80):
        now, then, _ = two_nights(rng, labels=labels)
        found = changes(now, then)
        plain = apart(now, then)
        widths.append(
            np.mean((found.upper - found.lower) / (plain.upper - plain.lower))
        )
    assert widths[0] < 0.45 < widths[1] < 0.9
    assert widths[2] == pytest.approx(1.0)


def test_few_communities_are_compared_as_independent():
    rng = np.random.default_rng(10)
    now, then, _ = two_nights(rng, size=10)
    found = changes(now, then)
    plain = apart(now, then)
    np.testing.assert_allclose(found.pvalue, plain.pvalue)


def test_figures_are_those_by_hand():
    now = both_classes(*(np.array([x]) for x in (0.6, 0.5, 0.8)))
    then = both_classes(*(np.array([x]) for x in (0.4, 0.35, 0.43)))
    found = independent(now, then)
    assert found.effect[0, 1] == pytest.approx(0.2)
    assert found.lower[0, 1] == pytest.approx(0.2 - np.hypot(0.1, 0.03))
    assert found.upper[0, 1] == pytest.approx(0.2 + np.hypot(0.2, 0.05))
    p = 2 * norm.sf(0.2 / (np.hypot(0.1, 0.03) / Z))
    assert found.pvalue[0, 1] == pytest.approx(p)
    # The first class mirrors the second.
    assert found.effect[0, 0] == pytest.approx(-0.2)
    assert found.lower[0, 0] == pytest.approx(-found.upper[0, 1])
    assert found.pvalue[0, 0] == pytest.approx(p)
    assert found.qvalue[0].tolist() == pytest.approx([p, p])


def test_interval_and_pvalue_agree():
    rng = np.random.default_rng(3)
    then, now, n, _ = draw_world(rng, size=2000, moved=0.5)
    found = independent(estimated(rng, now, n), estimated(rng, then, n))
    outside = (found.lower > 0) | (found.upper < 0)
    np.testing.assert_array_equal(outside, found.pvalue < 0.05)


def test_known_communities_are_compared_exactly_and_missing_ones_left_out():
    p = np.array([[0.5, 0.5], [0.5, 0.5], [np.nan, np.nan], [0.2, 0.8]])
    sure = (p, p, p)
    moved = p + np.array([[0, 0], [0.01, -0.01], [0, 0], [0, 0]])
    none = np.full_like(p, np.nan)
    found = independent((moved, moved, moved), sure)
    assert found.pvalue[:, 1].tolist()[:2] == [1.0, 0.0]
    assert np.isnan(found.qvalue[2]).all()
    unknown = independent((p, none, none), sure)
    assert np.isnan(unknown.pvalue).all()
    assert unknown.effect[0].tolist() == [0.0, 0.0]
    empty = np.empty((0, 3))
    assert len(independent((empty,) * 3, (empty,) * 3).qvalue) == 0


def table_of(shares, classes=("person", "bot")):
    """A table of communities by name, with intervals of equal width."""
    p = np.array(list(shares.values()), np.float64).reshape(len(shares), -1)
    if p.shape[1] == 1:
        p = np.concatenate([1 - p, p], axis=1)
    values = p, p - 0.02, p + 0.02
    return estimates(values, None, 50, 0, list(shares), classes)


def changes_of(now, then):
    """The table ``changes`` of two tables of prevalences."""
    return schemas.conform(_compared(now, then, LEVEL, 0.05)[1], "changes", "here")


def test_new_and_gone_communities_are_listed():
    then = table_of({"a": 0.1, "gone": 0.7, "b": 0.4, "void": np.nan})
    now = table_of({"new": 0.9, "b": 0.8, "a": 0.1, "void": 0.3})
    rows = changes_of(now, then).to_pylist()
    assert len({(row["community"], row["class"]) for row in rows}) == len(rows) == 10
    bots = [row for row in rows if row["class"] == "bot"]
    columns = ("community", "status", "before", "effect", "changed")
    assert [[row[name] for name in columns] for row in bots] == [
        ["b", "both", 0.4, pytest.approx(0.4), True],
        ["a", "both", 0.1, 0.0, False],
        ["void", "both", None, None, None],
        ["new", "new", None, None, None],
        ["gone", "gone", 0.7, None, None],
    ]
    sizes = [(row["n_nodes"], row["n_nodes_before"]) for row in bots[-2:]]
    assert sizes == [(50, None), (None, 50)]
    assert [row["prevalence"] for row in bots[-2:]] == [0.9, None]


def test_classes_in_another_order_are_matched():
    then = table_of({"a": [0.1, 0.2, 0.7], "b": [0.1, 0.2, 0.7]}, ("z", "x", "y"))
    now = table_of({"a": [0.2, 0.7, 0.1]}, ("x", "y", "z"))
    rows = changes_of(now, then).to_pylist()
    effects = [row["effect"] for row in rows if row["status"] == "both"]
    assert effects == pytest.approx([0, 0, 0], abs=1e-9)
    before = {row["class"]: row["before"] for row in rows if row["status"] == "gone"}
    assert before == pytest.approx({"x": 0.2, "y": 0.7, "z": 0.1})


@pytest.mark.parametrize(
    ("labels", "kind"), [([0, 1], pa.int64()), ([False, True], pa.bool_())]
)
def test_class_keeps_the_type_of_the_labels_and_is_compared_as_text(labels, kind):
    texts = [str(label) for label in labels]
    then = table_of({"a": 0.5, "gone": 0.3}, texts)
    now = table_of({"a": 0.9, "new": 0.2}, labels)
    table = changes_of(now, then)
    assert table["class"].type == kind
    rows = table.to_pylist()
    before = {(row["community"], row["class"]): row["before"] for row in rows}
    assert before["a", labels[1]] == pytest.approx(0.5)
    assert before["gone", labels[0]] == pytest.approx(0.7)


def test_numbers_and_text_are_the_same_names():
    table = changes_of(table_of({"7": 0.5, "8": 0.2}), table_of({7: 0.5, 9: 0.1}))
    status = {row["community"]: row["status"] for row in table.to_pylist()}
    assert status == {"7": "both", "8": "new", "9": "gone"}
