"""Standard errors and p-values of labels that agree with their posteriors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.quantify.default.test_auto import reference_from
from tests.quantify.samples import draw_posteriors, make_communities, make_nodes
from xnq_dist.quantify.checks.evidence import gather_evidence
from xnq_dist.quantify.checks.fit_check import fit_pvalues, standard_errors
from xnq_dist.quantify.default.estimator_fit import Learnt

SETS = 3000


def labelled_sets(n_classes, size, known, seed, spread=0.0, moved=0.0):
    """Sets whose own logit shift has a spread; `known` members of each have labels.

    Labels are drawn from the posteriors after the shift, so the model holds exactly.
    """
    rng = np.random.default_rng(seed)
    prior = np.arange(n_classes, 0, -1) / np.arange(1, n_classes + 1).sum()
    rows, _ = draw_posteriors(SETS * size, prior, 1.0, seed)
    shift = np.repeat(spread * rng.standard_normal(SETS) + moved, size)
    true = rows.astype(np.float64)
    true[:, -1] *= np.exp(shift)
    true /= true.sum(axis=1, keepdims=True)
    classes = (rng.random(len(true))[:, None] > true.cumsum(axis=1)).sum(axis=1)
    labels = np.where(np.arange(len(true)) % size < known, classes, -1)
    nodes = make_nodes(rows, labels)
    batch = make_communities(*np.arange(SETS * size).reshape(SETS, size))
    groups = np.repeat(np.arange(SETS), size).astype(np.int32)
    learnt = Learnt.of(nodes, reference_from(nodes), groups)
    width = learnt.variances.shape
    learnt = dataclasses.replace(
        learnt,
        variances=np.full(width, spread**2),
        labelled=np.zeros(width),
        shared=np.zeros(width[1]),
    )
    return nodes, batch, learnt


def pvalues(*args, **options):
    nodes, batch, learnt = labelled_sets(*args, **options)
    return fit_pvalues(gather_evidence(batch, nodes, reference_from(nodes), learnt))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("known", [1, 4, 30])
@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_pvalues_are_uniform_or_larger_where_labels_follow_posteriors(
    n_classes, known, spread
):
    found = pvalues(n_classes, 40, known, 3, spread=spread)
    for level in (0.1, 0.05, 0.01):
        # 3,000 sets: three standard errors of the share.
        assert (found <= level).mean() <= level + 3 * np.sqrt(level / SETS)
    if known == 30 and (n_classes == 2 or not spread):
        assert (found <= 0.1).mean() > (0.06 if n_classes == 2 else 0.03)


def test_labels_that_disagree_with_posteriors_have_small_pvalues():
    found = pvalues(2, 40, 30, 4, moved=1.5)
    assert (found < 0.01).mean() > 0.5
    usual = pvalues(2, 40, 30, 4, spread=1.5)
    assert (usual < 0.01).mean() < 0.02


def test_pvalues_need_a_label_outside_its_own_posterior():
    nodes, _, learnt = labelled_sets(2, 10, 1, 0)
    first = make_communities(np.arange(1, 9), np.arange(0, 9))
    reference = reference_from(nodes)
    found = fit_pvalues(gather_evidence(first, nodes, reference, learnt))
    assert np.isnan(found).tolist() == [True, False]
    # A posterior that used the label cannot be tested with it.
    seen = dataclasses.replace(nodes, out_of_fold=np.zeros(len(nodes.labels), bool))
    found = fit_pvalues(gather_evidence(first, seen, reference, learnt))
    assert np.isnan(found).all()


def test_pvalues_keep_their_bits_in_every_batch():
    nodes, batch, learnt = labelled_sets(3, 40, 9, 5, spread=0.3)
    reference = reference_from(nodes)
    whole = fit_pvalues(gather_evidence(batch, nodes, reference, learnt))
    some = make_communities(*np.arange(4000, 4400).reshape(10, 40))
    part = fit_pvalues(gather_evidence(some, nodes, reference, learnt))
    np.testing.assert_array_equal(part, whole[100:110])


def test_an_interval_implies_a_standard_error():
    lower, upper = np.array([[0.1, 0.2]]), np.array([[0.5, 0.6]])
    implied = standard_errors(None, lower, upper, 0.95)
    assert implied == pytest.approx(np.full((1, 2), 0.4 / 3.919928), rel=1e-5)
    given = np.array([[0.05, np.nan]])
    both = standard_errors(given, lower, upper, 0.95)
    assert both.tolist() == [[0.05, implied[0, 1]]]
