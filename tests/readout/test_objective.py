"""Sums over blocks of rows, the minimiser that they drive, and searches of C."""

from xnq_dist.readout.logistic import LogisticFit
from xnq_dist.readout.regularisation import climb, cross_fit, search_from_middle


def drive(search, evaluate):
    """The result of a search, and its number of evaluations."""
    point, asked = next(search), 0
    while True:
        asked += 1
        try:
            point = search.send(evaluate(point))
        except StopIteration as ended:
            return ended.value, asked


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
