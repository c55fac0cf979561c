"""The table of communities that differ from the others beyond chance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.steps.results import Results

__all__ = ["make"]


def make(results: Results) -> dict[str, pa.Table]:
    """The table ``anomalies``, if any community has an interval.

    The largest effects come first. A community without an interval is not compared: it
    has nulls and comes last.
    """
    view, settings = results.view, results.settings.anomalies
    if not view.has_intervals:
        return {}
    columns = results.compared
    members = np.repeat(view.n_nodes, len(view.classes))
    order = np.lexsort((-members, -np.abs(columns["effect"]).ravel()))
    community, of_class = np.divmod(order, len(view.classes))
    rows = {
        "community": view.names.take(community),
        "class": view.labels.take(of_class),
        "n_nodes": members[order],
    }
    for name, values in columns.items():
        rows[name] = pa.array(values.ravel()[order], from_pandas=True)
    rows["anomalous"] = pc.less_equal(rows["qvalue"], settings.rate)
    return {"anomalies": pa.table(rows)}
