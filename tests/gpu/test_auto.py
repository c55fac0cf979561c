"""`auto` of all communities in one launch, against the CPU's kernels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.conftest import small_settings
from tests.quantify.samples import make_communities
from tests.quantify.test_intercept import OPEN, draw_world, learnt_auto
from xnq_dist import backend as backends
from xnq_dist.inputs import ON_GPU
from xnq_dist.quantify.auto import Auto, _hypotheses
from xnq_dist.quantify.gpu_auto import (
    MOST_SLOPES,
    GpuIntercepts,
    intercept_defines,
    intercept_source,
)
from xnq_dist.quantify.gpu_sets import GpuSld
from xnq_dist.quantify.hypotheses import HYPOTHESES, prior_weights
from xnq_dist.quantify.intercepts import HostIntercepts, Logits

ALL = tuple(range(len(HYPOTHESES)))


@pytest.fixture(autouse=True)
def on_device(device, monkeypatch):
    """The kernels' device, real or played."""
    monkeypatch.setattr(backends, "gpu", device)


def drawn(sizes, labelled, seed=0):
    """Logits of communities, some members labelled, some to be passed over."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    logits = rng.normal(-0.5, 2.5, offsets[-1])
    codes = np.full(len(logits), -1, np.int8)
    for first, last, share in zip(offsets[:-1], offsets[1:], labelled, strict=True):
        known = first + np.flatnonzero(rng.random(last - first) < share)
        codes[known] = rng.random(len(known)) < 1 / (1 + np.exp(-logits[known] - 0.7))
    codes[rng.random(len(codes)) < 0.05] = -2
    return Logits(offsets, logits, codes, 0.3)


SIZES = [1, 2, 40, 0, 130, 700, 60, 3]
LABELLED = [0, 0.5, 0.2, 0, 0, 0.8, 1.0, 0]
"""With a likelihood too narrow for the grid, none at all, no unlabelled member."""


def test_evidence_differs_from_the_cpus():
    logits = drawn(SIZES, LABELLED)
    chosen = np.array([5, 0, 2, 3, 6])
    here, there = (
        engine.evidence(logits, chosen, OPEN, _hypotheses(ALL))
        for engine in (HostIntercepts(), GpuIntercepts())
    )
    np.testing.assert_allclose(there, here, rtol=1e-11, atol=1e-11)
    some = _hypotheses((0, 13, 47))
    one = GpuIntercepts().evidence(logits, chosen, OPEN, some)
    np.testing.assert_array_equal(one, there[:, [0, 13, 47]])
    assert GpuIntercepts().evidence(logits, chosen[:0], OPEN, some).shape == (0, 3)


@pytest.mark.parametrize("kept", [ALL, (13,)])
def test_median_or_interval_differs_from_the_cpus(kept):
    logits = drawn(SIZES, LABELLED, 1)
    weights = prior_weights()[list(kept)]
    rest = OPEN, _hypotheses(kept), weights / weights.sum(), 0.025
    here = HostIntercepts().answers(logits, *rest)
    there = GpuIntercepts().answers(logits, *rest)
    assert np.isnan(here).any(axis=1).tolist() == [
        n == 0 for n in (1, 1, 1, 0, 1, 1, 0, 1)
    ]
    # Steps of the median, and ends that are counts, are the same ones.
    np.testing.assert_array_equal(there[:, :3], here[:, :3])
    np.testing.assert_allclose(there[:, 3], here[:, 3], rtol=1e-11, atol=1e-12)


def test_a_communitys_bits_depend_on_its_batch_or_the_run():
    logits = drawn([40, 200, 7], [0.2, 0.6, 0], 2)
    rest = OPEN, _hypotheses((3, 20, 41)), np.array([0.2, 0.5, 0.3]), 0.05
    together = GpuIntercepts().answers(logits, *rest)
    np.testing.assert_array_equal(GpuIntercepts().answers(logits, *rest), together)
    for s in range(3):
        part = slice(logits.offsets[s], logits.offsets[s + 1])
        own = np.array([0, part.stop - part.start])
        alone = Logits(own, logits.values[part], logits.codes[part], 0.3)
        found = GpuIntercepts().answers(alone, *rest)
        np.testing.assert_array_equal(found[0], together[s])
    none = Logits(np.zeros(1, np.int64), np.empty(0), np.empty(0, np.int8), 0.3)
    assert GpuIntercepts().answers(none, *rest).shape == (0, 4)


def test_exponentials_or_logarithms_are_wrong(device):
    backend = device()
    source = intercept_source() + (
        'extern "C" __global__ void told('
        "const double* x, int count, double* answers) {\n"
        "  for (int i = 0; i < count; ++i) {\n"
        "    answers[i] = exponential(x[i]);\n"
        "    answers[count + i] = logarithm(exponential(x[i]));\n"
        "    answers[2 * count + i] = log_of_more(exponential(-fabs(x[i])));\n  }\n}\n"
    )
    x = np.concatenate([np.linspace(-705, 705, 1500), np.linspace(-2, 2, 1501)])
    found = backend.empty((3, len(x)), np.float64)
    run = backend.kernel(source, "told", intercept_defines())
    run((1,), (1,), (backend.to_device(x), np.int32(len(x)), found))
    there = backend.to_host(found)
    # An exponential's relative error is its argument's absolute one.
    np.testing.assert_allclose(there[0], np.exp(x), rtol=3e-16 * 4)
    np.testing.assert_allclose(there[1], x, rtol=1e-15, atol=5e-16)
    np.testing.assert_allclose(there[2], np.log1p(np.exp(-np.abs(x))), rtol=2e-15)
    assert len(_hypotheses(ALL).slopes) == MOST_SLOPES


@pytest.mark.parametrize("classes", [2, 3])
def test_auto_on_a_gpu_answers_otherwise(classes):
    nodes, batch, reference, _ = draw_world(1.5, 4, sets=12, classes=classes)
    few = make_communities(*(batch.members[a:b][:50] for a, b in pairs(batch)))
    here = learnt_auto(nodes, few, reference)
    settings = small_settings("quantifier=auto", "backend=gpu")
    there = Auto.of(settings)
    assert isinstance(there.sld, GpuSld)
    once = np.ones(len(nodes.labels), np.int32)
    learnt = there.summarise(few, nodes, reference, once, 1, 0)
    due = here.summarise(few, nodes, reference, once, 1, 0)
    np.testing.assert_allclose(learnt.evidence, due.evidence, rtol=1e-11)
    there = dataclasses.replace(there, learnt=here.learnt)
    found = there.estimate(few, nodes, reference, "count")
    expected = here.estimate(few, nodes, reference, "count")
    for name in ("prevalence", "lower", "upper"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, atol=1e-9)
    assert found.notes == expected.notes
    assert isinstance(Auto.of(small_settings("backend=cpu")).intercepts, HostIntercepts)
    # Another answer in the last bit is another stage.
    assert "auto" in ON_GPU


def pairs(batch):
    """First and last membership of each community."""
    return zip(batch.offsets[:-1], batch.offsets[1:], strict=True)
