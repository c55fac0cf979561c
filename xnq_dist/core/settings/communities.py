"""Sections of the settings on labels and communities: how they came about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from xnq_dist.core.settings.section import Section, Text

__all__ = [
    "AutoSettings",
    "LabelSettings",
    "LeidenSettings",
    "MembershipSettings",
    "Missing",
]

Missing = Literal["auto"] | tuple[Text, ...]
"""Values of labels that mean unlabelled; auto: the words of `graph.labels`."""

PRIOR_TOLERANCE = 1e-6
"""Allowed distance of the sum of labels.prior from 1."""


class LabelSettings(Section):
    """How nodes were chosen for labelling."""

    drawn: Literal["unknown", "random", "by_class", "by_place", "weighted"] = "unknown"
    """how the labelled nodes were chosen. random: any node as likely as any other;
    by_class: some classes likelier than others; by_place: by where a node is in the
    graph or by its features, never by its class; weighted: by known probabilities,
    whose inverses are in columns.label_weight; unknown: tested, and intervals allow for
    a choice by class"""
    missing: Missing = "auto"
    """label values that mean unlabelled, such as [-1] or [unknown, NA]; auto: empty
    text, NA, N/A, NaN, null, None and ?; []: every value is a class"""
    prior: dict[Text, float] | None = None
    """share of each class in the complete graph where it is known, such as {human:
    0.85, bot: 0.15} (labels.drawn = unknown or by_class); null: it is estimated"""

    def faults(self) -> Iterator[str]:
        """A prior that is no distribution, or that nothing uses."""
        if self.prior is None:
            return
        shares = list(self.prior.values())
        if not all(0 <= share <= 1 for share in shares) or (
            abs(sum(shares) - 1) > PRIOR_TOLERANCE
        ):
            yield (
                f"labels.prior sums to {sum(shares):.8g}: give the share of every "
                "class in the complete graph, between 0 and 1 and with sum 1"
            )
        if self.drawn not in ("unknown", "by_class"):
            yield (
                f"labels.prior is not used with labels.drawn = {self.drawn}: set "
                "labels.drawn = by_class, or leave labels.prior out"
            )


class MembershipSettings(Section):
    """How the communities were formed."""

    drawn: Literal["unknown", "by_class"] = "unknown"
    """how communities were formed. by_class: membership depends on the class alone, so
    quantifier=auto uses SLD; unknown: it uses posteriors, as auto.pooled says"""


class AutoSettings(Section):
    """The default quantifier."""

    pooled: bool = True
    """whether a community's labelled members move the estimate of the others, as far as
    labels show that communities differ by class; false: the mean posterior, independent
    of the other communities"""


class LeidenSettings(Section):
    """Community detection."""

    resolution: float = Field(1.0, gt=0, allow_inf_nan=False)
    """resolution of the modularity; larger values give more communities"""
