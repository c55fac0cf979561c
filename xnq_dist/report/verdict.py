"""The verdict on a result: what it shows, how sure it is and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.naming import Naming
from xnq_dist.report.view import NOT_RATED_HIGHER, PrevalenceView
from xnq_dist.report.wording import count, whole, whole_span

__all__ = ["Level", "Verdict", "verdict"]

Level = Literal["well", "fairly", "weakly", "warning", "unknown"]
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

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Verdict | None:
        """The verdict in the facts of published results; None: it has none."""
        known = facts.get("verdict") or {}
        if known.get("level") not in get_args(Level):
            return None
        return cls(known["level"], tuple(map(str, known.get("lines") or ())))


def verdict(
    view: PrevalenceView,
    settings: Settings,
    skill: Mapping[str, float] | None = None,
    labelled: int = 0,
    totals: pa.Table | None = None,
    anomalies: Anomalies | None = None,
    run: str = "RUN",
) -> Verdict:
    """Sum up a result about the last class of a view.

    Parameters
    ----------
    view
        Estimates by community and class.
    settings
        Settings of the run.
    skill
        Reduction of the log-loss by the posteriors, against the class shares of the
        labelled nodes alone, and its interval: ``value``, ``lower``, ``upper``.
    labelled
        Number of labelled nodes.
    totals
        Estimates for all nodes together (schema ``totals``).
    anomalies
        Communities compared with the rest; None: they were not compared.
    run
        The run directory, for the command of the next step.
    """
    naming = Naming(settings.report)
    level = _level(skill)
    model = _on_the_model(level, skill, labelled, view, naming)
    shown = (
        _on_all_nodes(view, naming, totals, settings),
        _on_communities(view, naming, anomalies, settings),
    )
    lines = (
        *((model, *shown) if level == "warning" else (*shown, model)),
        _how_sure(view, naming, settings),
        _next(level, view, naming, settings, run),
    )
    return Verdict(level, tuple(line for line in lines if line))


def _level(skill: Mapping[str, float] | None) -> Level:
    if not skill:
        return "unknown"
    if skill["lower"] <= 0:
        return "warning"
    if skill["value"] >= WELL:
        return "well"
    return "fairly" if skill["value"] >= FAIRLY else "weakly"


def _on_the_model(
    level: Level,
    skill: Mapping[str, float] | None,
    labelled: int,
    view: PrevalenceView,
    naming: Naming,
) -> str:
    if level == "warning":
        return (
            "The model is no better than the class shares of the labels: every "
            f"estimate is pulled towards them. Label more {naming.nodes()} or add "
            "features before you use this table."
        )
    if not skill:
        return ""
    classes = [naming.of_class(name, 30) for name in view.classes]
    parted = f"the {len(classes)} classes"
    if len(classes) == 2:
        parted = f"{classes[1]} from {classes[0]}"
    how = {"well": "well", "fairly": "fairly well"}.get(level, "only weakly")
    return (
        f"The model separates {parted} {how} ({count(labelled)} labelled "
        f"{naming.nodes(labelled)}; log-loss {whole(skill['value'])} below guessing)."
    )


def _on_all_nodes(
    view: PrevalenceView, naming: Naming, totals: pa.Table | None, settings: Settings
) -> str:
    """The share of the class among all nodes together, with its interval."""
    if totals is None or not view.classes:
        return ""
    row = {str(row["class"]): row for row in totals.to_pylist()}.get(view.classes[-1])
    if not row or row["prevalence"] is None:
        return ""
    kind = "unlabelled " if settings.labelled == "exclude" else ""
    span = _span(row["lower"], row["upper"], settings)
    name = naming.of_class(view.classes[-1])
    return f"All {kind}{naming.nodes()}: {whole(row['prevalence'])} {name}{span}."


def _on_communities(
    view: PrevalenceView,
    naming: Naming,
    anomalies: Anomalies | None,
    settings: Settings,
) -> str:
    """Number of unusual communities, and the highest that may be published."""
    if not view.classes or not len(view.names):
        return f"There are no {naming.communities()}."
    text = f"{naming.some_communities(len(view.names))}."
    named = ~np.isnan(view.prevalence[:, -1])
    named &= view.quality[:, -1] < NOT_RATED_HIGHER
    if anomalies is not None:
        unusual = anomalies.qvalue[:, -1] <= settings.anomalies.rate
        some = count(int(unusual.sum())) if unusual.any() else "None"
        differ = "differs" if unusual.sum() == 1 else "differ"
        text = (
            f"{some} of {naming.some_communities(len(view.names))} {differ} by more "
            "than chance explains."
        )
        named = named & unusual if unusual.any() else named
    known = view.ranked[named[view.ranked]]
    if len(known):
        p, low, high = (float(values[known[0], -1]) for values in view.estimates())
        place = view.name(int(known[0]), NAME)
        text += f" Highest: {place}, {whole(p)}{_span(low, high, settings)}."
    return text


def _span(low: float | None, high: float | None, settings: Settings) -> str:
    """An interval in brackets; empty if there is none."""
    if low is None or high is None or not low <= high:
        return ""
    level = f"{100 * settings.intervals.level:g} % interval"
    return f" ({level} {whole_span(low, high)})"


def _how_sure(view: PrevalenceView, naming: Naming, settings: Settings) -> str:
    """Numbers of narrow intervals, of poor estimates, and of suppressed ones."""
    if not view.has_intervals:
        return "" if not view.classes else "How sure: no intervals were computed."
    width = view.upper[:, -1] - view.lower[:, -1]
    known = ~np.isnan(width)
    narrow = int(np.count_nonzero(width[known] < NARROW))
    text = (
        f"How sure: {count(narrow)} of {count(known.sum())} intervals are narrower "
        f"than {100 * NARROW:g} points"
    )
    counts = {
        "not publishable": np.count_nonzero(
            view.quality[known, -1] >= NOT_RATED_HIGHER
        ),
        "suppressed": np.count_nonzero(view.suppressed),
    }
    for what, number in counts.items():
        if number:
            text += f"; {count(number)} {'is' if number == 1 else 'are'} {what}"
    return f"{text}."


def _next(
    level: Level, view: PrevalenceView, naming: Naming, settings: Settings, run: str
) -> str:
    if not view.classes or level == "warning":
        return ""
    if not view.has_intervals:
        return "Next: set quantifier=auto, which gives every estimate an interval."
    width = view.upper[:, -1] - view.lower[:, -1]
    if settings.quantifier != "auto" or not np.any(width >= NARROW):
        return ""
    return (
        f"Next: label the {BUDGET} {naming.nodes()} that xnq-dist label-plan "
        f"{shlex.quote(run)} --budget {BUDGET} chooses."
    )
