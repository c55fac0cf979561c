"""The sections of the report page: one module each, found by its record.

A section is one module with ``RECORDS`` (`core.records`; `title` is its heading) and a
function ``body(facts)``: the HTML below the heading from `PageFacts`, empty where the
section does not apply. `PageFacts.render` escapes every text from the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xnq_dist.core import records

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True, kw_only=True)
class Section(records.Record):
    """One section; `rank` is its place on the page."""


SECTIONS = records.Registry("section", Section, {__name__: Path(__file__).parent})
