"""Anomalies of a run's communities: the table of all of them, ranked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies, Observations, find_anomalies
from xnq_dist.report.view import PrevalenceView

__all__ = [
    "SHOWN",
    "anomaly_rows",
    "compare",
    "largest",
    "ordered",
    "ranks",
    "seen_in",
]

Floats = NDArray[np.float64]

SHOWN = 15
"""Communities that a section's table names."""


def seen_in(view: PrevalenceView, evidence: pa.Table) -> Observations:
    """What a run's labels and posteriors show of its communities.

    Parameters
    ----------
    view
        The prevalence table, arranged.
    evidence
        Schema ``evidence``, of the same communities.
    """
    shape = len(view.names), len(view.classes)
    rows = evidence["community"].to_numpy()
    names = evidence["class"].combine_chunks()
    columns = pc.index_in(names, pa.array(view.classes, pa.string())).to_numpy()
    known, values = np.zeros(shape, np.int64), np.full((3, *shape), np.nan)
    known[rows, columns] = evidence["known"].to_numpy()
    for place, name in enumerate(("scores", "error", "skew")):
        values[place, rows, columns] = evidence[name].to_numpy()
    return Observations(view.n_labelled, known, view.n_nodes - view.n_labelled, *values)


def compare(
    view: PrevalenceView, settings: Settings, seen: Observations
) -> Anomalies | None:
    """Every community against the rest or the share set; None without intervals.

    A community without an interval is not compared.
    """
    if not view.classes or not view.has_intervals:
        return None
    wanted = settings.anomalies.reference
    reference = None if wanted == "rest" else float(wanted)
    prevalence = np.where(np.isnan(view.lower), np.nan, view.prevalence)
    return find_anomalies(prevalence, view.n_nodes, seen, reference)


def ordered(values: Floats, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the values from the largest to the smallest, NaN last.

    Parameters
    ----------
    values
        Shape (K,).
    sizes
        Members; of equal values that of the larger community comes first, shape (K,).
    """
    key = np.where(np.isnan(values), np.inf, -values)
    return np.lexsort((np.arange(len(key)), -sizes, key))


def ranks(values: Floats, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank of every value within its column, the largest is 1; 0 for NaN.

    Parameters
    ----------
    values
        Shape (K, C).
    sizes
        As `ordered` takes them, shape (K,).
    """
    found = np.zeros(values.shape, np.int64)
    for c in range(values.shape[1]):
        found[ordered(values[:, c], sizes), c] = np.arange(1, len(values) + 1)
    found[np.isnan(values)] = 0
    return found


def anomaly_rows(
    view: PrevalenceView, found: Anomalies, settings: Settings
) -> pa.Table:
    """Rows of the table ``anomalies``: all communities, the largest effects first.

    What could not be compared has nulls and comes last.
    """
    size = np.abs(found.effect)
    communities, classes = (
        place.ravel() for place in np.indices(found.effect.shape, np.int64)
    )
    order = ordered(size.ravel(), view.n_nodes[communities])
    at = communities[order], classes[order]
    by_effect = ranks(size, view.n_nodes)[at]
    by_prevalence = ranks(view.prevalence, view.n_nodes)[at]
    compared = ~np.isnan(found.qvalue[at])

    def column(values: Floats) -> pa.Array:
        return pa.array(values, mask=np.isnan(values))

    reference = found.reference[at]
    return pa.table(
        {
            "community": view.texts(at[0]),
            "class": pa.array([view.classes[k] for k in at[1].tolist()], pa.string()),
            "n_nodes": view.n_nodes[at[0]],
            "prevalence": column(view.prevalence[at]),
            "reference": column(reference),
            "effect": column(found.effect[at]),
            "lower": column(view.lower[at] - reference),
            "upper": column(view.upper[at] - reference),
            "pvalue": column(found.pvalue[at]),
            "qvalue": column(found.qvalue[at]),
            "anomalous": pa.array(
                found.qvalue[at] <= settings.anomalies.rate, mask=~compared
            ),
            "rank_effect": pa.array(by_effect, mask=by_effect == 0),
            "rank_prevalence": pa.array(by_prevalence, mask=by_prevalence == 0),
        }
    )


def largest(
    effect: NDArray[np.float64], chosen: NDArray[np.bool_], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Of the chosen, places by the size of the effect, the largest first."""
    some = np.flatnonzero(chosen)
    return np.asarray(some[ordered(np.abs(effect[some]), sizes[some])])
