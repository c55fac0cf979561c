"""SLD and counts of all communities in one launch, against the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import small_settings
from tests.quantify.classic.test_sld import PRIORS, shifted_sets
from tests.quantify.samples import (
    draw_posteriors,
    make_communities,
    make_nodes,
    reference_of,
    slow_sld,
)
from xnq_dist.core import backend as backends
from xnq_dist.core.quantifiers import records
from xnq_dist.quantify.classic.counts import Counts
from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.gpu.sets import GpuCounts, GpuSld
from xnq_dist.quantify.interface import Reference
from xnq_dist.quantify.registry import make_quantifier

SIZES = (1, 2, 31, 33, 60, 100, 1025)


@pytest.fixture
def on_device(device, monkeypatch):
    """The quantifiers' device, real or stand-in."""
    monkeypatch.setattr(backends, "gpu", lambda: device)


def both(sets, posteriors, prior, labels=None, tolerance=1e-4, rounds=1000):
    nodes = make_nodes(posteriors, labels)
    batch, reference = make_communities(*sets), reference_of(prior)
    return [
        quantifier.estimate(batch, nodes, reference)
        for quantifier in (GpuSld(tolerance, rounds), Sld(tolerance, rounds))
    ]


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("name", ["rare", "three"])
def test_sld_agrees_with_the_cpu_and_the_definition(name):
    prior = PRIORS[name]
    posteriors, sets = shifted_sets(prior, sizes=SIZES)
    posteriors[sets[3][:5]] = 0
    labels = np.full(len(posteriors), -1)
    labels[sets[5][::3]] = 1
    sets += [np.flatnonzero(labels >= 0)[:4], np.empty(0, int), sets[4][[0, 0, 1]]]
    there, here = both(sets, posteriors, prior, labels)
    np.testing.assert_allclose(there.prevalence, here.prevalence, atol=1e-12)
    np.testing.assert_array_equal(there.iterations, here.iterations)
    np.testing.assert_array_equal(there.converged, here.converged)
    assert np.isnan(there.prevalence[-3:-1]).all()
    largest = sets[len(SIZES) - 1]
    members = largest[(labels[largest] < 0) & (posteriors[largest].sum(axis=1) > 0)]
    q, steps, _ = slow_sld(posteriors[members], np.array(prior))
    np.testing.assert_allclose(there.prevalence[len(SIZES) - 1], q, atol=1e-12)
    assert there.iterations[len(SIZES) - 1] == steps


@pytest.mark.usefixtures("on_device")
def test_saturated_and_unfinished_sld_agree():
    posteriors = np.concatenate([np.tile([[0.0, 1.0]], (900, 1)), [[1.0, 0.0]] * 300])
    sets = [np.arange(900), np.arange(1200), [1100]]
    there, here = both(sets, posteriors, [0.7, 0.3])
    np.testing.assert_allclose(there.prevalence, here.prevalence, atol=1e-12)
    there, here = both(sets, posteriors * 0.8 + 0.1, [0.7, 0.3], None, 1e-12, 14)
    np.testing.assert_allclose(there.prevalence, here.prevalence, atol=1e-12)
    assert there.iterations.tolist() == here.iterations.tolist()
    assert there.converged.tolist() == here.converged.tolist()


@pytest.mark.usefixtures("on_device")
def test_a_communitys_bits_are_independent_of_its_batch():
    posteriors, sets = shifted_sets([0.2, 0.5, 0.3], sizes=(5, 60, 1300, 40))
    nodes, reference = make_nodes(posteriors), reference_of([0.2, 0.5, 0.3])
    together = GpuSld().estimate(make_communities(*sets), nodes, reference)
    for s, members in enumerate(sets):
        batch = make_communities(members, sets[0])
        alone = GpuSld().estimate(batch, nodes, reference)
        np.testing.assert_array_equal(alone.prevalence[0], together.prevalence[s])
    none = GpuSld().estimate(make_communities(), nodes, reference)
    assert none.prevalence.shape == (0, 3)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("name", ["cc", "pcc", "acc", "pacc"])
def test_counts_agree_with_the_cpus(name):
    posteriors, classes = draw_posteriors(3000, np.array([0.2, 0.5, 0.3]), 1.2, 4)
    labels = np.where(np.arange(3000) % 5 == 0, classes, -1)
    posteriors[7] = 0
    nodes = make_nodes(posteriors, labels)
    known = labels >= 0
    reference = Reference(
        np.array([0.2, 0.5, 0.3]), posteriors[known], labels[known].astype(np.int32)
    )
    sets = [np.arange(3000), [1, 2, 3], [0, 5], [], [7], np.arange(100, 180)]
    batch = make_communities(*sets)
    there = GpuCounts(name).estimate(batch, nodes, reference)
    here = Counts(name).estimate(batch, nodes, reference)
    np.testing.assert_allclose(there.prevalence, here.prevalence, atol=1e-9)
    empty = GpuCounts(name).estimate(make_communities(), nodes, reference)
    assert empty.prevalence.shape == (0, 3)


@pytest.mark.parametrize("name", [name for name in records() if name != "auto"])
def test_sld_and_counts_run_on_the_device_and_others_on_the_cpu(name):
    for backend in ("gpu", "cpu"):
        settings = small_settings(f"backend={backend}", f"quantifier={name}")
        module = type(make_quantifier(name, settings)).__module__
        there = backend == "gpu" and name in ("sld", "cc", "pcc", "acc", "pacc")
        assert module.endswith("gpu.sets") == there
