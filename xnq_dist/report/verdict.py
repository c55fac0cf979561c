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
NAME = 40
"""Maximum length of a community's name in a line."""


@dataclass(frozen=True)
class Verdict:
    """Sentences on a result; together under 80 words."""

    level: Level
    """Skill of the model; ``warning``: no better than the class shares."""
    lines: tuple[str, ...]
    """Plain text: the model, the result, how sure it is, what to do next."""

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
    lines = (
        _on_the_model(level, skill, labelled, view, naming),
        _on_communities(view, naming, totals, anomalies, settings),
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


def _on_communities(
    view: PrevalenceView,
    naming: Naming,
    totals: pa.Table | None,
    anomalies: Anomalies | None,
    settings: Settings,
) -> str:
    """Number of unusual communities, the highest one, and all nodes together."""
    if not view.classes or not len(view.names):
        return f"There are no {naming.communities()}."
    name = naming.of_class(view.classes[-1])
    number = len(view.names)
    text = f"{naming.some_communities(number)}, by share of {name}."
    named, highest = ~np.isnan(view.prevalence[:, -1]), "Highest"
    if anomalies is not None:
        unusual = anomalies.qvalue[:, -1] <= settings.anomalies.rate
        some = count(int(unusual.sum())) if unusual.any() else "None"
        has = "has" if unusual.sum() <= 1 else "have"
        text = (
            f"{some} of {naming.some_communities(number)} {has} an unusual share of "
            f"{name}."
        )
        named, highest = named & unusual, "Highest of them"
    known = view.ranked[named[view.ranked]]
    level = f"{100 * settings.intervals.level:g} % interval "
    if len(known):
        p, low, high = (float(values[known[0], -1]) for values in view.estimates())
        span = f" ({level}{whole_span(low, high)})" if low <= high else ""
        text += f" {highest}: {view.name(int(known[0]), NAME)}, {whole(p)}{span}."
        level = "" if span else level
    if totals is not None:
        rows = (row for row in totals.to_pylist() if str(row["class"]))
        all_nodes = {str(row["class"]): row for row in rows}.get(view.classes[-1])
        if all_nodes and all_nodes["prevalence"] is not None:
            low, high = all_nodes["lower"], all_nodes["upper"]
            span = "" if low is None else f" ({level}{whole_span(low, high)})"
            kind = "unlabelled " if settings.labelled == "exclude" else ""
            share = whole(all_nodes["prevalence"])
            text += f" All {kind}{naming.nodes()}: {share}{span}."
    return text


def _how_sure(view: PrevalenceView, naming: Naming, settings: Settings) -> str:
    """Numbers of narrow intervals, of poor estimates, and of suppressed ones."""
    if not view.has_intervals:
        return "" if not view.classes else "How sure: no intervals were computed."
    width = view.upper[:, -1] - view.lower[:, -1]
    known = ~np.isnan(width)
    narrow = int(np.count_nonzero(width[known] < settings.report.width))
    text = (
        f"How sure: {count(narrow)} of {count(known.sum())} intervals are narrower "
        f"than {100 * settings.report.width:g} points"
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
    if settings.quantifier != "auto" or not np.any(width >= settings.report.width):
        return ""
    return (
        f"Next: label the {BUDGET} {naming.nodes()} that xnq-dist label-plan "
        f"{shlex.quote(run)} --budget {BUDGET} chooses."
    )
