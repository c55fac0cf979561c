"""The data that the report page is made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.changed import Changed
from xnq_dist.report.history import History
from xnq_dist.report.naming import Naming
from xnq_dist.report.page_data import PageData
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import count, share

if TYPE_CHECKING:
    from jinja2 import Environment, Template
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
    anomalies: Anomalies | None = None
    """Anomalies of the communities, in the order of `view`; None: not computed."""
    earlier: Changed | str | None = None
    """Comparison with earlier results, or why there is none; None: none exist."""
    history: History | None = None
    """All runs of the directory, this one included; None: not on the page."""
    totals: pa.Table | None = None
    """Estimates for all nodes together (schema ``totals``); None: not on the page."""
    profile: Mapping[str, Any] | None = None
    """Profile of the input tables; None: there is none."""
    run_id: str = ""
    """Id of the results."""
    run: str = "RUN"
    """The run directory."""
    data: PageData | None = None
    """Encoded data for the page's script."""
    judged_class: str = ""
    """Class of the calibration plot, as it is printed; empty: no plot."""

    @property
    def created(self) -> str:
        """When the last stage was completed."""
        last = max((stage.created for stage in self.stages.values()), default="")
        return last[:16].replace("T", " ") + (" UTC" if last.endswith("+00:00") else "")

    @property
    def level(self) -> str:
        """Confidence level of the intervals."""
        return f"{100 * self.settings.intervals.level:g} %"

    def encoded(self, data: PageData, judged_class: str) -> PageFacts:
        """The same facts with data for the script."""
        return replace(self, data=data, judged_class=judged_class)

    def of(self, stage: str) -> Mapping[str, Any]:
        """The facts of one stage; empty if it did not run."""
        return self.stages[stage].facts if stage in self.stages else {}

    @cached_property
    def naming(self) -> Naming:
        """Names of classes, communities and nodes."""
        return Naming(self.settings.report)

    @cached_property
    def last(self) -> str:
        """The last class as it is printed, which the page's sentences are about."""
        classes = self.view.classes
        return self.naming.of_class(classes[-1]) if classes else ""

    def render(self, template: str, **values: Any) -> str:
        """Fill in the template of this name, a file of the folder `templates`.

        It also gets `settings`, `last` and `naming`.
        """
        return self._filled(environment().get_template(f"{template}.html.j2"), values)

    def render_text(self, text: str, **values: Any) -> str:
        """Like `render`, with the text of a template."""
        return self._filled(environment().from_string(text), values)

    def _filled(self, template: Template, values: Mapping[str, Any]) -> str:
        return template.render(
            settings=self.settings, last=self.last, naming=self.naming, **values
        )


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
    made.filters |= {"count": count, "share": share, "lead": _lead}
    return made


def _lead(line: str) -> Markup:
    """A line of the verdict as HTML, its first words or sentence in bold."""
    from markupsafe import Markup

    # Ranges and their unit stay on one line.
    line = line.replace(" %", "\u00a0%").replace("–", "\u2060–\u2060")
    head = re.split(r"(?<=^How sure:)|(?<=^Next:)|(?<=[.]) |(?= [(])", line, maxsplit=1)
    return Markup("<strong>{}</strong>{}").format(head[0], line[len(head[0]) :])
