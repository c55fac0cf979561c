"""The report page: one self-contained HTML page from the published tables."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any

from xnq_dist.report.page_data import Page
from xnq_dist.report.sections import SECTIONS
from xnq_dist.report.verdict import verdict
from xnq_dist.steps.results import Results

__all__ = ["make", "page"]

PRINTED = ("communities", "glance", "beyond", "inputs", "computed", "cite")
"""Sections on paper, at most four pages."""


def make(results: Results) -> dict[str, Any]:
    """The page, and the verdict as a fact."""
    shown = Page(results)
    return {"report.html": page(shown).encode(), "verdict": asdict(verdict(shown))}


def page(shown: Page) -> str:
    """Render the complete report as HTML; every text from the data is escaped."""
    from markupsafe import Markup

    naming = shown.naming
    own = {"communities": naming.communities().capitalize()}
    bodies = [
        (name, own.get(name, title), body(shown))
        for name, (title, body) in SECTIONS.items()
    ]
    some = naming.some_communities(len(shown.view.names))
    script, style = _file("page.js"), _file("page.css")
    return shown.render(
        "report.html.j2",
        title=f"Share of {shown.last} in {some}",
        policy=(
            f"default-src 'none'; script-src '{_hash(script)}'; "
            f"style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
        ),
        # Files of this package, and a text that `Page.data` has escaped.
        script=Markup(script),  # noqa: S704
        style=Markup(style),  # noqa: S704
        data=Markup(shown.data()),  # noqa: S704
        verdict=verdict(shown),
        # A section's template has escaped every text.
        sections=[(*named, Markup(body)) for *named, body in bodies if body],  # noqa: S704
        printed=PRINTED,
    )


@cache
def _file(name: str) -> str:
    """A file of the folder `templates`."""
    folder = resources.files("xnq_dist.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The hash by which a content security policy allows an inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
