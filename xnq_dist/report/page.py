"""The report page: makes one self-contained HTML page from tables, without I/O."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from xnq_dist.report.changed import Changed
from xnq_dist.report.page_data import page_data
from xnq_dist.report.page_facts import PageFacts, StageFacts, environment
from xnq_dist.report.sections import SECTIONS
from xnq_dist.report.verdict import Verdict, verdict

__all__ = ["StageFacts", "page", "page_verdict"]

PRINTED = ("communities", "glance", "beyond", "inputs", "computed", "cite")
"""Sections on paper, at most four pages."""


def _reliability(
    stages: Mapping[str, StageFacts], classes: Sequence[str]
) -> dict[str, Any]:
    """Bins of the shown class's calibration plot, and its name; empty: none."""
    readout = stages["readout"].facts if "readout" in stages else {}
    labels = stages["labels"].facts if "labels" in stages else {}
    names = [str(name) for name in labels.get("classes") or ()]
    curves = readout.get("reliability") or ()
    # A run of an earlier version has one curve, of the last class by value.
    if not classes or classes[-1] not in names or len(curves) != len(names):
        return {}
    curve = curves[names.index(classes[-1])]
    return {**curve, "name": classes[-1]} if any(curve["count"]) else {}


def page_verdict(facts: PageFacts) -> Verdict:
    """The verdict of a result."""
    return verdict(
        facts.view,
        facts.settings,
        facts.of("readout").get("skill"),
        int(facts.of("labels").get("n_labelled") or 0),
        facts.totals,
        facts.anomalies,
        facts.run,
    )


def page(facts: PageFacts, title: str = "") -> str:
    """Render the complete report as HTML; every text from the data is escaped.

    Parameters
    ----------
    facts
        The data.
    title
        Heading of the page; empty: share of the shown class in the communities.
    """
    from markupsafe import Markup

    view, naming = facts.view, facts.naming
    curve = _reliability(facts.stages, view.classes)
    if curve:
        curve["name"] = naming.of_class(curve["name"])
    facts = facts.encoded(
        page_data(view, facts.anomalies, facts.settings, curve or None, facts.totals),
        curve.get("name", ""),
    )
    own = {"communities": naming.communities().capitalize()}
    bodies = [
        (name, own.get(name, record.title), SECTIONS.module_of(name).body(facts))
        for name, record in SECTIONS.records().items()
    ]
    some = naming.some_communities(len(view.names))
    shown = title or f"Share of {facts.last or 'each class'} in {some}"
    script, style = _file("page.js"), _file("page.css")
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title=shown,
            created=facts.created,
            policy=(
                f"default-src 'none'; script-src '{_hash(script)}'; "
                f"style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
            ),
            # Files of this package, and a text that `page_data` has escaped.
            script=Markup(script),  # noqa: S704
            style=Markup(style),  # noqa: S704
            data=Markup(facts.data.text if facts.data else "{}"),  # noqa: S704
            verdict=page_verdict(facts),
            # A section's template has escaped every text.
            sections=[(*named, Markup(body)) for *named, body in bodies if body],  # noqa: S704
            unprinted=[name for name, *_ in bodies if name not in PRINTED],
            naming=naming,
            anomalies=facts.anomalies is not None,
            compared=isinstance(facts.earlier, Changed),
        )
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
