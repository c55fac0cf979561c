"""The sections of the report page: one module each, found by its record.

A section is one module with ``RECORDS`` (`core.records`; `title` is its heading, `rank` its place) and a
function ``body(facts)``: the HTML below the heading from `PageFacts`, empty where the
section does not apply. `PageFacts.render` escapes every text from the data.
"""

from __future__ import annotations

from pathlib import Path

from xnq_dist.core.records import PartRecord, Registry

__all__ = ["SECTIONS"]

SECTIONS = Registry("section", PartRecord, {__name__: Path(__file__).parent})
