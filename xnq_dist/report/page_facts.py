"""The data that the report page is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from xnq_dist.core.config import Settings
from xnq_dist.core.pictures import plain
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.changed import Changed
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import count, figure, share

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["PageFacts", "StageFacts", "environment"]


@dataclass(frozen=True)
class StageFacts:
    """Facts of one stage that the page shows."""

    name: str
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""


@dataclass(frozen=True, eq=False)
class PageFacts:
    """The data that the page's sections are made from."""

    view: PrevalenceView
    """The prevalence table, arranged by community and class."""
    stages: Mapping[str, StageFacts]
    """Stages of the run by name, in the order they ran."""
    settings: Settings
    figures: Mapping[str, Markup]
    """SVG by plot name, as `plot_files` returns them."""
    anomalies: Anomalies | None
    """Anomalies of the communities, in the order of `view`; None: not computed."""
    earlier: Changed | str | None
    """Comparison with earlier results, or why there is none; None: none exist."""

    def of(self, stage: str) -> Mapping[str, Any]:
        """The facts of one stage; empty if it did not run."""
        return self.stages[stage].facts if stage in self.stages else {}

    @cached_property
    def last(self) -> str:
        """The last class, as "class NAME", which the page's sentences are about."""
        classes = self.view.classes
        return f"class {plain(classes[-1], 60)}" if classes else ""

    def render(self, template: str, **values: Any) -> str:
        """Render the template of this name with these values, `settings` and `last`."""
        made = environment().get_template(f"{template}.html.j2")
        return made.render(settings=self.settings, last=self.last, **values)


@cache
def environment() -> Environment:
    """Jinja environment that escapes every text."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("xnq_dist.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"count": count, "share": share, "figure": figure}
    return made
