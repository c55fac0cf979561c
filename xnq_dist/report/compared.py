"""Anomalies of a run's communities: the table, and what the page says of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from xnq_dist.config import Settings
from xnq_dist.quantify.anomalies import Anomalies, find_anomalies
from xnq_dist.report.view import PrevalenceView

__all__ = ["anomaly_rows", "compare"]


def compare(view: PrevalenceView, settings: Settings) -> Anomalies | None:
    """Every community against the rest or the share set; None without intervals."""
    if not view.classes or not np.any(~np.isnan(view.lower)):
        return None
    wanted = settings.anomalies.reference
    return find_anomalies(
        view.prevalence,
        view.lower,
        view.upper,
        view.n_nodes,
        settings.intervals.level,
        None if wanted == "rest" else float(wanted),
    )


def anomaly_rows(
    view: PrevalenceView, found: Anomalies, settings: Settings
) -> pa.Table:
    """Rows of the table ``anomalies``, the largest effects first."""
    communities, classes = np.nonzero(~np.isnan(found.pvalue))
    effect = found.effect[communities, classes]
    order = np.lexsort((classes, communities, -np.abs(effect)))
    at = communities[order], classes[order]
    names = view.names.take(pa.array(at[0]))
    if not pa.types.is_integer(names.type):
        names = names.cast(pa.string())
    reference, qvalue = found.reference[at], found.qvalue[at]
    return pa.table(
        {
            "community": names,
            "class": pa.array([view.classes[k] for k in at[1].tolist()], pa.string()),
            "n_nodes": view.n_nodes[at[0]],
            "prevalence": view.prevalence[at],
            "reference": reference,
            "effect": found.effect[at],
            "lower": view.lower[at] - reference,
            "upper": view.upper[at] - reference,
            "pvalue": found.pvalue[at],
            "qvalue": qvalue,
            "anomalous": qvalue <= settings.anomalies.rate,
        }
    )
