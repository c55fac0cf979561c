"""The data of the report page, from the published tables and without I/O.

`Page` has what the sections print, and all communities as columns for the page's
script: JSON, compressed with gzip and written as base64. Shares and differences are in
steps of 1/10,000.

References
----------
D. J. Spiegelhalter, "Funnel plots for comparing institutional performance", Statistics
in Medicine 24(8), 2005 (the control limits of the plot of share and size).
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.core.redaction import plain
from xnq_dist.quantify.quality import z_value
from xnq_dist.report.wording import (
    Naming,
    count,
    difference,
    points,
    probability,
    share,
    span,
)
from xnq_dist.steps.against_rest import reference_of
from xnq_dist.steps.results import Results
from xnq_dist.steps.view import NAME_LIMIT, QUALITIES, PrevalenceView

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

__all__ = ["Page", "environment"]


MAX_ESTIMATES = 400_000
"""Maximum number of estimates on the page, unless one class has more."""
MAX_COMMUNITIES = 100_000
"""Maximum number of communities on the page."""
POINTS = 60
"""Points of a control limit."""
NOTE_LIMIT = 160
LIMITS = (0.95, 0.998)
"""Probabilities of the inner and the outer control limits, as Spiegelhalter's."""
FORMATS = (count, share, points, span, difference, probability, plain)
"""Filters of the templates."""


class Page(Results):
    """Results, and the data that the page's sections and its script are made from."""

    def __init__(self, results: Results) -> None:
        # With what has been computed of them.
        vars(self).update(vars(results))
        settings = self.settings
        self.naming = Naming(settings.report)
        """Names of classes, communities and nodes."""
        self.level = f"{100 * settings.intervals.level:g} %"
        """Confidence level of the intervals."""
        self.unlabelled = "unlabelled " if settings.labelled == "exclude" else ""
        """Word before those that shares are about; empty: all."""
        self.everybody = f"{self.unlabelled}{self.naming.nodes()}"
        """The nodes that shares of the complete graph are about."""

    @property
    def created(self) -> str:
        """When the last stage was completed."""
        last = max(stage.created for stage in self.stages.values())
        return f"{last[:16].replace('T', ' ')} UTC"

    @cached_property
    def last(self) -> str:
        """The last class as it is printed, which the page's sentences are about."""
        return self.naming.of_class(self.view.classes[-1])

    @cached_property
    def beyond(self) -> Bools:
        """Whether the difference is beyond chance, shape (K, C)."""
        return np.asarray(self.compared["qvalue"] <= self.settings.anomalies.rate)

    @cached_property
    def curve(self) -> Mapping[str, Any]:
        """Bins of the last class's calibration plot, and its name; empty: no plot."""
        names = self.of("labels").get("classes") or ()
        curves = self.of("readout").get("reliability") or ()
        for name, curve in zip(names, curves, strict=False):
            if str(name) == self.view.classes[-1] and any(curve["count"]):
                return {**curve, "name": self.last}
        return {}

    @property
    def order(self) -> Ints:
        """Communities on the page, in the order of `PrevalenceView.ranked`."""
        return self.view.ranked[:MAX_COMMUNITIES]

    @cached_property
    def shown_classes(self) -> list[int]:
        """Places of the classes on the page: the last, then by falling mean share."""
        sums = np.nan_to_num(self.view.prevalence).sum(axis=0)
        sums[-1] = np.inf
        number = max(MAX_ESTIMATES // len(self.order), 1)
        return list(np.argsort(-sums, kind="stable")[:number].tolist())

    def data(self) -> str:
        """The data for the page's script: JSON that is safe inside a script element."""
        view, naming, order = self.view, self.naming, self.order
        sizes = _sizes(view)
        made = {
            "n": len(order),
            "rows": _packed(self._rows()),
            "classes": [self._class_facts(c, sizes) for c in self.shown_classes],
            "sizes": [round(size, 3) for size in sizes.tolist()],
            "qualities": QUALITIES,
            "community": [naming.communities(1), naming.communities()],
            "sized": f"{self.unlabelled}members",
            "node": [naming.nodes(1), naming.nodes()],
            "level": 100 * self.settings.intervals.level,
            "intervals": view.has_intervals,
            "reliability": self.curve or None,
        }
        return _json(made).replace("<", "\\u003c")

    def _rows(self) -> dict[str, list[Any]]:
        """Columns of the communities; `note` is a place in `notes`, or -1."""
        view, order = self.view, self.order
        notes = view.notes.cast(pa.string()).dictionary_encode()
        places = pc.fill_null(notes.indices, -1).to_numpy()
        return {
            "names": [view.name(k) for k in order.tolist()],
            "notes": [plain(text, NOTE_LIMIT) for text in notes.dictionary.to_pylist()],
            "members": view.n_nodes[order].tolist(),
            "counted": view.about[order].tolist(),
            "labelled": view.n_labelled[order].tolist(),
            "note": places[order].tolist(),
            "suppressed": view.suppressed[order].tolist(),
        }

    def _class_facts(self, c: int, sizes: Floats) -> dict[str, Any]:
        """Names, total, reference, control limits and packed columns of one class."""
        view, order = self.view, self.order
        reference = reference_of(view, c)
        ends = [self.total(c).get(name) for name in ("prevalence", "lower", "upper")]
        columns = {
            "p": _steps(view.prevalence[order, c]),
            "lower": _steps(view.lower[order, c]),
            "upper": _steps(view.upper[order, c]),
            "effect": _steps(self.compared["effect"][order, c]),
            "q": [probability(q) for q in self.compared["qvalue"][order, c].tolist()],
            "beyond": self.beyond[order, c].tolist(),
            "quality": view.quality[order, c].tolist(),
        }
        return {
            "name": plain(view.classes[c], NAME_LIMIT),
            "label": self.naming.of_class(view.classes[c]),
            "all": [_rounded(end) for end in ends],
            "reference": _rounded(reference),
            "limits": [
                [_rounded(value) for value in half.tolist()]
                for half in control_limits(view, c, reference, sizes)
            ],
            "data": _packed(columns),
        }

    def total(self, c: int = -1) -> Mapping[str, Any]:
        """The row of one class for all nodes together; empty if there is none."""
        totals, classes = self.tables.get("totals"), self.view.classes
        rows = totals.to_pylist() if totals else []
        return next((row for row in rows if str(row["class"]) == classes[c]), {})

    def render(self, template: str | Template, **values: Any) -> str:
        """Fill in a template, or the file of this name in the folder `templates`.

        It also gets this `page`, and its `settings`, `last` and `naming`.
        """
        of_page = {"settings": self.settings, "last": self.last, "naming": self.naming}
        known = environment().get_template(template)
        return known.render(page=self, **of_page, **values)


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
    made.filters |= {each.__name__: each for each in FORMATS}
    made.filters |= {"lead": _lead, "name": _name}
    return made


def _name(value: Any) -> str:
    """The name of a community or class in any type."""
    return plain(str(value), NAME_LIMIT)


def _lead(line: str) -> Markup:
    """A line of the verdict as HTML, its first words or sentence in bold."""
    from markupsafe import Markup

    # Ranges and their unit stay on one line.
    line = line.replace(" %", "\u00a0%").replace("–", "\u2060–\u2060")
    head = re.split(r"(?<=^How sure:)|(?<=^Next:)|(?<=[.]) |(?= [(])", line, maxsplit=1)
    return Markup("<strong>{}</strong>{}").format(head[0], line[len(head[0]) :])


def _sizes(view: PrevalenceView) -> Floats:
    """Sizes at which control limits are evaluated."""
    sizes = view.about[view.about > 0]
    if not len(sizes):
        return np.ones(1)
    return np.geomspace(sizes.min() / 1.3, sizes.max() * 1.3, POINTS)


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), 5)


def _steps(values: Floats) -> list[int | None]:
    """Values in steps of 1/10,000; None for NaN."""
    exact = 10_000 * np.nan_to_num(values)
    near = np.rint(exact)
    # Where the page prints one place less, the value decides and not its rounding.
    near += (near % 10 == 5) * np.where(exact < near, -1, 1)
    steps = pa.array(near.astype(np.int64), mask=np.isnan(values))
    return list(steps.to_pylist())


def _json(values: Any) -> str:
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def _packed(columns: dict[str, list[Any]]) -> str:
    """Columns as JSON, compressed and written as base64."""
    data = gzip.compress(_json(columns).encode(), 6, mtime=0)
    return base64.b64encode(data).decode()


def control_limits(
    view: PrevalenceView, place: int, r: float, at: Floats
) -> list[Floats]:
    """Half-widths of the inner and outer control limits at some sizes.

    The limits contain 95 and 99.8 % of communities of a size n whose members are a
    random sample with prevalence r, the reference, and whose estimates have the typical
    standard error of that size: ``r +- z sqrt((r (1 - r) + c) / n)``, where c is the
    median of n times the squared standard error.
    """
    if np.isnan(r):
        return []
    errors = view.se[:, place] ** 2 * view.about
    errors = errors[~np.isnan(errors)]
    typical = float(np.median(errors)) if len(errors) else 0.0
    spread = np.sqrt((r * (1 - r) + typical) / at)
    return [z_value(one) * spread for one in LIMITS]
