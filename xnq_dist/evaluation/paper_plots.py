"""The paper's plots: diagonal, error against time, error against labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.pictures import INK, MUTED, Picture, picture, plain
from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.summary import FoldMean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = [
    "AE_LIMIT",
    "Band",
    "Point",
    "draw_diagonals",
    "draw_shares",
    "draw_times",
]

Floats = NDArray[np.float64]
Looks = Mapping[str, tuple[str, str]]
"""Colour and marker of every method."""

AE_LIMIT = 0.125
"""Errors above it are left out of the plot against time, as in the paper."""
SIZES = {"*": 12, "P": 8, "X": 8}
"""Of markers, in points, that look smaller than the others."""


@dataclass(frozen=True, eq=False)
class Band:
    """Mean and standard deviation along an axis, of one method."""

    method: str
    at: Floats
    """True prevalence, or share of labels, ascending, shape (n,)."""
    mean: Floats
    sd: Floats
    remark: str = ""


@dataclass(frozen=True)
class Point:
    """One method in the plot against time."""

    method: str
    seconds: float
    figure: FoldMean


def draw_diagonals(
    name: str,
    dataset: str,
    positive: str,
    bands: Sequence[Band],
    looks: Looks,
) -> Picture:
    """A panel for each method: estimated against true prevalence, and the diagonal."""
    columns = min(len(bands), 5 if len(bands) > 8 else 4)
    rows = -(-len(bands) // columns)

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(
            rows, columns, sharex=True, sharey=True, squeeze=False
        ).ravel()
        for axes, band in zip(panels, bands, strict=False):
            colour = looks[band.method][0]
            axes.plot([0, 1], [0, 1], "--", color=MUTED, lw=1)
            low, high = band.mean - band.sd, band.mean + band.sd
            axes.fill_between(
                band.at, low.clip(0), high.clip(max=1), color=colour, alpha=0.25, lw=0
            )
            axes.plot(band.at, band.mean, color=colour, lw=1.8)
            _heading(axes, shown(band.method), band.remark)
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
        cut = plain(positive, 40)
        canvas.supxlabel(f"true prevalence of class {cut}", parse_math=False, size=10)
        canvas.supylabel("estimated", parse_math=False, size=10)

    title = (
        f"Estimated against true prevalence of class {plain(positive)} on "
        f"{plain(shown(dataset))}"
    )
    width, height = 0.5 + 2.2 * max(columns, 1.6), 0.4 + 2.6 * rows
    return picture(name, title, draw, width, height)


def draw_times(
    name: str,
    points: Mapping[str, Sequence[Point]],
    looks: Looks,
) -> Picture:
    """AE against seconds of the most expensive configuration, a panel a data set."""

    def panel(axes: Axes, dataset: str) -> None:
        inside = [p for p in points[dataset] if p.figure.mean <= AE_LIMIT]
        outside = [p for p in points[dataset] if p.figure.mean > AE_LIMIT]
        for point in inside:
            colour, marker = looks[point.method]
            axes.errorbar(
                point.seconds,
                point.figure.mean,
                yerr=point.figure.sd,
                color=colour,
                marker=marker,
                ms=SIZES.get(marker, 7),
                mec="white",
                mew=0.6,
                lw=1,
                alpha=0.95,
            )
        axes.set_xscale("log")
        seconds = [p.seconds for p in inside] or [1.0]
        _decades(axes, min(seconds) / 1.6, max(seconds) * 1.6)
        axes.set_ylim(0, AE_LIMIT)
        left_out = ", ".join(shown(p.method) for p in outside)
        said = f"{len(outside)} above {AE_LIMIT}: {left_out}" if outside else ""
        _heading(axes, plain(shown(dataset), 26), _wrapped(said))

    methods = [
        m
        for m in looks
        if any(
            p.method == m and p.figure.mean <= AE_LIMIT
            for found in points.values()
            for p in found
        )
    ]
    return _panels(
        name,
        "Test AE against the seconds of each method's most expensive configuration",
        list(points),
        panel,
        methods,
        looks,
        ("seconds of the most expensive configuration", "AE"),
        lines=False,
    )


def draw_shares(
    name: str,
    curves: Mapping[str, Sequence[Band]],
    looks: Looks,
) -> Picture:
    """AE against the share of labels kept, a panel a data set; bands: sd over folds."""
    highest = {
        dataset: max(float((band.mean + band.sd).max()) for band in bands)
        for dataset, bands in curves.items()
    }

    def panel(axes: Axes, dataset: str) -> None:
        for band in curves[dataset]:
            colour, marker = looks[band.method]
            axes.fill_between(
                band.at,
                (band.mean - band.sd).clip(0),
                band.mean + band.sd,
                color=colour,
                alpha=0.15,
                lw=0,
            )
            axes.plot(
                band.at,
                band.mean,
                color=colour,
                marker=marker,
                ms=SIZES.get(marker, 7),
                mec="white",
                mew=0.6,
                lw=1.5,
            )
        axes.set_xscale("log")
        shares = np.unique(np.concatenate([band.at for band in curves[dataset]]))
        _share_ticks(axes, shares)
        axes.set_ylim(0, 1.08 * highest[dataset] or 1)
        _heading(axes, plain(shown(dataset), 26), "")

    methods = [
        m for m in looks if any(b.method == m for bs in curves.values() for b in bs)
    ]
    return _panels(
        name,
        "Test AE against the share of labels kept",
        list(curves),
        panel,
        methods,
        looks,
        ("share of the training and calibration labels", "AE"),
        lines=True,
    )


def _panels(
    name: str,
    title: str,
    datasets: Sequence[str],
    panel: Callable[[Axes, str], None],
    methods: Sequence[str],
    looks: Looks,
    labels: tuple[str, str],
    lines: bool,
) -> Picture:
    """A grid of panels with one legend on the right."""
    columns = 2 if len(datasets) == 4 else min(len(datasets), 3)
    rows = -(-len(datasets) // columns)

    def draw(canvas: Canvas) -> None:
        from matplotlib.lines import Line2D

        panels = canvas.subplots(rows, columns, squeeze=False).ravel()
        for axes, dataset in zip(panels, datasets, strict=False):
            panel(axes, dataset)
        for axes in panels[len(datasets) :]:
            axes.set_visible(False)
        handles = [
            Line2D(
                [],
                [],
                color=looks[m][0],
                marker=looks[m][1],
                ms=SIZES.get(looks[m][1], 7),
                mec="white",
                mew=0.6,
                lw=1.5 if lines else 0,
            )
            for m in methods
        ]
        if handles:
            names = [plain(shown(m), 24) for m in methods]
            legend = canvas.legend(handles, names, loc="outside right upper")
            for entry in legend.get_texts():
                entry.set_parse_math(False)
        canvas.supxlabel(labels[0], parse_math=False, size=10)
        canvas.supylabel(labels[1], parse_math=False, size=10)

    return picture(name, title, draw, 1.9 + 2.9 * columns, 0.5 + 2.7 * rows)


def _heading(axes: Axes, title: str, remark: str) -> None:
    """Name of a panel, and under it a remark in small letters."""
    lines = remark.count("\n") + 1 if remark else 0
    axes.set_title(
        title, loc="left", size=10, weight="bold", pad=6 + 11 * lines, parse_math=False
    )
    if remark:
        axes.annotate(
            remark,
            (0, 1),
            xytext=(0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            size=8,
            color=INK,
            va="bottom",
            parse_math=False,
        )


def _wrapped(said: str, width: int = 38) -> str:
    """Broken into lines between names."""
    lines = [""]
    for word in said.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _decades(axes: Axes, low: float, high: float) -> None:
    """Limits and ticks of a logarithmic axis of seconds, as plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    steps = (1, 3) if high / low < 300 else (1,)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) < 2:
        low = max([tick for tick in ticks if tick <= low], default=low)
        high = min([tick for tick in ticks if tick >= high], default=high)
        inside = [tick for tick in ticks if low <= tick <= high]
    inside = inside[:: -(-len(inside) // 5)]
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(inside))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _share_ticks(axes: Axes, shares: Floats) -> None:
    """Ticks at the shares that were evaluated, those too close left out."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    kept: list[float] = []
    wide = np.log(shares[-1] / shares[0])
    for share in shares[::-1]:
        if not kept or np.log(kept[-1] / share) > 0.2 * wide:
            kept.append(float(share))
    axes.set_xlim(shares[0] / 1.1, shares[-1] * 1.1)
    axes.xaxis.set_major_locator(FixedLocator(kept[::-1]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_percent))


def _percent(value: float, _: Any) -> str:
    return f"{100 * value:.3g} %"
