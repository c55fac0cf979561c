"""Test folds and samples: those of the paper, and of the recorded prevalences."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.protocol import draw_samples, kraemer, make_folds


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


ROLES = ("train", "calibration", "validation", "test")


def labels_of(*counts: int, unlabelled: int = 0) -> np.ndarray:
    codes = np.repeat(np.arange(len(counts)), counts)
    codes = np.concatenate([codes, np.full(unlabelled, -1)]).astype(np.int32)
    return np.random.default_rng(3).permutation(codes)


def test_every_labelled_node_is_tested_once_and_has_a_role_in_every_fold():
    labels = labels_of(300, 100, 50, unlabelled=40)
    roles = make_folds(labels)
    assert roles.shape == (5, 490)
    assert roles.dtype == np.int8
    known = labels >= 0
    assert (roles[:, ~known] == -1).all()
    assert (roles[:, known] >= 0).all()
    assert ((roles == 3).sum(axis=0)[known] == 1).all()


def test_roles_have_the_papers_shares_in_every_class():
    labels = labels_of(600, 200)
    for fold in make_folds(labels):
        counts = np.array([np.bincount(labels[fold == code]) for code in range(4)])
        assert counts.sum(axis=1).tolist() == [400, 80, 160, 160]
        assert (counts[:, 1] == counts.sum(axis=1) // 4).all()


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (labels_of(100, 4), "class 1 has 4 labelled nodes"),
        (labels_of(5, 5, 5), "too few for folds of 3 classes"),
    ],
    ids=["rare class", "tiny"],
)
def test_labels_that_cannot_be_divided_are_refused(labels, reason):
    with pytest.raises(InputError, match=reason):
        make_folds(labels)


def stored(path) -> np.ndarray:
    table = pq.read_table(path)
    nodes, folds = table["node_id"].to_numpy(), table["fold"].to_numpy()
    roles = np.full((folds.max() + 1, nodes.max() + 1), -1, np.int8)
    roles[folds, nodes] = [ROLES.index(role) for role in table["role"].to_pylist()]
    return roles


@pytest.mark.data
@pytest.mark.parametrize(
    ("graph", "splits", "positive"),
    [
        ("cora", "splits.parquet", 2),
        ("cora", "splits_multiclass.parquet", None),
        ("tolokers", "splits.parquet", None),
        ("twitch-de", "splits.parquet", None),
    ],
    ids=["cora-2", "cora-multi", "tolokers", "twitch-de"],
)
def test_the_published_folds_come_out_bit_for_bit(data_folder, graph, splits, positive):
    nodes = pq.read_table(data_folder / graph / "nodes.parquet", columns=["label"])
    labels = nodes["label"].to_numpy().astype(np.int32)
    if positive is not None:
        labels = (labels == positive).astype(np.int32)
    assert np.array_equal(make_folds(labels), stored(data_folder / graph / splits))
