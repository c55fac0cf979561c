"""Section on the input tables: rows, what was dropped, labels by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xnq_dist.core.plain_text import plain
from xnq_dist.report.page_data import Page

__all__ = ["body"]


CLASSES, FINDINGS = 12, 20
"""Maximum numbers of classes and of remarks in the section."""


def body(facts: Page) -> str:
    """Numbers of rows read; remarks of the profile, if there is one."""
    graph, labels, quantify = map(facts.of, ("graph", "labels", "quantify"))
    rows = [
        ("nodes", graph.get("n_nodes"), f"{graph.get('n_features') or 0} features"),
        ("edges", graph.get("n_edges"), _edges(graph)),
        ("labelled nodes", labels.get("n_labelled"), _classes(facts, labels)),
        ("communities", len(facts.view.names), str(quantify.get("source") or "")),
        ("memberships", quantify.get("n_memberships"), ""),
    ]
    found = [
        plain(finding["text"], 400)
        for finding in facts.profile.get("findings", ())
        if finding["level"] == "note"
    ]
    return facts.render(
        "inputs.html.j2",
        rows=rows,
        findings=found[:FINDINGS],
    )


def _edges(graph: Mapping[str, Any]) -> str:
    counts = graph.get("counts") or {}
    remarks = [f"{counts['edges_read']:,} rows read"] if "edges_read" in counts else []
    remarks.append("directed" if graph.get("directed") else "both directions counted")
    if graph.get("weighted"):
        remarks.append("weighted")
    return "; ".join(remarks)


def _classes(facts: Page, labels: Mapping[str, Any]) -> str:
    """Labelled nodes by class; numbers below 10 are not shown."""
    names, counts = labels.get("classes") or (), labels.get("class_counts") or ()
    parts = [
        f"{facts.naming.of_class(str(name), 30)}: "
        + (f"{number:,}" if number >= 10 else "fewer than 10")
        for name, number in zip(names, counts, strict=False)
    ]
    more = len(parts) - CLASSES
    return "; ".join(parts[:CLASSES]) + (f"; {more} more classes" if more > 0 else "")
