"""Sections of the settings on results: their certainty, suppression and retention."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from xnq_dist.core.section import Section

__all__ = [
    "AnomalySettings",
    "DisclosureSettings",
    "FitSettings",
    "IntervalSettings",
    "QualitySettings",
    "RetentionSettings",
]

FEWEST_RESAMPLES = 20
"""With fewer resamples, their own variance makes intervals too narrow."""


class DisclosureSettings(Section):
    """Which communities are suppressed, and what tables hold for them."""

    min_size: int = Field(
        10,
        ge=1,
        le=100,
        description="number of members below which a community is suppressed: not "
        "shown on the page, in plots, artifacts and logs. So are communities whose "
        "difference with other results would show fewer members, and those whose "
        "share states every member's label; 1: all are shown",
    )
    table: Literal["quality", "nulls"] = Field(
        "quality",
        description="suppressed communities in the table prevalence. quality: "
        "estimates remain, and the column quality is suppressed; nulls: estimates and "
        "counts of labels are null",
    )


class QualitySettings(Section):
    """When an estimate is publishable (column `quality`).

    Suppressed where `disclosure` says so; not publishable where the interval is
    wider than `wide`; publishable where it is at most `narrow`, or at most `relative`
    times the estimate; with caution otherwise, and below `caution_below` members. The
    defaults are those of the U.S. National Center for Health Statistics for
    proportions (2017), with caution in place of suppression for small samples and for
    wide relative intervals.
    """

    caution_below: int = Field(
        30, ge=0, description="number of members below which caution is advised"
    )
    narrow: float = Field(
        0.05,
        ge=0,
        le=1,
        description="interval width up to which an estimate is publishable",
    )
    wide: float = Field(
        0.30,
        ge=0,
        le=1,
        description="interval width above which an estimate is not publishable",
    )
    relative: float = Field(
        1.30,
        ge=0,
        allow_inf_nan=False,
        description="interval width, over the estimate, above which caution is advised",
    )


class IntervalSettings(Section):
    """Intervals of the prevalence."""

    level: float = Field(
        0.95, gt=0, lt=1, description="confidence level of the intervals"
    )
    resamples: int = Field(
        100,
        ge=0,
        le=100_000,
        description="bootstrap resamples of a community (quantifiers other than auto), "
        "20 or more; 0: no intervals",
    )

    seed_runs: tuple[str, ...] = Field(
        (),
        description="directories of finished runs that differ from this one in their "
        "seed alone; the variance between their estimates is added to the intervals",
    )

    @field_validator("resamples")
    @classmethod
    def _enough(cls, value: int) -> int:
        if 0 < value < FEWEST_RESAMPLES:
            raise ValueError(
                f"{value} resamples make intervals too narrow: set "
                f"{FEWEST_RESAMPLES} or more, or 0 for no intervals"
            )
        return value


class FitSettings(Section):
    """Checks of the estimates: expected error, agreement with labels."""

    error: float = Field(
        0.04,
        gt=0,
        lt=1,
        description="expected absolute error of a share above which a community is "
        "flagged",
    )
    alpha: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="p-value below which labelled members disagree with their "
        "posteriors",
    )


class AnomalySettings(Section):
    """Communities that differ significantly from the rest or from an earlier run."""

    rate: float = Field(
        0.05, gt=0, lt=1, description="false discovery rate for anomalous communities"
    )
    reference: Annotated[float, Field(ge=0, le=1)] | Literal["rest"] = Field(
        "rest",
        description="what each community is compared with: rest is the mean of all "
        "others but the outliers; a number is a share of the class of report.class",
    )
    last: Annotated[str, Field(min_length=1)] | None = Field(
        "previous",
        description="earlier results to compare with: previous (what this run "
        "directory published before its inputs or settings changed), another run "
        "directory, or null (none)",
    )


class RetentionSettings(Section):
    """How much of earlier runs a run directory keeps."""

    versions: int = Field(
        30,
        ge=2,
        description="number of published versions kept in versions/ (the last two "
        "always are)",
    )
    history_rows: int = Field(
        1_000_000,
        ge=2,
        description="maximum number of rows (run, community, class) of the table "
        "history; beyond it, runs older than the kept versions are thinned to one a "
        "week, then the oldest go",
    )
