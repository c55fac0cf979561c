"""Section on how to cite the result and the software."""

from __future__ import annotations

from xnq_dist._version import __version__
from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """The citation, with the id of the run."""
    return facts.render("cite.html.j2", version=__version__)
