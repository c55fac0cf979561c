"""The data of the report page, from the published tables and without I/O.

`Page` has what the sections print, and all communities as compact columns for the
page's script: little-endian typed arrays, compressed with gzip and written as base64.
Shares are in steps of 1/10,000.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import ndtri

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.core.plain_text import plain
from xnq_dist.core.settings import Settings
from xnq_dist.report.naming import Naming
from xnq_dist.report.wording import count, share
from xnq_dist.steps.anomalies import reference_of
from xnq_dist.steps.results import Results
from xnq_dist.steps.view import NAME_LIMIT, QUALITIES, PrevalenceView

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

__all__ = ["Encoded", "Page", "environment"]


LIMIT = 4_000_000
"""Characters of encoded classes after which no class is added."""
MAX_COMMUNITIES = 100_000
"""Maximum number of communities on the page."""
NONE = 65_535
"""Code of a share that does not exist."""
NO_EFFECT = -32_768
NO_Q, LARGEST_Q = 4095, 4000
"""Codes of -1000 log10 of a q-value: none, and 1e-4 or less."""
QUALITY_BITS, BEYOND_BIT = 12, 15
SUPPRESSED = 4
"""Bits of the column `flags`."""
POINTS = 60
"""Points of a control limit."""
NOTE_LIMIT = 160
LIMITS = (0.95, 0.998)
"""Probabilities of the inner and the outer control limits, as Spiegelhalter's."""


@dataclass(frozen=True)
class Encoded:
    """Data for the page's script, and what did not fit."""

    text: str
    """JSON that is safe inside an HTML script element."""
    classes_left_out: tuple[str, ...]
    """Classes that are in the published tables only."""
    communities_left_out: int


@dataclass(frozen=True, eq=False)
class Page:
    """The data that the page's sections and its script are made from."""

    results: Results
    limit: int = LIMIT

    @property
    def view(self) -> PrevalenceView:
        """The prevalence table, arranged by community and class."""
        return self.results.view

    @property
    def settings(self) -> Settings:
        """Settings of the run."""
        return self.results.settings

    @property
    def created(self) -> str:
        """When the last stage was completed."""
        stages = self.results.stages.values()
        last = max((stage.created for stage in stages), default="")
        return last[:16].replace("T", " ") + (" UTC" if last.endswith("+00:00") else "")

    @property
    def level(self) -> str:
        """Confidence level of the intervals."""
        return f"{100 * self.settings.intervals.level:g} %"

    def of(self, stage: str) -> Mapping[str, Any]:
        """The facts of one stage; empty if it did not run."""
        return self.results.of(stage)

    def table(self, name: str) -> pa.Table | None:
        """A published table; None if there is none."""
        return self.results.tables.get(name)

    @cached_property
    def naming(self) -> Naming:
        """Names of classes, communities and nodes."""
        return Naming(self.settings.report)

    @cached_property
    def last(self) -> str:
        """The last class as it is printed, which the page's sentences are about."""
        classes = self.view.classes
        return self.naming.of_class(classes[-1]) if classes else ""

    @property
    def compared(self) -> bool:
        """Whether communities are compared with the rest."""
        return self.table("anomalies") is not None

    @cached_property
    def effect(self) -> Floats:
        """Difference of every community from its reference, (K, C); NaN: none."""
        return self._of_anomalies("effect")

    @cached_property
    def qvalue(self) -> Floats:
        """Smallest false discovery rate at which the difference is flagged, (K, C)."""
        return self._of_anomalies("qvalue")

    def _of_anomalies(self, name: str) -> Floats:
        table = self.table("anomalies")
        if table is None:
            return np.full(self.view.prevalence.shape, np.nan)
        return self.view.matrix(table, name)

    @cached_property
    def beyond(self) -> Bools:
        """Whether the difference is beyond chance, shape (K, C)."""
        return np.asarray(self.qvalue <= self.settings.anomalies.rate)

    @cached_property
    def curve(self) -> Mapping[str, Any]:
        """Bins of the last class's calibration plot, and its name; empty: no plot."""
        names = [str(name) for name in self.of("labels").get("classes") or ()]
        curves, classes = self.of("readout").get("reliability") or (), self.view.classes
        # A run of an earlier version has one curve, of the last class by value.
        if not classes or classes[-1] not in names or len(curves) != len(names):
            return {}
        curve = curves[names.index(classes[-1])]
        return {**curve, "name": self.last} if any(curve["count"]) else {}

    @cached_property
    def encoded(self) -> Encoded:
        """The data for the page's script.

        Communities are in the order of `PrevalenceView.ranked`. The last class is
        always there, others follow by falling mean share up to `limit`.
        """
        view, naming = self.view, self.naming
        order = view.ranked[:MAX_COMMUNITIES]
        sums = np.nan_to_num(view.prevalence).sum(axis=0)
        last = len(view.classes) - 1
        by_share = [c for c in np.argsort(-sums, kind="stable").tolist() if c != last]
        at = _sizes(view)
        encoded: list[dict[str, Any]] = []
        used = 0
        for c in [last, *by_share][: len(view.classes)]:
            data = _packed(self._class_columns(c, order))
            if encoded and used + len(data) > self.limit:
                continue
            used += len(data)
            encoded.append({**self._class_facts(c, at), "data": data})
        kept = {one["name"] for one in encoded}
        names = [plain(name, NAME_LIMIT) for name in view.classes]
        made = {
            "n": len(order),
            "texts": _compressed(json.dumps(_texts(view, order)).encode()),
            "base": _packed(_base_columns(view, order)),
            "classes": encoded,
            "sizes": [round(size, 3) for size in at.tolist()],
            "qualities": QUALITIES,
            "community": [naming.communities(1), naming.communities()],
            "node": [naming.nodes(1), naming.nodes()],
            "level": 100 * self.settings.intervals.level,
            "compared": self.compared,
            "intervals": view.has_intervals,
            "reliability": self.curve or None,
        }
        text = json.dumps(made, separators=(",", ":"), allow_nan=False)
        return Encoded(
            text.replace("<", "\\u003c"),
            tuple(name for name in names if name not in kept),
            len(view.names) - len(order),
        )

    def _class_facts(self, c: int, sizes: Floats) -> dict[str, Any]:
        """Names, total, reference and control limits of one class."""
        view = self.view
        reference = reference_of(view, c)
        ends = [self.total(c).get(name) for name in ("prevalence", "lower", "upper")]
        return {
            "name": plain(view.classes[c], NAME_LIMIT),
            "label": self.naming.of_class(view.classes[c]),
            "all": [_rounded(end) for end in ends],
            "reference": _rounded(reference),
            "limits": [
                [_rounded(value) for value in half.tolist()]
                for half in control_limits(view, c, reference, sizes)
            ],
        }

    def total(self, c: int = -1) -> Mapping[str, Any]:
        """The row of one class for all nodes together; empty if there is none."""
        totals = self.table("totals")
        rows = [] if totals is None else totals.to_pylist()
        name = self.view.classes[c]
        return next((row for row in rows if str(row["class"]) == name), {})

    def _class_columns(self, c: int, order: Ints) -> list[Any]:
        """Columns ``p, lower, upper, effect, rating``.

        `rating` holds the q-value, the quality and whether the difference is beyond
        chance.
        """
        codes = [_shares(values[order, c]) for values in self.view.estimates()]
        values, q = self.effect[order, c], self.qvalue[order, c]
        effect = np.full(len(order), NO_EFFECT, "<i2")
        known = ~np.isnan(values)
        effect[known] = np.rint(10_000 * values[known])
        rating = np.full(len(order), NO_Q, np.uint16)
        tested = ~np.isnan(q)
        logs = -1000 * np.log10(np.maximum(q[tested], 1e-300))
        rating[tested] = np.rint(np.minimum(logs, LARGEST_Q))
        rating += self.beyond[order, c].astype(np.uint16) << BEYOND_BIT
        rating += self.view.quality[order, c].astype(np.uint16) << QUALITY_BITS
        return [*codes, effect, rating.astype("<u2")]

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


def _sizes(view: PrevalenceView) -> Floats:
    """Sizes at which control limits are evaluated."""
    sizes = view.n_nodes[view.n_nodes > 0]
    if not len(sizes):
        return np.ones(1)
    return np.geomspace(sizes.min() / 1.3, sizes.max() * 1.3, POINTS)


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), 5)


def _texts(view: PrevalenceView, order: Ints) -> dict[str, list[str]]:
    return {
        "names": [view.name(k) for k in order.tolist()],
        "notes": _notes(view)[0],
    }


def _notes(view: PrevalenceView) -> tuple[list[str], Ints]:
    """The distinct notes, and the place of each community's note or -1."""
    encoded = view.notes.cast(pa.string()).dictionary_encode()
    places = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    texts = encoded.dictionary.to_pylist()
    return [plain(text, NOTE_LIMIT) for text in texts], places


def _base_columns(view: PrevalenceView, order: Ints) -> list[Any]:
    """Columns ``n, labelled, note, flags``, the widest types first."""
    columns: list[tuple[NDArray[Any], str]] = [
        (view.n_nodes, "<u4"),
        (view.n_labelled, "<u4"),
        (_notes(view)[1], "<i4"),
        (SUPPRESSED * view.suppressed, "u1"),
    ]
    return [values[order].astype(kind) for values, kind in columns]


def _shares(values: Floats) -> NDArray[np.uint16]:
    known = ~np.isnan(values)
    codes = np.full(len(values), NONE, "<u2")
    exact = 10_000 * np.clip(values[known], 0, 1)
    near = np.rint(exact)
    # Where a place is cut off once more, the value decides and not its rounding.
    codes[known] = near + (near % 10 == 5) * np.where(exact < near, -1, 1)
    return codes


def _packed(columns: Sequence[NDArray[Any]]) -> str:
    return _compressed(b"".join(column.tobytes() for column in columns))


def _compressed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


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
    errors = view.se[:, place] ** 2 * view.n_nodes
    errors = errors[~np.isnan(errors)]
    typical = float(np.median(errors)) if len(errors) else 0.0
    spread = np.sqrt((r * (1 - r) + typical) / at)
    return [float(ndtri((1 + one) / 2)) * spread for one in LIMITS]
