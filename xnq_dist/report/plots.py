"""The report's plots as SVG: functions of arrays that return the same bytes every time.

Text is stored as text, so that names in any script can be read and searched. Texts
from the data are drawn without mathematical markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.pictures import MAIN, MUTED, plain, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "DOTS",
    "partition_sizes",
    "plain_numbers",
    "prevalence_histogram",
    "reliability_curve",
    "round_ticks",
    "shown_classes",
    "top_communities",
    "vector_bar",
]

Floats = NDArray[np.float64]

DOTS = 30
"""Maximum number of communities in the plot of the highest prevalences."""
BAR_LIMIT = 64
"""Maximum number of partitions drawn as bars; more are drawn as lines."""
LEGEND_LIMIT = 6
"""Maximum number of classes in the histogram."""

COLOURS = (MAIN, "#c2571a", "#4d7c0f", "#7b3fa0", "#b03060", "#6b7280")


def top_communities(
    names: Sequence[str],
    prevalence: Floats,
    lower: Floats,
    upper: Floats,
    class_name: str,
) -> bytes:
    """Draw prevalences of communities as dots, and their intervals as bars.

    Parameters
    ----------
    names
        Names of the n communities; the first is drawn on top.
    prevalence, lower, upper
        Estimates and ends of their intervals, NaN if there is none, shape (n,).
    class_name
        Name of the class.
    """

    def draw(axes: Axes) -> None:
        rows = np.arange(len(names))[::-1]
        known = ~np.isnan(lower) & ~np.isnan(upper)
        axes.hlines(
            rows[known], lower[known], upper[known], color=MAIN, alpha=0.35, lw=4
        )
        axes.plot(prevalence, rows, "o", color=MAIN, ms=5)
        labels = [plain(name, 42) for name in names]
        axes.set_yticks(rows, labels, parse_math=False)
        axes.tick_params(axis="y", length=0)
        axes.grid(False, axis="y")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.7, len(names) - 0.3)
        _label(axes, x=f"prevalence of class {plain(class_name, 40)}")

    title = (
        f"Prevalence of class {plain(class_name)} in the {len(names)} communities "
        "where it is highest"
    )
    return _svg("top", draw, title, width=7.6, height=0.9 + 0.24 * len(names))


def prevalence_histogram(values: Floats, classes: Sequence[str]) -> bytes:
    """Draw a histogram of the communities' prevalence, one line per class.

    Parameters
    ----------
    values
        Prevalence of each community and class, NaN if there is none, shape (K, C).
    classes
        Names of the C classes. Of two classes, which mirror each other, only the last
        is drawn; of many, the last and those with the largest mean.
    """
    shown = shown_classes(values, LEGEND_LIMIT) if len(classes) > 2 else [1]

    def draw(axes: Axes) -> None:
        edges = np.linspace(0, 1, 41)
        handles = []
        for colour, c in zip(COLOURS, shown, strict=False):
            column = values[:, c]
            counts, _ = np.histogram(column[~np.isnan(column)], bins=edges)
            filled = len(shown) == 1
            alpha = 0.75 if filled else 1
            handles.append(
                axes.stairs(
                    counts, edges, color=colour, fill=filled, alpha=alpha, lw=1.6
                )
            )
        _label(
            axes,
            x="prevalence of class " + plain(classes[shown[0]], 40)
            if len(shown) == 1
            else "prevalence",
            y="communities",
        )
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        _whole_numbers(axes.yaxis)
        if len(shown) > 1:
            # With `label=`, matplotlib would leave out names that begin with "_".
            names = [f"class {plain(classes[c], 30)}" for c in shown]
            for text in axes.legend(handles, names).get_texts():
                text.set_parse_math(False)

    return _svg("histogram", draw, "Histogram of the communities' prevalence")


def shown_classes(values: Floats, limit: int) -> list[int]:
    """Columns of the last class and those of the largest mean, at most `limit`."""
    last = values.shape[1] - 1
    sums = np.where(np.isnan(values), 0.0, values).sum(axis=0)
    order = np.argsort(-sums, kind="stable").tolist()
    return [last, *(c for c in order if c != last)][:limit]


def reliability_curve(
    predicted: Floats, observed: Floats, count: Floats, name: str
) -> bytes:
    """Draw the observed share of a class against its predicted probability, in bins.

    Parameters
    ----------
    predicted, observed, count
        Mean posterior, share of the class and number of labelled nodes in every bin.
    name
        Name of the class.
    """

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], "--", color=MUTED, lw=1)
        used = count > 0
        p, o, n = predicted[used], observed[used], count[used]
        error = 1.96 * np.sqrt(np.clip(o * (1 - o), 0, None) / n)
        axes.vlines(
            p,
            np.clip(o - error, 0, 1),
            np.clip(o + error, 0, 1),
            color=MAIN,
            alpha=0.35,
            lw=3,
        )
        axes.plot(p, o, "o-", color=MAIN, ms=5, lw=1.2)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        _label(
            axes, x=f"predicted probability of class {plain(name, 34)}", y="observed"
        )

    return _svg("reliability", draw, "Reliability of the out-of-fold posteriors")


def partition_sizes(owned: Floats, halo: Floats) -> bytes:
    """Draw how many nodes each partition owns, and how many halo copies it holds."""

    def draw(axes: Axes) -> None:
        at = np.arange(len(owned))
        if len(owned) <= BAR_LIMIT:
            handles: list[Any] = [
                axes.bar(at, owned, color=MAIN),
                axes.bar(at, halo, bottom=owned, color="#f0b27a"),
            ]
        else:
            handles = [
                axes.plot(at, np.sort(owned)[::-1], color=MAIN)[0],
                axes.plot(at, np.sort(halo)[::-1], color="#c2571a")[0],
            ]
        axes.legend(handles, ["owned", "halo (copies)"])
        _whole_numbers(axes.yaxis)
        axes.grid(False, axis="x")
        axes.set_ylim(0, 1.25 * float((owned + halo).max(initial=1)))
        _whole_numbers(axes.xaxis)
        _label(
            axes,
            x="partition"
            if len(owned) <= BAR_LIMIT
            else "partitions, each curve by size",
            y="nodes",
        )

    return _svg("partitions", draw, "Owned and halo nodes of every partition")


def _label(axes: Axes, x: str = "", y: str = "") -> None:
    axes.set_xlabel(x, parse_math=False)
    axes.set_ylabel(y, parse_math=False)


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))
    axis.set_major_formatter(plain_numbers())


def round_ticks(axis: Any, low: float, high: float) -> None:
    """Set ticks of a logarithmic axis: 1, 2, 5 times powers of ten, or powers only."""
    from matplotlib.ticker import NullFormatter

    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = np.sort(np.concatenate([powers, 2 * powers, 5 * powers]))
    ticks = ticks[(ticks >= max(low, 1)) & (ticks <= high)]
    if len(ticks) > 6:
        ticks = powers[(powers >= max(low, 1)) & (powers <= high)]
    axis.set_ticks(ticks)
    axis.set_major_formatter(plain_numbers())
    axis.set_minor_formatter(NullFormatter())


def plain_numbers() -> Any:
    """Formatter of ticks as integers with thousands separators."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.0f}")


def vector_bar(bar: Any) -> None:
    """Redraw a colour bar's gradient as a few vector rectangles."""
    bar.solids.set_visible(False)
    bottom, top = bar.vmin, bar.vmax
    edges = np.geomspace(bottom, top, 25) if top > bottom > 0 else [bottom, top]
    for low, high in pairwise(edges):
        colour = bar.cmap(bar.norm((low * high) ** 0.5 if low > 0 else high))
        bar.ax.axhspan(low, high, color=colour, lw=0)
    bar.ax.grid(False)


def _svg(
    name: str, draw: Any, title: str, width: float = 5.2, height: float = 3.6
) -> bytes:
    return svg(name, title, lambda figure: draw(figure.add_subplot()), width, height)
