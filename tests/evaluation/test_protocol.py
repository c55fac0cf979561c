"""Samples have the recorded prevalences and only nodes of their role."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.evaluation.protocol import draw_samples, kraemer


def counted(samples, labels, n_classes):
    found = np.zeros((len(samples.sets), n_classes))
    for s in range(len(samples.sets)):
        first, last = samples.sets.offsets[s : s + 2]
        members = labels[samples.sets.members[first:last]]
        found[s] = np.bincount(members, minlength=n_classes) / (last - first)
    return found


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_prevalences_are_those_of_the_members(n_classes):
    labels = np.random.default_rng(0).integers(0, n_classes, 300).astype(np.int32)
    samples = draw_samples(labels, n_classes, "test", 1, 5, size=60, repeats=4)
    assert samples.sets.sizes.tolist() == [60] * len(samples.sets)
    np.testing.assert_array_equal(
        counted(samples, labels, n_classes), samples.prevalence
    )


def test_two_classes_follow_the_grid():
    labels = np.array([0, 1] * 20, np.int32)
    samples = draw_samples(labels, 2, "validation", 0, 0, size=500, repeats=3)
    assert len(samples.sets) == 63
    expected = np.repeat(np.linspace(0, 1, 21), 3)
    np.testing.assert_allclose(samples.prevalence[:, 1], expected, atol=1e-12)


def test_same_key_same_samples_and_another_key_others():
    labels = np.random.default_rng(0).integers(0, 2, 100).astype(np.int32)

    def members(*key):
        return draw_samples(labels, 2, *key, size=20, repeats=2).sets.members

    again = members("test", 0, 0)
    np.testing.assert_array_equal(again, members("test", 0, 0))
    for key in (("validation", 0, 0), ("test", 1, 0), ("test", 0, 1)):
        assert not np.array_equal(again, members(*key))


def test_kraemer_is_uniform_on_the_simplex():
    points = kraemer(20_000, 3, np.random.default_rng(0))
    np.testing.assert_allclose(points.sum(axis=1), 1)
    # A coordinate of a uniform point of the triangle: mean 1/3, variance 1/18.
    np.testing.assert_allclose(points.mean(axis=0), 1 / 3, atol=0.01)
    np.testing.assert_allclose(points.var(axis=0), 1 / 18, atol=0.003)
