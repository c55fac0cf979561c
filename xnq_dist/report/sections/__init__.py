"""The sections of the report page, one module each.

A section's module has ``RECORDS`` (`core.records`; `title` is its heading, `rank` its
place) and a function ``body(facts)``, which returns the HTML below the heading, or an
empty text if the section does not apply. `PageFacts.render` fills in a template of the
folder `templates` and escapes texts from the data.
"""

from __future__ import annotations

from pathlib import Path

from xnq_dist.core.records import PartRecord, Registry

__all__ = ["SECTIONS"]

SECTIONS = Registry("section", PartRecord, {__name__: Path(__file__).parent})
