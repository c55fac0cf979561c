"""How tables on communities write names, figures and coverages."""

from __future__ import annotations

import math

from xnq_dist.evaluation.cells import Covered
from xnq_dist.evaluation.names import shown

__all__ = ["covered_text", "figure", "name_of", "title_of"]

WHAT = {
    "auto": "auto",
    "prior": "training prior",
    "lab": "labelled members",
    "lab_pcc5": "labelled, 5 nodes of PCC",
    "lab_pcc20": "labelled, 20 nodes of PCC",
    "lab_pcc80": "labelled, 80 nodes of PCC",
    "map20": "SLD, 20 nodes of the prior",
    "map100": "SLD, 100 nodes of the prior",
    "lab_pcc": "labelled, nodes of PCC",
    "map": "SLD, nodes of the prior",
}
DESIGNS = {
    "random": "random labels",
    "half": "labels in half of the communities",
    "balanced": "labels balanced by class",
    "positives": "nodes of the last class five times as likely to be labelled",
    "high_degree": "only nodes of high degree labelled",
    "region": "only one region labelled",
    "fresh": "model fitted to a tenth of the labels that are known",
}


def name_of(estimator: str) -> str:
    """An estimator's name in tables."""
    return WHAT.get(estimator) or shown(estimator)


def title_of(design: str) -> str:
    """What a design of labels is."""
    return DESIGNS[design]


def figure(value: float, digits: int = 3) -> str:
    """A number without the 0 before its point."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def covered_text(found: Covered) -> str:
    """A coverage with its bounds, where there are any."""
    if math.isnan(found.lower):
        return figure(found.value)
    return f"{figure(found.value)} [{figure(found.lower)}, {figure(found.upper)}]"
