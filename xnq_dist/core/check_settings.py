"""The section `checks` of the settings: suspicious inputs that the user accepts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from xnq_dist.core.settings_sections import Section

__all__ = ["CheckSettings", "Code"]

Code = Literal[
    "column-case",
    "community-case",
    "feature-id",
    "feature-label",
    "few-matches",
    "id-spaces",
    "isolated",
    "label-case",
    "label-ids",
    "label-measured",
    "label-mixed",
    "label-null-word",
    "loops",
    "role-other",
    "some-matches",
]
"""Findings of the profile that can be accepted."""


class CheckSettings(Section):
    """What the profile of the tables (`xnq-dist profile`) accepts."""

    accept: tuple[Code, ...] = Field(
        (),
        description="findings to accept: a refusal becomes a note, a warning is left "
        "out; each finding's text starts with its code",
    )
