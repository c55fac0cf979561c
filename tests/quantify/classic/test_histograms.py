"""HDy, DyS and DMy against QuaPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantify.classic.test_simplex import topsoe
from tests.quantify.samples import (
    draw_posteriors,
    field_library,
    labelled_reference,
    make_communities,
    make_nodes,
    their_quantifier,
)
from xnq_dist.quantify.classic import histograms
from xnq_dist.quantify.classic.histograms import Histograms, bin_places

BINARY = [0.7, 0.3]
FOUR = [0.1, 0.4, 0.3, 0.2]


def sample(prior, seed=0, sizes=(1, 5, 60, 500)):
    """Nodes, a reference of other nodes, and sets with members named twice."""
    posteriors, classes = draw_posteriors(2500, np.array(prior), 1.1, seed)
    reference = labelled_reference(posteriors[:600], classes[:600])
    rng = np.random.default_rng(seed)
    rest = classes[600:]
    sets = []
    for size in sizes:
        weights = rng.dirichlet(np.ones(len(prior)))[rest]
        sets.append(rng.choice(1900, size, p=weights / weights.sum()))
    return posteriors[600:], reference, sets


def answers(name, posteriors, reference, sets):
    quantifier = Histograms(name)
    batch, nodes = make_communities(*sets), make_nodes(posteriors)
    return quantifier.estimate(batch, nodes, reference).prevalence


def histogram(values, bins):
    counts = np.histogram(np.asarray(values, np.float64), bins, (0, 1))[0]
    return counts / counts.sum()


def own_histograms(reference, bins, column=1):
    held, labels = reference.posteriors, reference.labels
    return [histogram(held[labels == y, column], bins) for y in range(labels.max() + 1)]


def slow_mean_distance(p, values, reference, bins=8):
    channels = range(values.shape[1]) if values.shape[1] > 2 else [0]
    return np.mean(
        [
            topsoe(
                p @ own_histograms(reference, bins, c), histogram(values[:, c], bins)
            )
            for c in channels
        ]
    )


@pytest.mark.parametrize("bins", [2, 7, 8, 110])
def test_bins_are_those_of_numpy_on_their_edges(bins):
    edges = np.linspace(0, 1, bins + 1)
    values = np.concatenate(
        [edges, np.nextafter(edges, 0).clip(0), np.nextafter(edges, 1).clip(0, 1)]
    )
    counts = np.bincount(bin_places([values], [bins])[:, 0], minlength=bins)
    np.testing.assert_array_equal(counts, np.histogram(values, bins, (0, 1))[0])
    outside = bin_places([np.array([-1e-7, 1 + 1e-7])], [bins])[:, 0]
    np.testing.assert_array_equal(outside, [0, bins - 1])


@pytest.mark.oracle
def test_binary_estimates_are_those_of_quapy(monkeypatch):
    theirs = field_library()
    functional = pytest.importorskip("quapy.functional")
    posteriors, reference, sets = sample(BINARY, 2, sizes=(4, 40, 200, 500))
    held = (reference.posteriors, reference.labels)
    hdy = their_quantifier(theirs.HDy, *held)
    dys = their_quantifier(theirs.DyS, *held, n_bins=8, divergence="topsoe")
    found = {n: answers(n, posteriors, reference, sets) for n in ("hdy", "dys")}
    for s, members in enumerate(sets):
        rows = posteriors[members].astype(np.float64)
        # QuaPy's grid has 100 points, 1 / 99 apart: estimates differ by half a step.
        np.testing.assert_allclose(hdy.aggregate(rows), found["hdy"][s], atol=0.011)
        np.testing.assert_allclose(dys.aggregate(rows), found["dys"][s], atol=1e-9)

    def on_our_grid(grid_points, **_):
        return np.linspace(0, 1, 101)

    monkeypatch.setattr(functional, "prevalence_linspace", on_our_grid)
    for s, members in enumerate(sets):
        rows = posteriors[members].astype(np.float64)
        np.testing.assert_allclose(hdy.aggregate(rows), found["hdy"][s], atol=1e-9)


@pytest.mark.oracle
@pytest.mark.parametrize("prior", [BINARY, FOUR], ids=len)
def test_dmy_is_as_good_as_quapy(prior):
    made = field_library().DMy
    posteriors, reference, sets = sample(prior, 3, sizes=(30, 100, 500, 500))
    theirs = their_quantifier(
        made, reference.posteriors, reference.labels, nbins=8, divergence="topsoe"
    )
    found = answers("dmy", posteriors, reference, sets)
    for ours, members in zip(found, sets, strict=True):
        rows = posteriors[members].astype(np.float64)
        other = theirs.aggregate(rows)
        cost = slow_mean_distance(ours, rows, reference)
        # SLSQP stops when the distance changes by less than 1e-6: the distance says
        # who is right, and prevalences agree as far as it tells them apart.
        assert cost <= slow_mean_distance(other, rows, reference) + 1e-10
        np.testing.assert_allclose(ours, other, atol=5e-3)


def test_blocks_of_communities_stay_apart(monkeypatch):
    posteriors, reference, sets = sample(BINARY, 4, sizes=range(1, 30))
    whole = {n: answers(n, posteriors, reference, sets) for n in ("hdy", "dys", "dmy")}
    monkeypatch.setattr(histograms, "BLOCK", 7)
    for name, expected in whole.items():
        found = answers(name, posteriors, reference, sets)
        np.testing.assert_array_equal(found, expected)
