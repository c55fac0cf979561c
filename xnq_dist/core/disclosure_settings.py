"""The section `disclosure` of the settings: what is not shown of small communities."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from xnq_dist.core.settings_sections import Section

__all__ = ["DisclosureSettings"]


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
