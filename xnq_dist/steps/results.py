"""Results of a run: what the steps read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from xnq_dist.core.arrays import Floats
from xnq_dist.core.errors import DamagedError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory, Version
from xnq_dist.graph.profile.inputs import PROFILE
from xnq_dist.steps.against_rest import compare
from xnq_dist.steps.view import PrevalenceView, shown_class

__all__ = ["Results", "estimates"]

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Results:
    """Tables and facts of a run that is being published."""

    tables: dict[str, pa.Table]
    """``prevalence`` and ``totals``, then those that steps have made."""
    settings: Settings
    directory: RunDirectory
    stages: Mapping[str, Manifest] = field(default_factory=dict)
    """Manifests of the stages by name, in the order they ran."""
    run_id: str = ""
    earlier: Version | None = None
    """Earlier results to compare with; None: there are none."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts of the version, which later runs and other processes read."""

    @cached_property
    def profile(self) -> Mapping[str, Any]:
        """Profile of the input tables; empty if there is none."""
        try:
            return self.directory.read_record(PROFILE) or {}
        except DamagedError as error:
            log.warning("%s", error)
            return {}

    def of(self, stage: str) -> Mapping[str, Any]:
        """The facts of one stage; empty if it did not run."""
        return self.stages[stage].facts if stage in self.stages else {}

    @cached_property
    def view(self) -> PrevalenceView:
        """The prevalence table, with the class that the page is about last."""
        labels = self.of("labels")
        classes = [str(name) for name in labels.get("classes") or ()]
        counts = list(labels.get("class_counts") or ())
        last = shown_class(classes, counts, self.settings.report)
        table, labelled = self.tables["prevalence"], self.settings.labelled
        return PrevalenceView(table, last, labelled)

    @cached_property
    def compared(self) -> dict[str, Floats]:
        """Every community of the view compared with the rest; see `compare`."""
        return compare(self.view, self.settings.intervals.level)


def estimates(quantify: Manifest, name: str) -> pa.Table:
    """A table of the stage ``quantify``, which writes one file for each."""
    (record,) = quantify.named(f"{name}-")
    return quantify.where.read_table(record, name)
