"""Sections of the settings on results: certainty, suppression, report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from xnq_dist.core.settings.section import Section, Text

__all__ = [
    "AnomalySettings",
    "DisclosureSettings",
    "IntervalSettings",
    "QualitySettings",
    "ReportSettings",
    "RetentionSettings",
    "WatchSettings",
]

Width = Annotated[float, Field(ge=0, le=1)]
Word = Annotated[Text, StringConstraints(strip_whitespace=True, min_length=1)]


class IntervalSettings(Section):
    """Intervals of the prevalence."""

    level: float = Field(0.95, gt=0, lt=1)
    """confidence level of the intervals"""
    resamples: Literal[0] | Annotated[int, Field(ge=20, le=100_000)] = 100
    """bootstrap resamples of a community (quantifiers other than auto), 20 or more; 0:
    no intervals"""


class QualitySettings(Section):
    """When an estimate is publishable (column `quality`).

    Suppressed where `disclosure` says so. Else the mean width of the classes' intervals
    decides.
    """

    widths: tuple[Width, Width] = (0.15, 0.40)
    """mean width of the intervals up to which estimates are publishable, and above
    which they are not; caution between the two"""

    def faults(self) -> Iterator[str]:
        """Widths in the wrong order."""
        if self.widths[0] > self.widths[1]:
            yield (
                f"quality.widths = {list(self.widths)} descends: give the width for "
                "publishable first"
            )


class DisclosureSettings(Section):
    """Which communities are suppressed, and what tables hold for them."""

    min_size: int = Field(10, ge=1, le=100)
    """number of members below which a community is suppressed: not shown on the page,
    in plots, artifacts and logs; 1: all are shown. What follows from several
    communities is not protected"""
    table: Literal["quality", "nulls"] = "quality"
    """suppressed communities in the table prevalence. quality: estimates remain, and
    the column quality is suppressed; nulls: estimates and counts of labels are null"""


class AnomalySettings(Section):
    """Communities that differ significantly from the rest or from an earlier run."""

    rate: float = Field(0.05, gt=0, lt=1)
    """false discovery rate for anomalous communities"""
    last: Literal["previous"] | None = "previous"
    """earlier results to compare with: previous (what this run directory published
    before its inputs or settings changed) or null (none)"""


class RetentionSettings(Section):
    """How much of earlier runs a run directory keeps."""

    versions: int = Field(30, ge=2)
    """number of published versions kept in versions/ (the last two always are)"""


class ReportSettings(Section):
    """Words and class of the report page; estimates do not depend on them."""

    # `class` is a keyword of Python.
    shown_class: Word = Field("auto", alias="class")
    """class that the page and its first sentences are about; auto: the last class where
    classes are numbers or booleans, else the class with the fewest labelled nodes, of
    more than two classes with at least half of an equal share of them"""
    class_names: dict[Word, Word] = Field({})
    """class names to print, as they read after 'share of', such as {0: humans, 1:
    bots}"""
    community: Word | tuple[Word, Word] = "community"
    """word for a community, such as page; [country, countries] where the plural is not
    regular"""
    node: Word | tuple[Word, Word] = "node"
    """word for a node, such as user; or [person, people]"""


class WatchSettings(Section):
    """Links; no result depends on them."""

    address: str | None = Field(None, pattern=r"^https?://")
    """address under which a web server shows the run directory, for links to the report
    on Prefect's page; null: its path"""
