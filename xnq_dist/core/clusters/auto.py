"""One process for a run that fits in it, else worker processes.

The plan of a run chooses (`plan.of_tables.make_plan`). What has no plan, such as a
comparison of methods, gets worker processes.
"""

from __future__ import annotations

from xnq_dist.core.clusters import ClusterKind
from xnq_dist.core.clusters.local import size, start

__all__ = ["RECORDS", "size", "start"]

RECORDS = (
    ClusterKind(
        name="auto",
        title="this process alone if it fits and is as fast, else worker processes",
        rank=0,
        ahead=True,
    ),
)
