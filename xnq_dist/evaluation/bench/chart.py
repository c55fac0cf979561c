"""What a run costs against the size of its graph, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xnq_dist.core.pictures import INK, MUTED, Picture, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["cost_chart"]

COLOURS = {
    "graph": "#0b6e99",
    "embed": "#d9730d",
    "readout": "#448361",
    "quantify": "#9065b0",
}


def cost_chart(runs: Sequence[Mapping[str, Any]], title: str) -> Picture:
    """Processor seconds of each stage and of all against directed edges.

    Parameters
    ----------
    runs
        From `measure_stages`, by rising size.
    title
        What was run.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        edges = [run["edges"] for run in runs]
        total = [
            sum(figures["cpu"] for figures in run["stages"].values()) for run in runs
        ]
        for stage, colour in COLOURS.items():
            if stage not in runs[0]["stages"]:
                continue
            spent = [run["stages"][stage]["cpu"] for run in runs]
            axes.plot(edges, spent, "o-", color=colour, label=stage, lw=1.5, ms=4)
        axes.plot(edges, total, "o-", color=INK, label="all", lw=2.2, ms=5)
        # What it would be if each edge cost what it does in the largest graph.
        straight = [total[-1] * count / edges[-1] for count in edges]
        shown = [(e, s) for e, s in zip(edges, straight, strict=True) if s > 0.3]
        axes.plot(*zip(*shown, strict=True), ":", color=MUTED, label="in proportion")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("directed edges")
        axes.set_ylabel("processor seconds, all processes")
        axes.set_title(title, fontsize=10, loc="left")
        axes.legend(fontsize=9)

    return picture("scale", title, draw, 6.4, 3.8)
