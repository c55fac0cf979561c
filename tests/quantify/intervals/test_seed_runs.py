"""The variance between seeds: values by hand, simulation, invariants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import ndtri

from tests.conftest import published_values, small_settings, write_graph
from tests.test_pipeline import whole_line, write_pages
from xnq_dist import pipeline
from xnq_dist.core.errors import SettingsError
from xnq_dist.quantify.intervals.seed_runs import PSEUDO, between_runs, widened

MOVED = ("lower", "upper", "se", "cv", "quality", "flagged")
"""Columns that the other runs change."""


def test_variance_is_the_one_by_hand():
    own = np.array([[0.2, 0.8], [0.5, 0.5], [0.3, 0.7], [np.nan, np.nan]])
    other = np.array([[0.3, 0.7], [0.5, 0.5], [0.4, 0.6], [np.nan, np.nan]])
    estimated = np.array([100, 120, 5, 10])
    part = np.array([1.0, 0.5, 0.5, 1.0])
    found = between_runs(own, other[None], estimated, part)
    # Two answers d apart have the variance d^2 / 2; the first two are of one size.
    mean = (0.005 + 0.0) / 2
    first = (0.005 + PSEUDO * mean) / (1 + PSEUDO)
    second = PSEUDO * mean / (1 + PSEUDO) * 0.5**2
    np.testing.assert_allclose(found[:, 0], [first, second, 0.005, 0.0])
    np.testing.assert_allclose(found[:, 1], found[:, 0])


def test_counted_labels_have_no_variance_between_seeds():
    own = np.array([[0.2, 0.8], [0.25, 0.75]])
    found = between_runs(own, own[None] + 0.1, np.array([0, 4]), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(found[0], 0)
    assert (found[1] > 0).all()


def answers(prevalence, lower, upper, known, members):
    """Arrays of S communities of two classes, of which the second's are given."""

    def both(values, swap):
        values = np.asarray(values, float)
        other = 1 - np.asarray(swap, float)
        return np.stack([other, values], axis=1)

    known = np.asarray(known)
    return {
        "prevalence": both(prevalence, prevalence),
        "lower": both(lower, upper),
        "upper": both(upper, lower),
        "sd": np.full((len(known), 2), 0.05),
        "known": known,
        "n_nodes": np.asarray(members),
        "n_estimated": np.asarray(members) - known.sum(axis=1),
    }


def test_ends_are_those_of_the_sum_of_variances():
    arrays = answers([0.5], [0.4], [0.62], [[0, 0]], [1000])
    variance = np.full((1, 2), 0.03**2)
    z = float(ndtri(0.975))
    found = widened(arrays, variance, 0.95, exclude=False)
    assert found["lower"][0, 1] == pytest.approx(
        0.5 - np.hypot(0.1, z * 0.03), abs=5e-4
    )
    assert found["upper"][0, 1] == pytest.approx(
        0.5 + np.hypot(0.12, z * 0.03), abs=5e-4
    )
    np.testing.assert_allclose(found["sd"], np.hypot(0.05, 0.03))
    # Ends are counts of a thousand members.
    np.testing.assert_allclose(np.rint(found["lower"] * 1000), found["lower"] * 1000)


def test_ends_stay_within_possible_counts():
    known = [[3, 5], [4, 6], [0, 0]]
    arrays = answers([0.6, 0.6, 0.9], [0.5, 0.6, 0.8], [0.7, 0.6, 1.0], known, [10] * 3)
    found = widened(arrays, np.full((3, 2), 1.0) * [[1], [0], [1]], 0.95, False)
    np.testing.assert_allclose(found["lower"][0], [0.3, 0.5])
    np.testing.assert_allclose(found["upper"][0], [0.5, 0.7])
    np.testing.assert_array_equal(found["lower"][1], arrays["lower"][1])
    np.testing.assert_array_equal(found["upper"][1], arrays["upper"][1])
    np.testing.assert_allclose(found["lower"][2], 0)
    np.testing.assert_allclose(found["upper"][2], 1)
    # With labelled=exclude, any share of the unlabelled members is possible.
    alone = widened(arrays, np.ones((3, 2)), 0.95, exclude=True)
    np.testing.assert_allclose(alone["lower"][0], 0)


@pytest.mark.parametrize("others", [1, 3])
def test_other_seeds_are_covered(others):
    """The effect of a seed is as large as the interval without it."""
    rng = np.random.default_rng(1)
    sets, noise, effect = 4000, 0.02, 0.02
    truth = rng.uniform(0.3, 0.7, sets)
    shared = truth + rng.normal(0, noise, sets)
    runs = shared + rng.normal(0, effect, (1 + others, sets))
    both = np.stack([1 - runs, runs], axis=2)
    z = float(ndtri(0.975))
    members = np.full(sets, 10**6)
    arrays = answers(
        runs[0],
        runs[0] - z * noise,
        runs[0] + z * noise,
        np.zeros((sets, 2), int),
        members,
    )
    variance = between_runs(both[0], both[1:], members, np.ones(sets))
    assert variance.mean() == pytest.approx(effect**2, rel=0.1)

    def covered(ends):
        return ((truth >= ends["lower"][:, 1]) & (truth <= ends["upper"][:, 1])).mean()

    assert covered(arrays) < 0.88
    assert 0.94 <= covered(widened(arrays, variance, 0.95, False)) <= 0.96


def test_runs_with_other_seeds_widen_the_intervals(tmp_path, client):
    graph = write_graph(tmp_path / "input", labelled=0.4)
    sources = write_pages(graph, 12)

    def run_with(name, *more):
        settings = small_settings("intervals.resamples=40", "partitions=2", *more)
        return whole_line(tmp_path / name, sources, settings, client), settings

    def table(run):
        return published_values(tmp_path / run)

    one, _ = run_with("one", "seed=1")
    two, _ = run_with("two", "seed=2")
    run_with("alone")
    named = f"intervals.seed_runs=['{one.uri}', '{two.uri}']"
    run_with("wide", named)
    alone, wide = table("alone"), table("wide")
    same = [n for n in alone.column_names if n not in MOVED]
    assert wide.select(same).equals(alone.select(same))
    width = [t["upper"].to_numpy() - t["lower"].to_numpy() for t in (alone, wide)]
    assert (width[1] >= width[0]).all()
    assert (width[1] > width[0]).any()
    assert pa.compute.max(wide["upper"]).as_py() <= 1
    # Other seeds answer within it, where they did not always before.
    middle = np.stack([table(name)["prevalence"].to_numpy() for name in ("one", "two")])
    inside = (middle >= wide["lower"].to_numpy() - 0.02) & (
        middle <= wide["upper"].to_numpy() + 0.02
    )
    assert inside.mean() > 0.9


@pytest.mark.slow
def test_runs_that_differ_in_more_than_the_seed_are_refused(tmp_path, client):
    graph = write_graph(tmp_path / "input", labelled=0.4)
    sources = write_pages(graph, 12)
    base = ("intervals.resamples=20", "partitions=2")
    first = whole_line(
        tmp_path / "first", sources, small_settings(*base, "seed=1"), client
    )

    def refused(path, match, *more, where="mine"):
        settings = small_settings(*base, f"intervals.seed_runs=['{path}']", *more)
        with pytest.raises(SettingsError, match=match):
            whole_line(tmp_path / where, sources, settings, client)

    refused(tmp_path / "nowhere", "not a complete run")
    nowhere = small_settings(f"intervals.seed_runs=['{tmp_path / 'nowhere'}']")
    with pytest.raises(SettingsError, match="not a complete run"):
        pipeline.check_sources(sources, nowhere)
    refused(first.uri, "own directory", where="first")
    refused(first.uri, r"more than its seed \(quantifier\)", "quantifier=pcc")
    refused(first.uri, "posteriors of this run", "seed=1")
    refused(f"{first.uri}', '{first.uri}", "name it once")
    other = write_graph(tmp_path / "other", seed=1)
    settings = small_settings(*base)
    far = whole_line(tmp_path / "far", write_pages(other, 12), settings, client)
    refused(far.uri, "has another graph")
