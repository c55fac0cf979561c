"""Sums over blocks of rows, the minimiser that they drive, and searches of C."""

import numpy as np

from xnq_dist.readout import regularisation
from xnq_dist.readout.logistic import LinearModel
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.regularisation import climb, cross_fit, search_from_middle


def test_climb_goes_on_over_one_rise_and_stops_after_two():
    def run(losses):
        asked = []

        def loss(place):
            asked.append(place)
            return losses[place]

        return climb(loss, len(losses)), len(asked)

    assert run([5, 4, 4.5, 3, 3.5, 3.6, 0]) == (3, 6)
    assert run([1]) == (0, 1)
    assert run([3, 2, 1]) == (2, 3)


def test_fits_of_a_search_start_from_the_nearest_fit(monkeypatch):
    losses, seen = [9.0, 8.0, 7.0, 5.0, 6.0], []
    labels, folds = np.ones(2, np.int32), np.arange(2, dtype=np.int32)
    rows = Rows(np.zeros((2, 1)), labels, folds, 2)

    def fit_jobs(jobs, threads):
        seen.append([(job.hidden, job.C, job.start) for job in jobs])
        # A row of the second class has about this loss.
        shifts = [np.array([losses[job.C], 0.0]) for job in jobs]
        return [
            LinearModel(np.zeros((2, 1)), shift, job.C)
            for shift, job in zip(shifts, jobs, strict=True)
        ]

    monkeypatch.setattr(regularisation, "fit_jobs", fit_jobs)
    models, _ = cross_fit([rows] * 2, range(5), search_from_middle)
    assert [model.strength for model in models] == [3, 3]
    assert [step[0][1] for step in seen] == [2, 1, 3, 4]
    assert seen[0] == [((0,), 2, None), ((1,), 2, None)]
    assert [step[1][2].strength for step in seen[1:]] == [2, 2, 3]
