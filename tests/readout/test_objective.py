"""Sums over blocks of rows, the minimiser that they drive, and searches of C."""

import numpy as np
import pytest
from scipy.special import log_softmax

from xnq_dist.readout.lbfgs import minimise
from xnq_dist.readout.logistic import LogisticFit
from xnq_dist.readout.objective import (
    row_sums,
)
from xnq_dist.readout.regularisation import climb, cross_fit, search_from_middle


def plain_sums(x, labels, weights, coef, intercept):
    """Loss and gradient of one regression."""
    logits = x.astype(np.float64) @ coef.T + intercept
    if len(coef) == 1:
        logits = np.column_stack([np.zeros(len(x)), logits])
    logs = log_softmax(logits, axis=1)
    excess = np.exp(logs)
    excess[np.arange(len(x)), labels] -= 1
    excess = (excess * weights[:, None])[:, -len(coef) :]
    loss = -weights @ logs[np.arange(len(x)), labels]
    return np.concatenate([[loss], (excess.T @ x).ravel(), excess.sum(axis=0)])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("outputs", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("n", "width", "problems"),
    [(1, 1, 1), (127, 5, 4), (300, 40, 5), (600, 300, 9), (0, 4, 2)],
)
def test_compiled_sums_equal_the_plain_ones(kind, n, width, outputs, problems):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, width)).astype(kind)
    labels = rng.integers(0, max(2, outputs), n).astype(np.int32)
    weights = rng.random((problems, n)) * rng.integers(0, 2, (problems, n))
    coef = rng.normal(size=(problems, outputs, width))
    intercept = 10 * rng.normal(size=(problems, outputs))
    labels.flags.writeable = x.flags.writeable = False
    sums = row_sums(x, labels, weights, coef, intercept)
    for number, of_problem in enumerate(sums):
        point = weights[number], coef[number], intercept[number]
        plain = plain_sums(x, labels, *point)
        np.testing.assert_allclose(of_problem, plain, rtol=1e-9, atol=1e-9)
        one = slice(number, number + 1)
        alone = row_sums(x, labels, weights[one], coef[one], intercept[one])
        assert (alone[0] == of_problem).all()


def drive(search, evaluate):
    """The result of a search, and its number of evaluations."""
    point, asked = next(search), 0
    while True:
        asked += 1
        try:
            point = search.send(evaluate(point))
        except StopIteration as ended:
            return ended.value, asked


def test_minimum_of_a_steep_valley_is_reached():
    scales = np.array([1.0, 1e4, 1e-2])
    target = np.array([1.0, -2.0, 3.0])

    def evaluate(point):
        gap = point - target
        return float(scales @ gap**2) / 2 + 1, scales * gap

    found, asked = drive(minimise(np.zeros(3), 1e-16), evaluate)
    assert found.gain <= 1e-16
    assert found.rounds == asked < 60
    np.testing.assert_allclose(found.point, target, atol=1e-6)
    stopped, asked = drive(minimise(np.zeros(3), 1e-16, 5), evaluate)
    assert stopped.gain > 1e-16
    assert stopped.rounds == asked >= 5


def test_climb_goes_on_over_one_rise_and_stops_after_two():
    def run(losses):
        return drive(climb(len(losses)), lambda place: losses[place])

    assert run([5, 4, 4.5, 3, 3.5, 3.6, 0]) == (3, 6)
    assert run([1]) == (0, 1)
    assert run([3, 2, 1]) == (2, 3)


def test_blocks_are_searched_together_and_start_from_the_nearest_fit():
    losses = {0: [9, 8, 7, 5, 6], 1: [3, 1, 0, 2, 4]}
    seen = []

    def fit_all(jobs):
        seen.append([(job.block, job.hidden, job.C, job.start) for job in jobs])
        return [
            LogisticFit((job.block, job.C), losses[job.block][int(job.C)])
            for job in jobs
        ]

    grids = [range(5), range(5)]
    first, second = cross_fit(grids, 2, search_from_middle, fit_all)
    assert (first.place, second.place) == (3, 2)
    assert first.losses == {2: 14, 1: 16, 3: 10, 4: 12}
    assert [fit.model for fit in first.fits] == [(0, 3), (0, 3)]
    assert [len(step) for step in seen] == [4, 4, 4, 2]
    assert seen[0][0] == (0, (0,), 2, None)
    assert seen[1][1] == (0, (1,), 1, (0, 2))
    assert seen[2][1] == (0, (1,), 3, (0, 2))
    assert cross_fit(grids, 0, climb, fit_all)[0].fits == ()
