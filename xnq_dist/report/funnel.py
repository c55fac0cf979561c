"""The funnel plot: prevalence against community size, with control limits.

References
----------
D. J. Spiegelhalter, "Funnel plots for comparing institutional performance", Statistics
in Medicine 24(8), 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from xnq_dist.core.config import Settings
from xnq_dist.core.pictures import INK, MAIN, plain, svg
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.plots import plain_numbers, round_ticks, vector_bar
from xnq_dist.report.view import PrevalenceView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MAX_DOTS", "Funnel", "control_limits", "funnel", "typical_error"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_DOTS = 5000
"""Maximum number of communities drawn as dots; more are counted in hexagons."""
LIMITS = (0.95, 0.998)
"""Probabilities of the inner and the outer control limits, as Spiegelhalter's."""
CELLS = (110, 60)
"""Grid (columns, rows) in which a mark of one kind is drawn at most once per cell."""
STEPS_A_DECADE = 6
"""Maximum number of size ranges per decade for the typical error."""
MIN_COMMUNITIES = 12
"""Minimum number of communities in a size range."""
WARM, WARN = "#c2571a", "#6d28a8"


@dataclass(frozen=True, eq=False)
class Funnel:
    """Data of the plot for K communities."""

    sizes: Floats
    """Members, shape (K,)."""
    prevalence: Floats
    """Prevalence of the plotted class; NaN if there is none, shape (K,)."""
    error: Floats
    """Standard error of the estimate; NaN without an interval, shape (K,)."""
    reference: float
    """Prevalence that communities are compared with."""
    higher: Mask
    """Beyond chance above the reference, shape (K,)."""
    lower: Mask
    """Beyond chance below the reference, shape (K,)."""
    flagged: Mask
    """Whether the expected error is large, shape (K,)."""

    @classmethod
    def of(
        cls,
        view: PrevalenceView,
        anomalies: Anomalies | None,
        settings: Settings,
        place: int = -1,
    ) -> Funnel:
        """Plot data of the class in one column of a view."""
        p = view.prevalence[:, place]
        sizes = view.n_nodes.astype(np.float64)
        half = (view.upper[:, place] - view.lower[:, place]) / 2
        known = ~np.isnan(p) & (sizes > 0)
        reference = np.nan
        if anomalies is not None:
            reference = float(anomalies.centre[place])
        elif settings.anomalies.reference != "rest":
            if place in (-1, len(view.classes) - 1):
                reference = float(settings.anomalies.reference)
        elif known.any():
            reference = float((sizes[known] * p[known]).sum() / sizes[known].sum())
        beyond, effect = np.zeros(len(p), np.bool_), np.zeros(len(p))
        if anomalies is not None:
            beyond = anomalies.qvalue[:, place] <= settings.anomalies.rate
            effect = anomalies.effect[:, place]
        return cls(
            sizes=sizes,
            prevalence=p,
            error=half / float(ndtri((1 + settings.intervals.level) / 2)),
            reference=reference,
            higher=beyond & (effect > 0),
            lower=beyond & (effect < 0),
            flagged=view.flagged,
        )


def typical_error(sizes: Floats, error: Floats, at: Floats) -> Floats:
    """Median standard error of communities as a function of size.

    Parameters
    ----------
    sizes, error
        Sizes and standard errors of the communities, NaN if unknown, shape (K,).
    at
        Sizes to evaluate the function at, shape (n,).

    Returns
    -------
    NDArray
        Shape (n,), interpolated in log size between medians of size ranges; 0 when no
        error is known.
    """
    known = ~np.isnan(error) & (sizes > 0)
    if not known.any():
        return np.zeros(len(at))
    order = np.argsort(sizes[known], kind="stable")
    place, errors = np.log10(sizes[known][order]), error[known][order]
    steps = np.arange(np.ceil(place[0] * STEPS_A_DECADE), place[-1] * STEPS_A_DECADE)
    starts = [0]
    for end in np.searchsorted(place, (steps + 1) / STEPS_A_DECADE).tolist():
        if min(end - starts[-1], len(place) - end) >= MIN_COMMUNITIES:
            starts.append(end)
    ranges = [slice(a, b) for a, b in pairwise([*starts, len(place)])]
    middles = [float(np.median(place[one])) for one in ranges]
    medians = [float(np.median(errors[one])) for one in ranges]
    return np.interp(np.log10(at), middles, medians)


def funnel(shown: Funnel, name: str) -> bytes:
    """Draw prevalence of a class against the logarithm of size, as SVG.

    The band and the dashed lines are control limits: they contain 95 and 99.8 % of
    communities of a size n whose members are a random sample with prevalence r, the
    reference, and whose estimates have the typical standard error e(n) of that size:
    ``r +- z sqrt(r (1 - r) / n + e(n)^2)``. More than `MAX_DOTS` communities are
    counted in hexagons. Triangles, which point away from the reference, mark
    communities beyond chance, and diamonds those whose expected error is large. Marks
    that would cover each other are drawn once.

    Parameters
    ----------
    shown
        Data of the plot.
    name
        Name of the class.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        known = ~np.isnan(shown.prevalence) & (shown.sizes > 0)
        n, p = shown.sizes[known], shown.prevalence[known]
        if not len(n):
            return
        axes.set_xscale("log")
        low, high = n.min() / 1.3, n.max() * 1.3
        _limits(axes, shown, np.geomspace(low, high, 100))
        axes.set_xlim(low, high)
        axes.set_ylim(-0.03, 1.03)
        many = len(n) > MAX_DOTS
        if many:
            _hexagons(axes, n, p)
        else:
            axes.plot(n, p, "o", color=MAIN, alpha=0.45, ms=4, mec="none")
        _marks(axes, shown, known, many)
        round_ticks(axes.xaxis, low, high)
        axes.set_xlabel("members")
        axes.set_ylabel(f"prevalence of class {plain(name, 40)}", parse_math=False)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(
                loc="outside upper left",
                ncols=3,
                fontsize=9,
                handletextpad=0.3,
                columnspacing=1.2,
            )

    title = f"Funnel plot: prevalence of class {plain(name)} against community size"
    return svg("funnel", title, draw, width=7.6, height=4.4)


def control_limits(shown: Funnel, at: Floats) -> list[Floats]:
    """Half-widths of the inner and outer control limits at some sizes; see `funnel`."""
    r = shown.reference
    if np.isnan(r):
        return []
    error = typical_error(shown.sizes, shown.error, at)
    spread = np.sqrt(r * (1 - r) / at + error**2)
    return [float(ndtri((1 + one) / 2)) * spread for one in LIMITS]


def _limits(axes: Axes, shown: Funnel, at: Floats) -> None:
    r = shown.reference
    if np.isnan(r):
        return
    inner, outer = control_limits(shown, at)
    low, high = (np.clip(r + sign * inner, 0, 1) for sign in (-1, 1))
    axes.fill_between(at, low, high, color=INK, alpha=0.07, lw=0)
    for sign in (-1, 1):
        curve = np.clip(r + sign * outer, 0, 1)
        axes.plot(at, curve, "--", color=INK, lw=0.8)
    axes.axhline(r, color=INK, lw=1)


def _hexagons(axes: Axes, n: Floats, p: Floats) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # A hexagon with one community must be visible on white.
    colours = ListedColormap(colormaps["GnBu"](np.linspace(0.25, 1, 128)))
    bins = axes.hexbin(
        n,
        p,
        xscale="log",
        bins="log",
        gridsize=(55, 26),
        extent=(*np.log10(axes.get_xlim()), 0, 1),
        mincnt=1,
        cmap=colours,
        linewidths=0.1,
    )
    bar = axes.figure.colorbar(bins, ax=axes, pad=0.02, shrink=0.85)
    # A gradient would be a bitmap.
    vector_bar(bar)
    bar.ax.yaxis.set_major_formatter(plain_numbers())
    bar.set_label("communities")


def _marks(axes: Axes, shown: Funnel, known: Mask, many: bool) -> None:
    for chosen, mark, colour, size, text in (
        (shown.higher, "^", WARM, 5.5, "more than chance"),
        (shown.lower, "v", WARM, 5.5, "less than chance"),
        (shown.flagged, "D", WARN, 7.5, "large expected error"),
    ):
        places = np.flatnonzero(chosen & known)
        if not len(places):
            continue
        n, p = shown.sizes[places], shown.prevalence[places]
        if many:
            kept = _apart(n, p, axes.get_xlim())
            n, p = n[kept], p[kept]
            size *= 0.7
        hollow = mark == "D"
        axes.plot(
            n,
            p,
            mark,
            ms=size,
            mfc="none" if hollow else colour,
            mec=colour if hollow else "white",
            mew=1.1 if hollow else 0.4,
            label=f"{text} ({len(places):,})",
            clip_on=False,
        )


def _apart(n: Floats, p: Floats, ends: tuple[float, float]) -> NDArray[np.int64]:
    """Indices of one community per cell of the plot, so that marks do not overlap."""
    low, high = np.log10(ends)
    across = np.floor((np.log10(n) - low) / (high - low) * CELLS[0]).astype(np.int64)
    up = np.floor(p * CELLS[1]).astype(np.int64)
    _, first = np.unique(across * (CELLS[1] + 1) + up, return_index=True)
    return np.sort(first)
