"""Sentences on how the labelled nodes were chosen, for the report and the log.

The log has the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["sentences"]


def sentences(labels: Mapping[str, Any], level: float) -> list[str]:
    """Describe the verdict, its evidence, both estimates, and what to do.

    Parameters
    ----------
    labels
        The fact ``labels`` of the stage ``quantify``: ``drawn``, ``verdict`` and the
        other figures of `Selection.facts`, and ``answers``, one for each class.
    level
        Confidence level of the intervals.

    Examples
    --------
    >>> sentences({"drawn": "weighted", "answers": []}, 0.95)
    ['Labels count by their inclusion weights (labels.drawn = weighted).']
    """
    drawn = labels["drawn"]
    if drawn == "weighted":
        return ["Labels count by their inclusion weights (labels.drawn = weighted)."]
    if "verdict" not in labels and not labels.get("prior"):
        return [
            "How the labelled nodes were chosen could not be tested: there are too few "
            "labelled or unlabelled nodes. If you know how, set labels.drawn."
        ]
    answers: Sequence[Mapping[str, Any]] = labels["answers"]
    last = answers[-1]
    if last["answer"] is None:  # no unlabelled node to estimate
        return []
    text: list[str] = []
    if "verdict" in labels:
        text += [_verdict(labels, answers), _reach(labels, last)]
    text += [_answers(labels, last, level), _advice(labels, last)]
    return [sentence for sentence in text if sentence]


def _verdict(labels: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> str:
    value = labels["pvalue"]
    pvalue = f"{value:.2g}" if value >= 1e-4 else "less than 0.0001"
    more = max(answers, key=lambda answer: answer["bias"])
    by_class = (
        f"class {more['class']} has {more['factor']:.2g} times as many labels as the "
        "other classes, relative to its number of nodes"
    )
    texts = {
        "none": "Nothing shows that the labelled nodes were chosen by class "
        f"(p = {pvalue}) or by their place in the graph.",
        "class": f"The labelled nodes were chosen by class (p = {pvalue}): {by_class}.",
        "place": "The labelled nodes were chosen by their place in the graph: some "
        "communities or degrees have more labels than others. Nothing shows a choice "
        "by class as well.",
        "both": "The labelled nodes were chosen by their place in the graph and by "
        f"class: {by_class}.",
    }
    text = texts[labels["verdict"]]
    if not labels.get("exchangeable", True):
        text += " With method = xnq these tests are approximate, with xnq+ exact."
    return text


def _reach(labels: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    if labels["verdict"] in ("class", "both"):
        return ""
    factor = last["detectable"]
    if factor is None or factor > 100:
        return (
            "These labels and estimated probabilities are too weak to show even a "
            "strong choice by class."
        )
    times = f"{factor:.2g}" if factor >= 1.1 else f"{max(factor, 1.001):.3f}"
    return (
        f"A choice by class in which class {last['class']} is less than {times} "
        "times as likely to be labelled as the rest could have gone unnoticed."
    )


def _answers(labels: Mapping[str, Any], last: Mapping[str, Any], level: float) -> str:
    plain, tilted = last["if_random"], last["if_by_class"]
    if tilted is None:
        return ""
    if labels.get("prior"):
        return (
            f"Class {last['class']} among all nodes: labels.prior sets "
            f"{100 * tilted[0]:.1f} %, and all estimates add up to it. Without it "
            f"they give {_share(plain)}."
        )
    text = (
        f"Class {last['class']} among all nodes: {_share(plain)} if the labels "
        f"are a random sample, {_share(tilted)} if they were chosen by class "
        f"({100 * level:g} % intervals)"
    )
    if labels["alone"]:
        return f"{text}; the second is reported."
    if not labels["tilted"]:
        return f"{text}; the first is reported, and every interval contains both."
    return (
        f"{text}; their mean with the weights {1 - labels['tilted']:.2g} and "
        f"{labels['tilted']:.2g}, {_share(last['answer'])}, is reported, and every "
        "interval contains both."
    )


def _share(answer: Sequence[float]) -> str:
    mean, lower, upper = (100 * value for value in answer)
    return f"{mean:.1f} % ({lower:.1f}-{upper:.1f} %)"


def _advice(labels: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    verdict, drawn = labels.get("verdict", "none"), labels["drawn"]
    if labels.get("prior"):
        return ""
    if drawn in ("random", "by_place"):
        if verdict == "none" or (drawn, verdict) == ("by_place", "place"):
            return ""
        return (
            f"This contradicts labels.drawn = {drawn}, under which nothing is "
            "corrected: check how the labels came about, or set labels.drawn = unknown."
        )
    if verdict in ("class", "both"):
        first = "Estimates are corrected for it."
        if verdict == "both" and drawn == "unknown":
            first = (
                "Labels from few places can look like that without a choice by class."
            )
        return (
            f"{first} If the shares of the classes among all nodes are known, "
            "set labels.prior, which makes intervals narrower."
        )
    if drawn == "by_class":
        return ""
    plain, answer = last["if_random"], last["answer"]
    text = ""
    if verdict == "none":
        text = (
            "If you know that the labels are a random sample, set labels.drawn = "
            "random: the interval for all nodes narrows from "
            f"{100 * (answer[2] - answer[1]):.1f} to "
            f"{100 * (plain[2] - plain[1]):.1f} points. "
        )
    return text + (
        "If they were chosen by place alone, or by class, set labels.drawn = by_place "
        "or by_class; if the shares of the classes are known, set labels.prior. "
        "Labelling a random sample of the nodes avoids the question."
    )
