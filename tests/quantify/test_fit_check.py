"""The fit check: p-values where only proportions shift, power where more does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from tests.quantify.samples import (
    draw_posteriors,
    labelled_reference,
    make_communities,
    make_nodes,
)
from xnq_dist.quantify.fit_check import FitCheck, fit_pvalues, flags
from xnq_dist.quantify.interface import Reference

PRIORS = {2: np.array([0.6, 0.4]), 3: np.array([0.2, 0.5, 0.3])}


def draw_sets(classes, sets, size, known, seed, moved=0.0):
    """Sets of random proportions; their logits may have moved along."""
    rng = np.random.default_rng(seed)
    rows, truth = draw_posteriors(40_000, PRIORS[classes], 1.1, seed)
    pools = [np.flatnonzero(truth == k) for k in range(classes)]
    groups = []
    for _ in range(sets):
        counts = rng.multinomial(size, rng.dirichlet(np.ones(classes)))
        groups.append(
            np.concatenate(
                [rng.choice(p, c) for p, c in zip(pools, counts, strict=True)]
            )
        )
    own = rows[np.concatenate(groups)].astype(float)
    if moved:
        own[:, -1] *= np.exp(moved)
        own /= own.sum(axis=1, keepdims=True)
    labelled, labels = draw_posteriors(known, PRIORS[classes], 1.1, seed + 1)
    # The rest of the graph is as the labelled nodes are.
    rest, _ = draw_posteriors(20_000, PRIORS[classes], 1.1, seed + 2)
    nodes = make_nodes(np.concatenate([own.astype(np.float32), rest]))
    batch = make_communities(*np.arange(sets * size).reshape(sets, size))
    reference = labelled_reference(labelled, labels)
    plain = make_nodes(rest)
    return nodes, batch, FitCheck.of(reference, plain)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("size", "known"), [(100, 20_000), (300, 20_000), (300, 600)])
def test_pvalues_are_not_uniform_where_only_proportions_shift(classes, size, known):
    nodes, batch, check = draw_sets(classes, 600, size, known, 3)
    found = fit_pvalues(batch, nodes, check)
    assert not np.isnan(found).any()
    # 600 sets: a binomial error of .009 at .05; with few labels they share one error.
    slack = 0.03 if known > 1000 else 0.08
    assert (found < 0.05).mean() < 0.05 + slack
    assert (found < 0.01).mean() < 0.01 + slack
    if known > 1000:
        assert kstest(found, "uniform").statistic < 0.1


@pytest.mark.parametrize("classes", [2, 3])
def test_shift_of_more_than_proportions_goes_unseen(classes):
    nodes, batch, check = draw_sets(classes, 200, 300, 20_000, 5, moved=1.0)
    found = fit_pvalues(batch, nodes, check)
    assert (found < 0.01).mean() > (0.5 if classes == 2 else 0.3)


def test_few_members_or_labels_get_a_pvalue():
    nodes, batch, check = draw_sets(2, 3, 39, 2000, 6)
    assert np.isnan(fit_pvalues(batch, nodes, check)).all()
    assert np.isnan(fit_pvalues(batch, nodes, None)).all()
    assert FitCheck.of(Reference(PRIORS[2]), nodes) is None
    rows, labels = draw_posteriors(6, PRIORS[2], 1.1, 0)
    labels[:] = [0, 0, 0, 0, 1, 1]
    assert FitCheck.of(labelled_reference(rows, labels), nodes) is None
    # Labels are not members to be checked.
    labelled = make_nodes(nodes.posteriors, np.zeros(len(nodes.labels), int))
    assert np.isnan(fit_pvalues(batch, labelled, check)).all()


def test_drift_of_the_whole_graph_flags_its_parts():
    rows, truth = draw_posteriors(20_000, PRIORS[2], 1.1, 7)
    reference = labelled_reference(rows[:5000], truth[:5000])
    sharper = rows[5000:].astype(float) ** 1.2
    sharper /= sharper.sum(axis=1, keepdims=True)
    nodes = make_nodes(sharper)
    batch = make_communities(*np.arange(15_000).reshape(30, 500))
    check = FitCheck.of(reference, nodes)
    assert (fit_pvalues(batch, nodes, check) < 0.01).mean() < 0.1
    without = FitCheck.of(reference, make_nodes(rows[5000:]))
    assert (fit_pvalues(batch, nodes, without) < 0.01).mean() > 0.5


def test_warning_goes_where_its_assumption_was_not_made():
    pvalues = np.array([0.001, 0.001, 0.5, np.nan])
    labelled = np.array([0, 3, 0, 0])
    nothing = (None,) * 4
    flagged, notes = flags("sld", pvalues, 0.01, labelled, nothing)
    assert flagged.tolist() == [True, True, False, False]
    assert notes[0] == (
        "more than class proportions shifted (p = 0.001): the answer can be far off; "
        "label some of its nodes, or set quantifier = auto"
    )
    assert notes[2:] == (None, None)
    flagged, notes = flags("auto", pvalues, 0.01, labelled, nothing)
    assert flagged.tolist() == [True, False, False, False]
    assert notes[0].endswith("label some of its nodes")
    _, notes = flags("by_class", pvalues, 0.01, labelled, nothing)
    assert notes[1].endswith("or set memberships.drawn = unknown")
    flagged, notes = flags("sld", pvalues, 0.01, labelled, ("a sample",) * 4)
    assert notes[1].startswith("a sample; more than class")
    assert not flags("pcc", pvalues, 0.01, labelled, nothing)[0].any()
