"""Anomalies: communities compared with the rest of the graph, and their table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies, Observations, find_anomalies
from xnq_dist.report.view import PrevalenceView

__all__ = ["SHOWN", "anomaly_rows", "compare", "largest", "ordered", "ranks", "seen_in"]


SHOWN = 15
"""Number of communities in a section's table."""


def seen_in(view: PrevalenceView, evidence: pa.Table) -> Observations:
    """Statistics of each community's labels and posteriors, shape (K, C) each.

    Parameters
    ----------
    view
        The prevalence table, arranged by community and class.
    evidence
        Table of the same communities, schema ``evidence``.
    """
    shape = len(view.names), len(view.classes)
    rows = evidence["community"].to_numpy()
    names = evidence["class"].combine_chunks()
    columns = pc.index_in(names, view.labels).to_numpy()
    known, values = np.zeros(shape, np.int64), np.full((3, *shape), np.nan)
    known[rows, columns] = evidence["known"].to_numpy()
    for place, name in enumerate(("scores", "error", "skew")):
        values[place, rows, columns] = evidence[name].to_numpy()
    return Observations(view.n_labelled, known, view.n_nodes - view.n_labelled, *values)


def compare(
    view: PrevalenceView, settings: Settings, seen: Observations
) -> Anomalies | None:
    """Compare every community with the rest or with the share set.

    A community without an interval is not compared. Returns None if no community has
    an interval.
    """
    if not view.classes or not view.has_intervals:
        return None
    setting = settings.anomalies.reference
    reference = None if setting == "rest" else float(setting)
    prevalence = np.where(np.isnan(view.lower), np.nan, view.prevalence)
    return find_anomalies(prevalence, view.n_nodes, seen, reference)


def ordered(values: Floats, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices that sort the values from the largest to the smallest, NaN last.

    Parameters
    ----------
    values
        Shape (K,).
    sizes
        Members; of equal values, the larger community comes first, shape (K,).
    """
    key = np.where(np.isnan(values), np.inf, -values)
    return np.lexsort((np.arange(len(key)), -sizes, key))


def ranks(values: Floats, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank of every value within its column: 1 for the largest, 0 for NaN.

    Parameters
    ----------
    values
        Shape (K, C).
    sizes
        Members, which break ties as in `ordered`, shape (K,).
    """
    result = np.zeros(values.shape, np.int64)
    for c in range(values.shape[1]):
        result[ordered(values[:, c], sizes), c] = np.arange(1, len(values) + 1)
    result[np.isnan(values)] = 0
    return result


def anomaly_rows(
    view: PrevalenceView, anomalies: Anomalies, settings: Settings
) -> pa.Table:
    """Rows of the table ``anomalies``: all communities, the largest effects first.

    Communities that could not be compared have nulls and come last.
    """
    size = np.abs(anomalies.effect)
    communities, classes = (place.ravel() for place in np.indices(size.shape, np.int64))
    order = ordered(size.ravel(), view.n_nodes[communities])
    at = communities[order], classes[order]
    by_effect = ranks(size, view.n_nodes)[at]
    by_prevalence = ranks(view.prevalence, view.n_nodes)[at]
    qvalue = anomalies.qvalue[at]

    def column(values: Floats) -> pa.Array:
        return pa.array(values, mask=np.isnan(values))

    reference = anomalies.reference[at]
    return pa.table(
        {
            "community": view.texts(at[0]),
            "class": view.labels.take(pa.array(at[1])),
            "n_nodes": view.n_nodes[at[0]],
            "prevalence": column(view.prevalence[at]),
            "reference": column(reference),
            "effect": column(anomalies.effect[at]),
            "lower": column(view.lower[at] - reference),
            "upper": column(view.upper[at] - reference),
            "pvalue": column(anomalies.pvalue[at]),
            "qvalue": column(qvalue),
            "anomalous": pa.array(
                qvalue <= settings.anomalies.rate, mask=np.isnan(qvalue)
            ),
            "rank_effect": pa.array(by_effect, mask=by_effect == 0),
            "rank_prevalence": pa.array(by_prevalence, mask=by_prevalence == 0),
        }
    )


def largest(
    effect: NDArray[np.float64], chosen: NDArray[np.bool_], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Indices of the chosen communities, by falling absolute effect."""
    rows = np.flatnonzero(chosen)
    return np.asarray(rows[ordered(np.abs(effect[rows]), sizes[rows])])
