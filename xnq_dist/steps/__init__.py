"""Steps after the estimates: what is made from the tables of a run.

A step is a record here and a module with a function ``make(results)``. It reads the
tables of `Results`, those of earlier steps included, and returns what it adds to the
published version, by name: a table, the bytes of a file, or a fact. The pipeline does
not know the steps: a step that is left out here leaves out what it makes.

`label_plan` and `contrast` answer a question about a finished run instead.
"""

from __future__ import annotations

from xnq_dist.core.records import PartRecord, Registry

__all__ = ["STEPS"]

_MODULES = {
    "anomalies": "xnq_dist.steps.anomalies",
    "history": "xnq_dist.steps.history",
    "page": "xnq_dist.report.page",
}
STEPS = Registry(
    "step",
    (PartRecord(name=name, module=at) for name, at in _MODULES.items()),
)
"""The steps, in the order in which they are done."""
