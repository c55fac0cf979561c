"""The prevalence table arranged by community and class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.core.redaction import plain
from xnq_dist.core.sections import ReportSettings
from xnq_dist.quantify.interface import Labelled
from xnq_dist.quantify.quality import (
    CAUTION,
    NOT_PUBLISHABLE,
    PUBLISHABLE,
    SUPPRESSED,
    without_values,
)

__all__ = [
    "NAME_LIMIT",
    "NOT_RATED_HIGHER",
    "QUALITIES",
    "PrevalenceView",
    "shown_class",
]


NAME_LIMIT = 120
QUALITIES = ("", PUBLISHABLE, CAUTION, NOT_PUBLISHABLE, SUPPRESSED)
"""Qualities by code; 0: not rated."""
NOT_RATED_HIGHER = QUALITIES.index(NOT_PUBLISHABLE)
"""Estimates with this code or a higher one are not publishable."""
SHRINKAGE = 30
"""Members of average prevalence that are added to a community without an interval, so
that very small ones do not lead the order."""


class PrevalenceView:
    """A ``prevalence`` table by K communities and C classes.

    Suppressed communities keep their name and size alone.

    Parameters
    ----------
    table
        Rows by community, each with all classes in the same order.
    last
        Class to put last, which the page is about; empty: keep the order.
    labelled
        The setting of the run that made the table.
    """

    def __init__(
        self, table: pa.Table, last: str = "", labelled: Labelled = "count"
    ) -> None:
        table = without_values(table)
        labels = pc.unique(table["class"])
        texts = [str(name) for name in labels.to_pylist()]
        width = len(texts)
        columns = sorted(range(width), key=lambda place: texts[place] == last)

        def cells(values: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(values.reshape(-1, width)[:, columns])

        def numbers(name: str) -> Floats:
            return cells(table[name].to_numpy())

        def counts(name: str) -> Ints:
            return np.asarray(pc.fill_null(table[name], 0))[::width]

        self.names, notes = (
            table[name].combine_chunks()[::width] for name in ("community", "note")
        )
        """Names of the communities: int64 or string."""
        self.classes = tuple(texts[place] for place in columns)
        """Names of the classes, as text."""
        self.labels = labels.take(columns)
        """The same classes in the type of the labels."""
        self.prevalence = numbers("prevalence")
        """Estimates, shape (K, C); NaN if there is none."""
        self.lower, self.upper = numbers("lower"), numbers("upper")
        self.has_intervals = not np.isnan(self.lower).all()
        """Whether any community has an interval."""
        self.se = numbers("se")
        """Standard errors, shape (K, C)."""
        self.n_nodes, self.n_labelled = counts("n_nodes"), counts("n_labelled")
        self.about = counts("n_estimated" if labelled == "exclude" else "n_nodes")
        """Members whose shares are estimated: all, or the unlabelled ones, (K,)."""
        codes = pc.fill_null(pc.index_in(table["quality"], pa.array(QUALITIES)), 0)
        self.quality = cells(codes.to_numpy().astype(np.uint8))
        """Places in `QUALITIES`, shape (K, C)."""
        suppressed = self.quality == QUALITIES.index(SUPPRESSED)
        self.suppressed: Bools = suppressed.any(axis=1)
        """Communities that the table rates so: their values are shown nowhere, (K,)."""
        self.notes = pc.if_else(self.suppressed, None, notes)

    @cached_property
    def ranked(self) -> Ints:
        """Communities by falling lower end of the last class's interval.

        Without intervals the order is by prevalence, shrunk towards the mean over all
        members. Of equals the larger community comes first; communities without an
        interval come later, and those without a prevalence last.
        """
        p, n = self.prevalence[:, -1], self.n_nodes
        known = ~np.isnan(p) & (n > 0)
        mean = float(np.average(p[known], weights=n[known])) if known.any() else 0.0
        shrunk = (n * p + SHRINKAGE * mean) / (n + SHRINKAGE)
        # NaN is sorted last.
        return np.lexsort((-n, -shrunk, -self.lower[:, -1]))

    def name(self, community: int, limit: int = NAME_LIMIT) -> str:
        """A community's name on one line, without control characters."""
        return plain(str(self.names[community].as_py()), limit)


def shown_class(
    classes: Sequence[str], counts: Sequence[int], settings: ReportSettings
) -> str:
    """The class that the page is about; empty if there are no classes.

    Parameters
    ----------
    classes
        Names of the classes, ranked by value.
    counts
        Number of labelled nodes of each; empty if it is not known.
    settings
        ``class`` names it; ``auto``: the last class where all are numbers or booleans,
        else the one with the fewest labelled nodes, of equals the last. Of more than
        two classes it has at least half of an equal share of the labels: a class that
        is hardly anywhere has narrow intervals at 0, and nothing to compare.

    Examples
    --------
    >>> shown_class(["bot", "human"], [30, 500], ReportSettings())
    'bot'
    >>> shown_class(["arts", "news", "rare"], [90, 100, 2], ReportSettings())
    'arts'
    """
    if settings.shown_class in classes:
        return settings.shown_class
    if len(counts) != len(classes) or all(map(_is_value, classes)):
        return classes[-1] if classes else ""
    fewest = sum(counts) / (2 * len(classes)) if len(classes) > 2 else 0
    places = [place for place, count in enumerate(counts) if count >= fewest]
    return classes[min(places, key=lambda place: (counts[place], -place))]


def _is_value(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return name.lower() in ("true", "false")
    return True
