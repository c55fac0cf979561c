"""The data of the report page: all communities as compact columns, without I/O.

Columns are little-endian typed arrays, compressed with gzip and written as base64; the
page's script reads them. Shares are in steps of 1/10,000.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.plain_text import plain
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.funnel import control_limits, reference_of
from xnq_dist.report.naming import Naming
from xnq_dist.report.view import NAME_LIMIT, QUALITIES, PrevalenceView

__all__ = ["LIMIT", "MAX_COMMUNITIES", "PageData", "page_data"]


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


@dataclass(frozen=True)
class PageData:
    """Data for the page's script, and what did not fit."""

    text: str
    """JSON that is safe inside an HTML script element."""
    classes_left_out: tuple[str, ...]
    """Classes that are in the published tables only."""
    communities_left_out: int


def page_data(
    view: PrevalenceView,
    anomalies: Anomalies | None,
    settings: Settings,
    reliability: Mapping[str, Sequence[float | None]] | None = None,
    totals: pa.Table | None = None,
    limit: int = LIMIT,
) -> PageData:
    """Encode a view for the page's script.

    Parameters
    ----------
    view, anomalies
        Estimates and comparisons, stored in the order of `PrevalenceView.ranked`.
    settings
        Settings of the run.
    reliability
        Bins of the calibration plot: ``name`` of the class, ``predicted``,
        ``observed``, ``count``; None: no plot.
    totals
        Estimates for all nodes together (schema ``totals``).
    limit
        Characters of encoded classes after which no class is added. The last class
        is always there, others follow by falling mean share.
    """
    naming = Naming(settings.report)
    order = view.ranked[:MAX_COMMUNITIES]
    sums = np.nan_to_num(view.prevalence).sum(axis=0)
    last = len(view.classes) - 1
    by_share = [c for c in np.argsort(-sums, kind="stable").tolist() if c != last]
    at, level = _sizes(view), settings.intervals.level
    every = {} if totals is None else {str(r["class"]): r for r in totals.to_pylist()}
    encoded: list[dict[str, Any]] = []
    used = 0
    for c in [last, *by_share][: len(view.classes)]:
        data = _packed(_class_columns(view, anomalies, settings, c, order))
        if encoded and used + len(data) > limit:
            continue
        used += len(data)
        reference = reference_of(view, anomalies, settings, c)
        every_node = every.get(view.classes[c], {})
        ends = [every_node.get(name) for name in ("prevalence", "lower", "upper")]
        encoded.append(
            {
                "name": plain(view.classes[c], NAME_LIMIT),
                "label": naming.of_class(view.classes[c]),
                "all": [_rounded(end) for end in ends],
                "reference": _rounded(reference),
                "limits": [
                    [_rounded(value) for value in half.tolist()]
                    for half in control_limits(view, c, reference, level, at)
                ],
                "data": data,
            }
        )
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
        "level": 100 * settings.intervals.level,
        "rest": settings.anomalies.reference == "rest",
        "compared": anomalies is not None,
        "intervals": view.has_intervals,
        "reliability": reliability,
    }
    text = json.dumps(made, separators=(",", ":"), allow_nan=False)
    return PageData(
        text.replace("<", "\\u003c"),
        tuple(name for name in names if name not in kept),
        len(view.names) - len(order),
    )


def _sizes(view: PrevalenceView) -> Floats:
    """Sizes at which control limits are evaluated."""
    sizes = view.n_nodes[view.n_nodes > 0]
    if not len(sizes):
        return np.ones(1)
    return np.geomspace(sizes.min() / 1.3, sizes.max() * 1.3, POINTS)


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), 5)


def _texts(view: PrevalenceView, order: NDArray[np.int64]) -> dict[str, list[str]]:
    return {
        "names": [view.name(k) for k in order.tolist()],
        "notes": _notes(view)[0],
    }


def _notes(view: PrevalenceView) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct notes, and the place of each community's note or -1."""
    encoded = view.notes.cast(pa.string()).dictionary_encode()
    places = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    texts = encoded.dictionary.to_pylist()
    return [plain(text, NOTE_LIMIT) for text in texts], places


def _base_columns(view: PrevalenceView, order: NDArray[np.int64]) -> list[Any]:
    """Columns ``n, labelled, note, flags``, the widest types first."""
    columns: list[tuple[NDArray[Any], str]] = [
        (view.n_nodes, "<u4"),
        (view.n_labelled, "<u4"),
        (_notes(view)[1], "<i4"),
        (SUPPRESSED * view.suppressed, "u1"),
    ]
    return [values[order].astype(kind) for values, kind in columns]


def _class_columns(
    view: PrevalenceView,
    anomalies: Anomalies | None,
    settings: Settings,
    c: int,
    order: NDArray[np.int64],
) -> list[Any]:
    """Columns ``p, lower, upper, effect, rating``.

    `rating` holds the q-value, the quality and whether the difference is beyond chance.
    """
    codes = [_shares(values[order, c]) for values in view.estimates()]
    effect = np.full(len(order), NO_EFFECT, "<i2")
    rating = np.full(len(order), NO_Q, np.uint16)
    if anomalies is not None:
        values, q = anomalies.effect[order, c], anomalies.qvalue[order, c]
        known = ~np.isnan(values)
        effect[known] = np.rint(10_000 * values[known])
        tested = ~np.isnan(q)
        logs = -1000 * np.log10(np.maximum(q[tested], 1e-300))
        rating[tested] = np.rint(np.minimum(logs, LARGEST_Q))
        rating += (q <= settings.anomalies.rate).astype(np.uint16) << BEYOND_BIT
    rating += view.quality[order, c].astype(np.uint16) << QUALITY_BITS
    return [*codes, effect, rating.astype("<u2")]


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
