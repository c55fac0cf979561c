"""Words and numbers of the page: names of classes and communities, formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xnq_dist.core.redaction import plain
from xnq_dist.core.sections import ReportSettings

__all__ = [
    "Naming",
    "count",
    "difference",
    "points",
    "probability",
    "share",
    "span",
    "whole",
    "whole_span",
]


@dataclass(frozen=True)
class Naming:
    """Words for what the tables hold, from the settings ``report``."""

    settings: ReportSettings

    def of_class(self, name: str, limit: int = 60) -> str:
        """A class as it reads after "share of"."""
        known = self.settings.class_names.get(name)
        return plain(known if known else f"class {name}", limit)

    def communities(self, number: float = 2) -> str:
        """The word for communities, in the plural unless there is one."""
        return _word(self.settings.community, number)

    def nodes(self, number: float = 2) -> str:
        """The word for nodes, in the plural unless there is one."""
        return _word(self.settings.node, number)

    def some_communities(self, number: int) -> str:
        """A number of communities, such as "1,200 pages"."""
        return f"{count(number)} {self.communities(number)}"


def count(number: Any) -> str:
    """A number with separators; empty for None.

    Examples
    --------
    >>> count(12345)
    '12,345'
    """
    return "" if number is None else f"{int(number):,}"


def share(value: float) -> str:
    """A proportion in per cent; empty for NaN.

    Examples
    --------
    >>> share(0.123)
    '12.3 %'
    """
    return "" if np.isnan(value) else f"{100 * value:.1f} %"


def points(value: float) -> str:
    """A difference of proportions in percentage points; empty for NaN.

    Examples
    --------
    >>> points(-0.021)
    '-2.1'
    """
    return "" if np.isnan(value) else f"{100 * value:+.1f}"


def span(lower: float, upper: float) -> str:
    """An interval of proportions in per cent; empty if an end is NaN.

    Examples
    --------
    >>> span(0.1, 0.25)
    '10.0 – 25.0 %'
    """
    if np.isnan(lower + upper):
        return ""
    return f"{100 * lower:.1f} – {100 * upper:.1f} %"


def difference(lower: float, upper: float) -> str:
    """An interval of differences in percentage points; empty if an end is NaN."""
    if np.isnan(lower + upper):
        return ""
    return f"{points(lower)} to {points(upper)}"


def probability(value: float) -> str:
    """A p-value or q-value; those below .0001 are not accurate and are cut off there.

    Examples
    --------
    >>> probability(0.0123), probability(3e-40)
    ('0.012', '< 0.0001')
    """
    if np.isnan(value):
        return ""
    return f"{value:.2g}" if value >= 1e-4 else "< 0.0001"


def whole(value: float) -> str:
    """A proportion in whole per cent; a digit more where it would be 0 or 100.

    Examples
    --------
    >>> whole(0.123), whole(0.004), whole(0.9999)
    ('12 %', '0.4 %', '99.99 %')
    """
    return f"{_whole(value)} %"


def whole_span(lower: float, upper: float) -> str:
    """An interval of proportions in whole per cent.

    Examples
    --------
    >>> whole_span(0.1, 0.254)
    '10–25 %'
    """
    return f"{_whole(lower)}–{_whole(upper)} %"


def _word(word: str | tuple[str, str], number: float) -> str:
    """A word in the singular or plural.

    Examples
    --------
    >>> _word("page", 2), _word("county", 2), _word(("person", "people"), 2)
    ('pages', 'counties', 'people')
    """
    one, more = word if isinstance(word, tuple) else (word, "")
    if not more:
        regular = one[-1:] != "y" or one[-2:-1] in (*"aeiou",)
        more = f"{one}s" if regular else f"{one[:-1]}ies"
    return one if number == 1 else more


def _whole(value: float) -> str:
    for digits in range(3):
        text = f"{100 * value:.{digits}f}"
        if 0 < float(text) < 100:
            return text
    return f"{100 * value:.0f}"
