"""Plans the memory, disk and time of a run before it starts, and checks that it fits.

Counts come from the tables' footers; halo rows are bounded by those of a random
partitioning. Memory and disk are the sum of the arrays that will exist; the time of the
complete run follows from six costs (`xnq_dist.plan.figures`).
"""

from __future__ import annotations

from xnq_dist.core.need import GraphSize, Workers
from xnq_dist.plan.checks import (
    check_client_fits,
    check_fits,
    check_scratch_fits,
)
from xnq_dist.plan.figures import Plan
from xnq_dist.plan.of_tables import add_up

__all__ = [
    "GraphSize",
    "Plan",
    "Workers",
    "add_up",
    "check_client_fits",
    "check_fits",
    "check_scratch_fits",
]
