"""Section with the plots, which the page's script draws."""

from __future__ import annotations

from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """A place for every plot, with its caption."""
    return facts.render("glance.html.j2")
