"""The sections of the report page, one module each.

A section is a record here (`text` is its heading) and a module with a function
``body(facts)``, which returns the HTML below the heading, or an empty text if the
section does not apply. `Page.render` fills in a template of the folder `templates`
and escapes texts from the data.
"""

from __future__ import annotations

from xnq_dist.core.records import PartRecord, Registry

__all__ = ["SECTIONS"]

_TITLES = {
    "communities": "Communities",
    "glance": "Plots",
    "changes": "Since the earlier results",
    "history": "History",
    "beyond": "Beyond chance",
    "inputs": "Inputs",
    "computed": "What was computed",
    "run": "The run",
    "cite": "Cite",
}
SECTIONS = Registry(
    "section",
    (
        PartRecord(name=name, text=title, module=f"{__name__}.{name}")
        for name, title in _TITLES.items()
    ),
)
