"""Section on changes since earlier results."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.plain_text import plain
from xnq_dist.report.changed import Changed
from xnq_dist.report.compared import SHOWN, largest
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import difference, points, probability

__all__ = ["body"]


NAMED = 12
"""Maximum number of new or gone communities named in a sentence."""


def body(facts: PageFacts) -> str:
    """Changes of the last class since the earlier results."""
    view, settings, changed = facts.view, facts.settings, facts.earlier
    if not isinstance(changed, Changed):
        why = plain(changed or "", 600)
        return why and facts.render("changes", changes=None, not_compared=why)
    changes, earlier = changed.changes, changed.earlier
    effect, qvalue = changes.effect[:, -1], changes.qvalue[:, -1]
    moved = qvalue <= settings.anomalies.rate
    chosen = largest(effect, moved, view.n_nodes)[:SHOWN]
    new, gone = changed.new, changed.gone
    shown = {
        "where": earlier.where,
        "created": earlier.created,
        "count": int(moved.sum()),
        "up": int(np.count_nonzero(moved & (effect > 0))),
        "both": int(np.count_nonzero(changed.place >= 0)),
        "compared": int(changed.compared.sum()),
        "new": len(new),
        "new_names": _named(view, new),
        "gone": len(gone),
        "gone_names": _named(earlier.view, gone),
        "rows": [
            {
                "name": view.name(k),
                "n_nodes": int(view.n_nodes[k]),
                "n_before": int(earlier.view.n_nodes[changed.place[k]]),
                "before": float(changed.before[0][k, -1]),
                "prevalence": float(view.prevalence[k, -1]),
                "effect": points(float(effect[k])),
                "interval": difference(
                    float(changes.lower[k, -1]), float(changes.upper[k, -1])
                ),
                "qvalue": probability(float(qvalue[k])),
            }
            for k in chosen.tolist()
        ],
    }
    return facts.render("changes", changes=shown)


def _named(view: PrevalenceView, some: NDArray[np.int64]) -> list[str]:
    """Names of the largest of some communities."""
    order = np.lexsort((some, -view.n_nodes[some]))
    return [view.name(k) for k in some[order][:NAMED].tolist()]
