"""What a reader has to know before using a number: sentences for the page."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.plain_text import plain
from xnq_dist.report.page_data import Page
from xnq_dist.selection.words import sentences

__all__ = ["notes"]


def notes(facts: Page) -> list[tuple[str, list[str]]]:
    """Sentences by what they are about; without those that have nothing to say."""
    found, warnings = [], _warnings(facts)
    chosen, level = facts.of("quantify").get("labels"), facts.settings.intervals.level
    is_auto = facts.settings.quantifier == "auto"
    if chosen and is_auto and (texts := sentences(chosen, level)):
        found.append(("how the labels were chosen", [plain(t, 1000) for t in texts]))
    if warnings:
        number = len(warnings)
        found.append(("1 warning" if number == 1 else f"{number} warnings", warnings))
    return found


def _warnings(facts: Page) -> list[str]:
    """Warnings that a reader must know before using a number; one sentence each."""
    view, naming, quantify = facts.view, facts.naming, facts.of("quantify")
    counts = facts.of("graph").get("counts") or {}
    missing = np.isnan(view.prevalence[:, -1]) & ~view.suppressed
    empty = int(np.count_nonzero(missing))
    warnings = (
        (
            quantify.get("not_converged"),
            f"of {naming.some_communities(len(view.names))} did not converge (column "
            "note in prevalence.parquet): compare them with quantifier=auto.",
        ),
        (
            empty,
            f"{naming.communities(empty)} without prevalence: there is no member to "
            "estimate from (column note in prevalence.parquet).",
        ),
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
    )
    return [f"{number:,} {text}" for number, text in warnings if number]
