"""The plan: what a run will take, before anything runs; refused when it does not fit.

Counts come from the tables' footers, the cut is bounded by that of a random partition,
memory and disk are added up from the arrays that will exist, and times from costs that
were measured on a core (`xnq_dist.plan.unit_costs`).
"""

from __future__ import annotations

from xnq_dist.core.need import GraphSize, Workers
from xnq_dist.plan.adding import add_up, wanted_partitions
from xnq_dist.plan.checks import check_client_fits, check_fits, check_scratch_fits
from xnq_dist.plan.figures import Figures, Plan

__all__ = [
    "Figures",
    "GraphSize",
    "Plan",
    "Workers",
    "add_up",
    "check_client_fits",
    "check_fits",
    "check_scratch_fits",
    "wanted_partitions",
]
