"""Designs of labels: labelled nodes and their number."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from xnq_dist.evaluation.designs import DESIGNS, LabelPool, draw_labels
from xnq_dist.evaluation.regions import by_kind, draw_attributes
from xnq_dist.quantify.interface import Communities

N = 1200
SHARES = (0.05, 0.2)


def pool(classes=2, unknown=60, seed=0):
    """Blocks of 60 nodes with edges inside or to the next block."""
    rng = np.random.default_rng(seed)
    own = np.arange(N) // 60
    near = np.abs(own[:, None] - own) <= 1
    # Hubs: some nodes have many more neighbours than others.
    rate = np.where(rng.random(N) < 0.2, 0.5, 0.05)
    upper = np.triu((rng.random((N, N)) < rate[:, None] * near), 1)
    truth = (rng.random(N) < 0.25).astype(np.int32) if classes == 2 else None
    if truth is None:
        truth = rng.integers(0, classes, N).astype(np.int32)
    truth[rng.permutation(N)[:unknown]] = -1
    matrix = csr_array((upper | upper.T).astype(np.float32))
    return LabelPool(truth, classes, own, matrix)


@pytest.fixture(scope="module")
def nodes():
    return pool()


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("share", SHARES)
def test_share_of_the_labels_is_kept(nodes, name, share):
    shown = draw_labels(name, nodes, share, 1)
    labelled = shown >= 0
    assert not labelled[nodes.truth < 0].any()
    np.testing.assert_array_equal(shown[labelled], nodes.truth[labelled])
    assert abs(labelled.sum() - share * nodes.known.sum()) <= 4
    assert (np.bincount(shown[labelled], minlength=2) >= 2).all()
    again = draw_labels(name, nodes, share, 1)
    np.testing.assert_array_equal(again, shown)
    other = draw_labels(name, nodes, share, 2)
    assert not np.array_equal(other, shown)


@pytest.mark.parametrize("name", sorted(set(DESIGNS) - {"random"}))
def test_large_share_leaves_unlabelled_nodes_that_the_design_may_label(nodes, name):
    labelled = draw_labels(name, nodes, 0.6, 0) >= 0
    assert 0.1 * N < labelled.sum() < 0.6 * nodes.known.sum()
    for code in (0, 1):
        assert np.count_nonzero((nodes.truth == code) & ~labelled) > 50
    if name == "half":
        inside = np.isin(nodes.group, np.unique(nodes.group[labelled]))
        assert labelled[inside & nodes.known].mean() == pytest.approx(0.6, abs=0.01)


def test_designs_label_what_their_names_say(nodes):
    def labels(name, share=0.2):
        return draw_labels(name, nodes, share, 0)

    half = [set(nodes.group[labels("half", share) >= 0]) for share in (0.2, 0.3)]
    assert half[0] == half[1]
    assert len(half[0]) == 10
    no, yes = np.bincount(labels("balanced")[labels("balanced") >= 0])
    assert abs(int(no) - int(yes)) <= 1
    shown = labels("positives") >= 0
    rates = [shown[nodes.truth == code].mean() for code in (0, 1)]
    assert rates[1] / rates[0] == pytest.approx(5, rel=0.05)
    degree = np.diff(nodes.adjacency.indptr)
    shown = labels("high_degree", 0.15) >= 0
    # They already include two of each class.
    assert degree[shown].min() >= np.quantile(degree, 2 / 3)
    by_class = {name for name in DESIGNS if DESIGNS[name].drawn == "by_class"}
    assert by_class == {"balanced", "positives"}


def test_region_is_one_connected_third(nodes):
    shown = np.flatnonzero(draw_labels("region", nodes, 0.2, 0) >= 0)
    blocks = np.unique(nodes.group[shown])
    assert len(blocks) <= 9
    assert (np.diff(blocks) == 1).all()
    inside = np.isin(nodes.group, blocks)
    parts, _ = connected_components(nodes.adjacency[inside][:, inside])
    assert parts == 1


def test_region_goes_on_in_another_component():
    lonely = pool()
    apart = LabelPool(lonely.truth, 2, lonely.group, csr_array((N, N)))
    shown = draw_labels("region", apart, 0.2, 0) >= 0
    assert abs(shown.sum() - 0.2 * lonely.known.sum()) <= 4


def test_every_class_gets_two_labels_where_the_design_has_none():
    many = pool(classes=5)
    rare = many.truth.copy()
    rare[rare == 4] = 3
    rare[[5, 600, 1100]] = 4
    nodes = LabelPool(rare, 5, many.group, many.adjacency)
    for name in DESIGNS:
        labels = draw_labels(name, nodes, 0.05, 0)
        assert (np.bincount(labels[labels >= 0], minlength=5) >= 2).all(), name


def test_groups_by_attribute_are_deciles_of_numbers_and_holders_of_flags():
    rng = np.random.default_rng(0)
    number, flag = rng.normal(size=500), (rng.random(500) < 0.1).astype(float)
    sets = draw_attributes(number[:, None], 0)
    assert np.diff(sets.offsets).tolist() == [50] * 10
    for part in np.split(sets.members, sets.offsets[1:-1]):
        low, high = number[part].min(), number[part].max()
        assert ((number >= low) & (number <= high)).sum() == 50
    of_flag = draw_attributes(flag[:, None], 0)
    np.testing.assert_array_equal(of_flag.members, np.flatnonzero(flag))
    assert len(draw_attributes(np.ones((500, 3)), 0)) == 0
    many = draw_attributes(rng.normal(size=(500, 40)), 0)
    assert len(many) == 100


def test_given_communities_divide_by_the_word_their_names_begin_with():
    def kinds(names):
        found = by_kind(names, [np.array([k]) for k in range(4)])
        return {kind: sets.members.tolist() for kind, sets in found.items()}

    names = ["dorm 1", "year 2005", "dorm 2", "year 2006"]
    assert kinds(names) == {"given dorm": [0, 2], "given year": [1, 3]}
    one = {"given": [0, 1, 2, 3]}
    for free in (["a", "b", "c", "d"], ["red cats", "blue sky", "hot tea", "old pub"]):
        assert kinds(free) == one
    assert kinds(["dorm 1", "dorm 2", "dorm 3", "dorm 4"]) == one


def test_sets_lose_nodes_that_are_left_out():
    sets = Communities.of([np.array([0, 1, 2]), np.array([3]), np.array([1, 4])])
    kept = np.array([True, False, True, False, True])
    found = sets.only(kept)
    assert found.offsets.tolist() == [0, 2, 2, 3]
    assert found.members.tolist() == [0, 2, 4]
