"""Section with the plots, which the page's script draws."""

from __future__ import annotations

from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """A place for every plot, with its caption."""
    view = facts.view
    if not view.classes or not len(view.names):
        return ""
    return facts.render("glance.html.j2")
