"""Style of all plots, and reproducible output of a figure as SVG or PNG.

Text in SVG stays text, so that names in any script are readable and can be searched.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["INK", "MAIN", "MUTED", "Picture", "picture"]

INK, MUTED, GRID = "#1f2933", "#52606d", "#e4e7eb"
MAIN = "#0b6e99"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "xnq-dist",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}
PIXELS = 150
"""Pixels per inch of a PNG."""

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"


@dataclass(frozen=True)
class Picture:
    """A plot in two formats."""

    svg: bytes
    png: bytes
    title: str


Draw = Callable[["Figure"], None]


def picture(
    name: str, title: str, draw: Draw, width: float = 5.2, height: float = 3.6
) -> Picture:
    """Draw a new figure in both formats; global state of Matplotlib is unchanged.

    Parameters
    ----------
    name
        Prefix of the ids in the SVG, so that several can be on one page.
    title
        Text for screen readers.
    draw
        Draws into the figure, whose layout is constrained.
    width, height
        Inches.
    """
    with _figure(draw, width, height) as figure:
        # The layout takes longer than the drawing: compute it once for both formats.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        vector = _accessible(name, figure, title)
        buffer = io.BytesIO()
        figure.savefig(
            buffer,
            format="png",
            dpi=PIXELS,
            facecolor="white",
            metadata={"Software": None},
        )
        return Picture(vector, buffer.getvalue(), title)


@contextmanager
def _figure(draw: Draw, width: float, height: float) -> Iterator[Figure]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # The viewer's fonts draw the text, so glyphs missing here do not matter.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        warnings.filterwarnings("ignore", "Matplotlib currently does not", UserWarning)
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        yield figure


def _accessible(name: str, figure: Figure, title: str) -> bytes:
    """The figure as SVG with a title, fluid size, and ids prefixed by its name."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314 - made just above
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        # Several plots share a page: ids must be unique.
        _prefix_ids(element.attrib, name)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    head = ElementTree.Element(f"{{{_SVG}}}title", {"id": f"{name}-title"})
    head.text = title
    root.insert(0, head)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title")
    text: bytes = ElementTree.tostring(root, encoding="utf-8")
    return text


def _prefix_ids(attributes: dict[str, str], name: str) -> None:
    for key, value in attributes.items():
        if key == "id":
            attributes[key] = f"{name}-{value}"
        elif key in ("href", f"{{{_XLINK}}}href") and value.startswith("#"):
            attributes[key] = f"#{name}-{value[1:]}"
        else:
            attributes[key] = value.replace("url(#", f"url(#{name}-")
