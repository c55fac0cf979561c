"""Section on communities that differ beyond chance."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.records import PartRecord
from xnq_dist.report.compared import SHOWN, largest
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.wording import difference, points, probability

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="beyond", title="Beyond chance", rank=40),)


def body(facts: PageFacts) -> str:
    """The number of communities that differ in the last class, and the largest ones."""
    view, settings, anomalies = facts.view, facts.settings, facts.anomalies
    if anomalies is None:
        return ""
    effect, qvalue = anomalies.effect[:, -1], anomalies.qvalue[:, -1]
    reference = anomalies.reference[:, -1]
    differ = qvalue <= settings.anomalies.rate
    chosen = largest(effect, differ, view.n_nodes)[:SHOWN]
    shown = {
        "count": int(differ.sum()),
        "above": int(np.count_nonzero(differ & (effect > 0))),
        "compared": int(np.count_nonzero(~np.isnan(qvalue))),
        "rows": [
            {
                "name": view.name(k),
                "n_nodes": int(view.n_nodes[k]),
                "prevalence": float(view.prevalence[k, -1]),
                "reference": float(reference[k]),
                "effect": points(float(effect[k])),
                "interval": difference(
                    *(float(e[k, -1] - reference[k]) for e in (view.lower, view.upper))
                ),
                "qvalue": probability(float(qvalue[k])),
            }
            for k in chosen.tolist()
        ],
    }
    return facts.render("beyond", anomalies=shown)
