"""The verdict on a result, and what to know before using its numbers."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.failures import TEMPORARY
from xnq_dist.core.redaction import plain
from xnq_dist.report.page_data import Page
from xnq_dist.report.wording import count, whole, whole_span
from xnq_dist.selection.verdict import sentences
from xnq_dist.steps.view import NOT_RATED_HIGHER, PrevalenceView

__all__ = ["Verdict", "notes", "verdict"]

Level = Literal["well", "fairly", "weakly", "warning", "unknown"]
"""How well the model separates the classes."""
WELL, FAIRLY = 0.3, 0.1
"""Smallest reductions of the log-loss that are called well and fairly well."""
BUDGET = 50
"""Number of nodes to label in the command that the last line names."""
NARROW = 0.30
"""Width below which the page counts an interval as narrow."""
NAME = 40
"""Maximum length of a community's name in a line."""


@dataclass(frozen=True)
class Verdict:
    """Sentences on a result; together under 80 words."""

    level: Level
    """Skill of the model; ``warning``: no better than the class shares."""
    lines: tuple[str, ...]
    """Plain text: the result, the model, how sure it is, what to do next. A warning on
    the model comes first."""


def verdict(page: Page) -> Verdict:
    """Sum up a result about the last class of a page."""
    skill = page.of("readout").get("skill")
    level = _level(skill)
    model = _on_the_model(level, skill, page)
    shown = _on_all_nodes(page), _on_communities(page)
    lines = (
        *((model, *shown) if level == "warning" else (*shown, model)),
        _how_sure(page),
        _next(level, page),
    )
    return Verdict(level, tuple(line for line in lines if line))


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


def _level(skill: Mapping[str, float] | None) -> Level:
    if not skill:
        return "unknown"
    if skill["lower"] <= 0:
        return "warning"
    if skill["value"] >= WELL:
        return "well"
    return "fairly" if skill["value"] >= FAIRLY else "weakly"


def _on_the_model(level: Level, skill: Mapping[str, float] | None, page: Page) -> str:
    naming = page.naming
    if level == "warning":
        return (
            "The model is no better than the class shares of the labels: every "
            f"estimate is pulled towards them. Label more {naming.nodes()} or add "
            "features before you use this table."
        )
    if not skill:
        return ""
    classes = [naming.of_class(name, 30) for name in page.view.classes]
    parted = f"the {len(classes)} classes"
    if len(classes) == 2:
        parted = f"{classes[1]} from {classes[0]}"
    how = {"well": "well", "fairly": "fairly well"}.get(level, "only weakly")
    labelled = int(page.of("labels").get("n_labelled") or 0)
    return (
        f"The model separates {parted} {how} ({count(labelled)} labelled "
        f"{naming.nodes(labelled)}; log-loss {whole(skill['value'])} below guessing)."
    )


def _on_all_nodes(page: Page) -> str:
    """The share of the class among all nodes together, with its interval."""
    row = page.total()
    if row.get("prevalence") is None:
        return ""
    span = _span(row["lower"], row["upper"], page)
    share = f"{whole(row['prevalence'])} {page.last}"
    return f"All {page.everybody}: {share}{span}."


def _on_communities(page: Page) -> str:
    """Number of unusual communities, and the highest that may be published.

    An unusual one that is above the total comes first.
    """
    view, naming = page.view, page.naming
    every = naming.some_communities(len(view.names))
    text = f"{every}."
    named = ~np.isnan(view.prevalence[:, -1])
    named &= view.quality[:, -1] < NOT_RATED_HIGHER
    if view.has_intervals:
        unusual = page.beyond[:, -1]
        some = count(int(unusual.sum())) if unusual.any() else "None"
        differ = "differs" if unusual.sum() == 1 else "differ"
        text = f"{some} of {every} {differ} by more than chance explains."
        least = page.total().get("prevalence") or 0.0
        above = named & unusual & (view.prevalence[:, -1] > least)
        named = above if above.any() else named
    known = view.ranked[named[view.ranked]]
    if len(known):
        highest = int(known[np.argmax(view.prevalence[known, -1])])
        share = whole(view.prevalence[highest, -1])
        span = _span(view.lower[highest, -1], view.upper[highest, -1], page)
        name = view.name(highest, NAME)
        if name.isdigit():
            name = f"{naming.communities(1)} {name}"
        text += f" Highest publishable: {name}, {share}{span}."
    return text


def _how_sure(page: Page) -> str:
    """Numbers of narrow intervals, of poor estimates, and of suppressed ones."""
    view = page.view
    if not view.has_intervals:
        return "How sure: no intervals were computed."
    width = _widths(view)
    known = ~np.isnan(width)
    narrow = np.count_nonzero(width[known] < NARROW)
    text = (
        f"How sure: {count(narrow)} of {count(known.sum())} intervals are narrower "
        f"than {100 * NARROW:g} points"
    )
    poor = view.quality[known, -1] >= NOT_RATED_HIGHER
    for what, some in ("not publishable", poor), ("suppressed", view.suppressed):
        if number := np.count_nonzero(some):
            text += f"; {count(number)} {'is' if number == 1 else 'are'} {what}"
    return f"{text}."


def _next(level: Level, page: Page) -> str:
    view = page.view
    if level == "warning":
        return ""
    if page.settings.quantifier != "auto":
        if view.has_intervals:
            return ""
        return "Next: set quantifier=auto, which gives every estimate an interval."
    if not np.any(_widths(view) >= NARROW):  # also where all nodes have labels
        return ""
    run = page.directory.uri
    if run.startswith(f"{tempfile.gettempdir()}/{TEMPORARY}"):  # of a Python result
        return (
            "Next: label more nodes. xnq-dist label-plan chooses them for a run that "
            "estimate_prevalence keeps (out=FOLDER), with memberships by their path."
        )
    return (
        f"Next: label the {BUDGET} {page.naming.nodes()} that xnq-dist label-plan "
        f"{shlex.quote(run)} --budget {BUDGET} chooses."
    )


def _span(low: float | None, high: float | None, page: Page) -> str:
    """An interval in brackets; empty if there is none."""
    if low is None or high is None or not low <= high:
        return ""
    return f" ({page.level} interval {whole_span(low, high)})"


def _widths(view: PrevalenceView) -> Floats:
    """Widths of the last class's intervals, NaN without one, shape (K,)."""
    return np.asarray(view.upper[:, -1] - view.lower[:, -1])


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
