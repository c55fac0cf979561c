"""Plots of estimated against true prevalence, with one panel per method, as SVG.

Text stays text, so that names in any script are readable and can be searched.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Floats
from xnq_dist.core.plain_text import plain
from xnq_dist.evaluation.names import shown, tally
from xnq_dist.evaluation.summary import GRAPH_LEVEL, Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["INK", "MAIN", "MUTED", "Band", "diagonal_bands", "diagonals", "picture"]

INK, MUTED, GRID = "#1f2933", "#52606d", "#e4e7eb"
MAIN = "#0b6e99"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "xnq-dist",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "grid.color": GRID,
    "legend.frameon": False,
}


@dataclass(frozen=True, eq=False)
class Band:
    """Mean and standard deviation of a method's estimates at true prevalences."""

    method: str
    at: Floats
    """True prevalence, ascending, shape (n,)."""
    mean: Floats
    sd: Floats
    remark: str


def picture(
    draw: Callable[[Figure], None], width: float = 5.2, height: float = 3.6
) -> bytes:
    """SVG of a new figure with constrained layout, always with the same bytes.

    Matplotlib's global state is not changed. `width` and `height` are in inches.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # The viewer's fonts draw the text, so glyphs missing here do not matter.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        warnings.filterwarnings("ignore", "Matplotlib currently does not", UserWarning)
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        metadata: dict[str, Any] = {"Date": None, "Creator": None}
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def diagonals(summary: Summary, estimates: pa.Table) -> dict[str, bytes]:
    """SVG of every binary data set that has estimates, by file name."""
    made = {}
    for dataset in summary.of_kind("binary"):
        bands, positive = diagonal_bands(summary, estimates, dataset)
        if bands:
            clean = re.sub(r"[^A-Za-z0-9.+-]+", "-", dataset).strip("-.")
            made[f"figures/diagonal-{clean}.svg"] = _drawn(positive, bands)
    return made


def diagonal_bands(
    summary: Summary, estimates: pa.Table, dataset: str
) -> tuple[list[Band], str]:
    """Estimates of the positive class by its true prevalence, per method.

    Each fold uses the quantifier that validation chose. Mean and sample standard
    deviation are over all samples of a prevalence in all folds. The positive class,
    which appears last in the table, is returned too.
    """
    rows = estimates.filter(pc.equal(estimates["dataset"], dataset))
    if not rows.num_rows:
        return [], ""
    positive = rows["class"].unique().to_pylist()[-1]
    rows = rows.filter(pc.equal(rows["class"], positive))
    bands = []
    for method in summary.methods:
        chosen = summary.of(dataset, method)
        # One estimate per graph is not enough for a curve.
        if not chosen or method in GRAPH_LEVEL:
            continue
        parts = [
            rows.filter(
                (pc.field("method") == method)
                & (pc.field("label_share") == c.label_share)
                & (pc.field("fold") == c.fold)
                & (pc.field("quantifier") == c.quantifier)
            )
            for c in chosen
        ]
        joined = pa.concat_tables(parts)
        if joined.num_rows:
            true, estimate = joined["true"].to_numpy(), joined["estimate"].to_numpy()
            figure = summary.figure(dataset, method, "ae")
            error = f", AE {figure.mean:.3f}" if figure else ""
            remark = tally(shown(c.quantifier) for c in chosen) + error
            bands.append(Band(method, *_by_level(true, estimate), remark))
    return bands, str(positive)


def _by_level(true: Floats, estimate: Floats) -> tuple[Floats, Floats, Floats]:
    """Levels, mean and standard deviation of the estimates at each, shape (n,)."""
    levels, group = np.unique(np.round(true, 4), return_inverse=True)
    count = np.bincount(group)
    mean = np.bincount(group, estimate) / count
    square = np.bincount(group, (estimate - mean[group]) ** 2)
    return levels, mean, np.sqrt(square / np.maximum(count - 1, 1))


def _drawn(positive: str, bands: Sequence[Band]) -> bytes:
    columns = min(len(bands), 5 if len(bands) > 8 else 4)
    rows = -(-len(bands) // columns)

    def draw(canvas: Figure) -> None:
        panels = canvas.subplots(
            rows, columns, sharex=True, sharey=True, squeeze=False
        ).ravel()
        for axes, band in zip(panels, bands, strict=False):
            axes.plot([0, 1], [0, 1], "--", color=MUTED, lw=1)
            low, high = band.mean - band.sd, band.mean + band.sd
            axes.fill_between(
                band.at, low.clip(0), high.clip(max=1), color=MAIN, alpha=0.25, lw=0
            )
            axes.plot(band.at, band.mean, color=MAIN, lw=1.8)
            heading = {"loc": "left", "weight": "bold", "pad": 17, "parse_math": False}
            axes.set_title(shown(band.method), size=10, **heading)
            axes.annotate(
                band.remark,
                (0, 1),
                xytext=(0, 4),
                xycoords="axes fraction",
                textcoords="offset points",
                size=8,
                color=INK,
                va="bottom",
                parse_math=False,
            )
            axes.set_xlim(0, 1)
            axes.set_ylim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", ".5", "", "1"])
            axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", ".5", "", "1"])
            axes.set_aspect("equal")
        for place, axes in enumerate(panels):
            if place >= len(bands):
                axes.set_visible(False)
            elif place + columns >= len(bands):
                axes.tick_params(labelbottom=True)
        label = f"true prevalence of class {plain(positive, 40)}"
        canvas.supxlabel(label, parse_math=False, size=10)
        canvas.supylabel("estimated", parse_math=False, size=10)

    width, height = 0.5 + 2.2 * max(columns, 1.6), 0.4 + 2.6 * rows
    return picture(draw, width, height)
