"""What a reader has to know before using a number: sentences for the page."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.plain_text import plain
from xnq_dist.report.page_data import Page
from xnq_dist.selection.words import sentences

__all__ = ["notes"]


def notes(facts: Page) -> list[tuple[str, list[str]]]:
    """Sentences by what they are about; without those that have nothing to say."""
    warnings = _warnings(facts)
    found = (
        ("how the labels were chosen", _labels(facts)),
        ("1 warning" if len(warnings) == 1 else f"{len(warnings)} warnings", warnings),
    )
    return [(what, texts) for what, texts in found if texts]


def _labels(facts: Page) -> list[str]:
    """Sentences on how the labelled nodes were chosen and what follows from it."""
    verdict = facts.of("quantify").get("labels")
    if not verdict or facts.settings.quantifier != "auto":
        return []
    texts = sentences(verdict, facts.settings.intervals.level)
    return [plain(text, 1000) for text in texts]


def _warnings(facts: Page) -> list[str]:
    """Warnings that a reader must know before using a number; one sentence each."""
    view, warnings = facts.view, []
    counts = dict(facts.of("graph").get("counts") or {})
    quantify = facts.of("quantify")
    every = facts.naming.some_communities(len(view.names))
    if stuck := int(quantify.get("not_converged") or 0):
        warnings.append(
            f"{stuck:,} of {every} did not converge (column note in "
            "prevalence.parquet): compare them with quantifier=auto."
        )
    if view.classes:
        known = ~np.isnan(view.prevalence[:, -1]) | view.suppressed
        empty = int(np.count_nonzero(~known))
        if empty:
            warnings.append(
                f"{facts.naming.some_communities(empty)} without prevalence: there is "
                "no member to estimate from (column note in prevalence.parquet)."
            )
    for number, text in (
        (
            counts.get("unknown_dropped"),
            "edges were dropped because one of their nodes is not in the node table.",
        ),
        (counts.get("duplicates_dropped"), "duplicate edges were dropped."),
        (
            quantify.get("unknown_dropped"),
            "memberships were dropped because the node is not in the node table.",
        ),
        (quantify.get("duplicates_dropped"), "duplicate memberships were dropped."),
    ):
        if number:
            warnings.append(f"{number:,} {text}")
    return warnings
