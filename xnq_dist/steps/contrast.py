"""The difference of two communities' prevalence, with its interval.

The errors of two estimates by `auto` are not independent: both communities may be in
the same groups of the graph, and all share the calibration. The variance of a
difference is that of both estimates without twice their covariance (see `auto`). Where
labels may have been chosen by class the difference has an interval in each of the two
scenarios, and the reported interval contains both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import erfc

from xnq_dist.quantify.checks.quality import z_value
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.node_sums import node_sums
from xnq_dist.quantify.default.scenarios import Tilt
from xnq_dist.quantify.interface import Communities, combine
from xnq_dist.steps.finished import Finished

__all__ = ["contrast"]


def contrast(location: str, first: Any, second: Any) -> pa.Table:
    """Compare two communities of a finished run, class by class.

    Parameters
    ----------
    location
        The run directory; its memberships table must be unchanged.
    first, second
        Names of the communities, as text or as in the tables.

    Returns
    -------
    One row for each class: ``class_name``, the shares ``first`` and ``second``, their
    ``difference`` with ``se``, the interval ``lower`` and ``upper``, and ``pvalue`` of
    no difference.

    Raises
    ------
    SettingsError
        When a community is not in the run or has no estimate, or the run was not made
        with `auto`.
    InputError
        When the memberships changed since the run.
    StageError
        When the run is not complete.

    Notes
    -----
    Nodes that both communities share are treated as different nodes: the interval is
    then too wide, never too narrow.
    """
    run = Finished(location)
    nodes, learnt, level = run.nodes, run.learnt, run.settings.intervals.level
    places = [run.place(name) for name in (first, second)]
    sets = run.members(np.array(places))
    # The third is both together: covariances follow from its variance.
    batch = Communities.of([*sets, np.concatenate(sets)])
    auto, plain = Auto(level, learnt, run.parts), Tilt.none(len(nodes.classes))
    tilt, z = learnt.tilt or plain, z_value(level)
    ends, pvalues = [], []
    for each in (tilt,) if tilt.alone else (plain, tilt):
        scenario = auto.in_scenario(each, batch, nodes)
        made = combine(batch, nodes, scenario, run.settings.labelled)
        free = batch.only(nodes.unlabelled)
        sums = node_sums(free, nodes, learnt, each)
        shift = (sums.variance - sums.weight) * each.inflation**2
        about = run.view.about[places]
        twice = (shift[2] - shift[0] - shift[1]) / (about[0] * about[1])
        sd = np.sqrt(np.maximum((made.sd[:2] ** 2).sum(axis=0) - twice, 0.0))
        apart = made.prevalence[0] - made.prevalence[1]
        ends += [apart - z * sd, apart + z * sd]
        with np.errstate(divide="ignore", invalid="ignore"):
            pvalue = erfc(np.abs(apart) / (np.sqrt(2) * sd))
        # NaN: both are known exactly, and equal.
        pvalues.append(np.nan_to_num(pvalue, nan=1.0))
    shares = run.view.prevalence[places]
    lower, upper = np.min(ends, axis=0), np.max(ends, axis=0)
    return pa.table(
        {
            "class_name": nodes.classes,
            "first": shares[0],
            "second": shares[1],
            "difference": shares[0] - shares[1],
            "se": (upper - lower) / (2 * z),
            "lower": np.maximum(lower, -1.0),
            "upper": np.minimum(upper, 1.0),
            "pvalue": np.max(pvalues, axis=0),
        }
    )
