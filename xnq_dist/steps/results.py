"""Results of a run: what the steps read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory, Version
from xnq_dist.steps.view import PrevalenceView, shown_class

__all__ = ["Results", "Run"]


@dataclass(frozen=True, eq=False)
class Run:
    """The estimates of one run, and what decides whether others are comparable."""

    where: str
    """Name of these results in messages and on the page."""
    run_id: str
    created: str
    settings: Mapping[str, Any]
    facts: Mapping[str, Any]
    """``source`` of the communities (``given``, ``leiden`` or ``column:NAME``), and the
    checksum of ``detected`` communities, empty when they were given."""
    view: PrevalenceView = field(repr=False)

    @classmethod
    def read(cls, version: Version, where: str) -> Run:
        """Read published results; `where` names them in messages."""
        manifest = version.manifest
        return cls(
            where,
            version.run_id,
            str(manifest.facts.get("created") or manifest.created),
            manifest.inputs.get("settings") or {},
            manifest.facts,
            PrevalenceView.of(version.read("prevalence")),
        )

    @property
    def source(self) -> str:
        """Source of the communities; empty if it is not known."""
        return str(self.facts.get("source") or "")

    @property
    def detected(self) -> str:
        """Checksum of detected communities; empty when they were given."""
        return str(self.facts.get("detected") or "")

    @property
    def level(self) -> float:
        """Confidence level of the intervals."""
        return float((self.settings.get("intervals") or {}).get("level", 0.95))


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
    earlier: Run | str | None = None
    """Earlier results to compare with, or why there are none; None: none exist."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts of the version, which later runs and other processes read."""
    profile: Mapping[str, Any] | None = None
    """Profile of the input tables; None: there is none."""

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
        return PrevalenceView.of(self.tables["prevalence"], classes, last)

    @cached_property
    def now(self) -> Run:
        """The run itself, to be compared with earlier ones."""
        values = self.settings.model_dump(mode="json")
        created = str(self.facts.get("created", ""))
        return Run("this run", self.run_id, created, values, self.facts, self.view)
