"""Removal of suppressed communities' values before anything is drawn or written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.changed import Changed, blank
from xnq_dist.report.view import PrevalenceView

__all__ = ["without_suppressed"]


def without_suppressed(
    view: PrevalenceView, anomalies: Anomalies | None, changed: Changed | str | None
) -> tuple[PrevalenceView, Anomalies | None, Changed | str | None]:
    """The same results; suppressed communities keep their name and size alone.

    A change is removed if the community is suppressed now or was in the earlier
    results.
    """
    gone = view.suppressed
    if anomalies is not None:
        anomalies = blank(anomalies, gone)
    if isinstance(changed, Changed):
        both = changed.place >= 0
        then = gone.copy()
        then[both] |= changed.earlier.view.suppressed[changed.place[both]]
        before = tuple(np.where(then[:, None], np.nan, v) for v in changed.before)
        changed = replace(
            changed,
            changes=blank(changed.changes, then),
            before=(before[0], before[1], before[2]),
        )
    return view.without_suppressed(), anomalies, changed
