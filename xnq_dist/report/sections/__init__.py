"""The sections of the report page, one module each.

A section is a record here (`title` is its heading) and a module with a function
``body(facts)``, which returns the HTML below the heading, or an empty text if the
section does not apply. `Page.render` fills in a template of the folder `templates`
and escapes texts from the data.
"""

from __future__ import annotations

from xnq_dist.core.records import PartRecord, Registry

__all__ = ["SECTIONS"]

SECTIONS = Registry(
    "section",
    (
        PartRecord(
            name="communities",
            title="Communities",
            module="xnq_dist.report.sections.communities",
        ),
        PartRecord(
            name="glance", title="Plots", module="xnq_dist.report.sections.glance"
        ),
        PartRecord(
            name="changes",
            title="Since the earlier results",
            module="xnq_dist.report.sections.changes",
        ),
        PartRecord(
            name="history", title="History", module="xnq_dist.report.sections.history"
        ),
        PartRecord(
            name="beyond",
            title="Beyond chance",
            module="xnq_dist.report.sections.beyond",
        ),
        PartRecord(
            name="inputs", title="Inputs", module="xnq_dist.report.sections.inputs"
        ),
        PartRecord(
            name="computed",
            title="What was computed",
            module="xnq_dist.report.sections.computed",
        ),
        PartRecord(name="run", title="The run", module="xnq_dist.report.sections.run"),
        PartRecord(name="cite", title="Cite", module="xnq_dist.report.sections.cite"),
    ),
)
