"""Quality of estimates for publication, by sample size and interval width.

References
----------
J. D. Parker et al., "National Center for Health Statistics data presentation standards
for proportions", Vital and Health Statistics 2(175), 2017.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.core.settings import QualitySettings

__all__ = [
    "CAUTION",
    "NOT_PUBLISHABLE",
    "PUBLISHABLE",
    "SUPPRESSED",
    "qualities",
    "without_values",
]


PUBLISHABLE, CAUTION = "publishable", "caution"
NOT_PUBLISHABLE, SUPPRESSED = "not publishable", "suppressed"
VALUES = (
    *("n_labelled", "n_estimated", "prevalence", "lower", "upper", "se"),
    *("fit_pvalue", "flagged"),
)
"""Columns of ``prevalence`` that depend on the members' labels or posteriors."""


def qualities(
    prevalence: Floats,
    lower: Floats,
    upper: Floats,
    n_nodes: Ints | Floats,
    rules: QualitySettings,
    suppressed: Bools | None = None,
) -> NDArray[np.object_]:
    """Quality of each estimate; None where there is no interval.

    All arrays have the same shape, with NaN where there is no estimate or interval;
    `n_nodes` is the effective number of members where they have weights. None is
    suppressed by default.

    Examples
    --------
    >>> quality = qualities(
    ...     np.array([0.5, 0.1, 0.5, 0.5]),
    ...     np.array([0.45, 0.05, 0.3, 0.5]),
    ...     np.array([0.55, 0.20, 0.7, 0.5]),
    ...     np.array([900, 900, 900, 9]),
    ...     QualitySettings(),
    ...     np.array([False, False, False, True]),
    ... )
    >>> quality.tolist()
    ['publishable', 'caution', 'not publishable', 'suppressed']
    """
    width = upper - lower
    with np.errstate(invalid="ignore"):
        # No division by the prevalence, which may be 0.
        clear = (width <= rules.narrow) | (width <= rules.relative * prevalence)
        clear &= n_nodes >= rules.caution_below
        quality = np.where(clear, PUBLISHABLE, CAUTION).astype(np.object_)
        quality[width > rules.wide] = NOT_PUBLISHABLE
    quality[np.isnan(width)] = None
    if suppressed is not None:
        quality[suppressed] = SUPPRESSED
    return quality


def without_values(table: pa.Table) -> pa.Table:
    """Rows of ``prevalence`` with nulls in place of a suppressed community's values.

    Pages, artifacts, logs and comparisons are made from such rows.
    """
    if "quality" not in table.column_names:
        return table  # published by an early version
    gone = pc.fill_null(pc.equal(table["quality"], SUPPRESSED), False)
    for name in VALUES:
        if name in table.column_names:
            place, kind = table.schema.get_field_index(name), table.schema.field(name)
            values = pc.if_else(gone, pa.scalar(None, kind.type), table[name])
            table = table.set_column(place, name, values)
    return table
