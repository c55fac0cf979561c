"""The paper's published results, for comparison with ours.

Test errors are means and standard deviations over five folds, as printed; the paper
does not state whether its standard deviation divides by n or n - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "BINARY",
    "COMPARISON",
    "EMBEDDERS",
    "ERRORS",
    "MULTICLASS",
    "QUANTIFIERS",
    "PublishedFigures",
]

BINARY = ("cora-2", "genius", "questions", "tolokers", "twitch-de")
MULTICLASS = ("cora-multi", "amazon-ratings", "flickr")
EMBEDDERS = ("lr", "gcn", "gat", "gin")
"""Methods that replace the reservoir in the paper's ablation."""


@dataclass(frozen=True)
class PublishedFigures:
    """One published value."""

    mean: float
    sd: float


Row = Mapping[str, PublishedFigures]


def _row(datasets: tuple[str, ...], figures: str) -> dict[str, PublishedFigures]:
    """Parse a printed row: ``mean±sd`` for each data set in order."""
    pairs = (figure.split("±") for figure in figures.split())
    return {
        dataset: PublishedFigures(float(mean), float(sd))
        for dataset, (mean, sd) in zip(datasets, pairs, strict=True)
    }


ERRORS: Mapping[str, Mapping[str, Row]] = {
    "ae": {
        "wvrn": {
            **_row(BINARY, ".037±.020 .147±.005 .214±.040 .079±.036 .060±.011"),
            **_row(MULTICLASS, ".023±.006 .108±.017 .201±.066"),
        },
        "cdq": {
            **_row(BINARY, ".100±.045 .409±.017 .354±.098 .358±.141 .270±.067"),
            **_row(MULTICLASS, ".076±.015 .111±.003 .145±.001"),
        },
        "enq": {
            **_row(BINARY, ".029±.008 .476±.001 .159±.007 .099±.036 .089±.036"),
            **_row(MULTICLASS, ".028±.004 .116±.016 .106±.006"),
        },
        "xnq": {
            **_row(BINARY, ".015±.011 .015±.001 .034±.007 .032±.010 .040±.010"),
            **_row(MULTICLASS, ".012±.002 .065±.007 .075±.006"),
        },
        "lr": _row(BINARY, ".032±.023 .018±.001 .088±.013 .044±.011 .057±.010"),
        "gcn": _row(BINARY, ".071±.034 .050±.008 .106±.035 .057±.027 .045±.012"),
        "gat": _row(BINARY, ".059±.023 .032±.004 .096±.041 .099±.111 .055±.016"),
        "gin": _row(BINARY, ".075±.014 .111±.124 .107±.032 .051±.020 .064±.030"),
    },
    "rae": {
        "wvrn": {
            **_row(
                BINARY, ".976±1.758 2.605±.539 12.718±7.930 6.151±8.407 3.465±3.070"
            ),
            **_row(MULTICLASS, ".417±.095 1.424±.104 1.710±.112"),
        },
        "cdq": {
            **_row(
                BINARY,
                "1.679±1.101 18.304±2.047 25.152±2.702 20.150±12.42 11.234±4.352",
            ),
            **_row(MULTICLASS, "1.189±.210 1.576±.360 2.986±.521"),
        },
        "enq": {
            **_row(BINARY, ".751±.987 13.246±7.278 4.775±2.473 2.903±1.398 2.316±.949"),
            **_row(MULTICLASS, ".459±.067 1.521±.188 1.884±.193"),
        },
        "xnq": {
            **_row(BINARY, ".241±.374 .417±.025 2.161±1.020 .441±.253 3.254±1.508"),
            **_row(MULTICLASS, ".312±.025 1.330±.273 1.588±.082"),
        },
    },
}
"""Test error by metric, method and data set."""

QUANTIFIERS: Mapping[str, Row] = {
    "cc": _row(BINARY, ".048±.011 .086±.002 .429±.010 .265±.008 .203±.007"),
    "acc": _row(BINARY, ".022±.012 .017±.000 .108±.018 .045±.016 .056±.013"),
    "pcc": _row(BINARY, ".043±.012 .217±.000 .410±.009 .235±.002 .221±.004"),
    "pacc": _row(BINARY, ".026±.012 .014±.000 .068±.021 .041±.010 .048±.011"),
    "hdy": _row(BINARY, ".037±.019 .014±.000 .076±.043 .054±.030 .070±.012"),
    "dys": _row(BINARY, ".023±.014 .014±.000 .081±.039 .032±.005 .044±.010"),
    "sld": ERRORS["ae"]["xnq"],
}
"""Test AE of XNQ's embeddings with other quantifiers; `sld` is XNQ itself, whose row
also has the multi-class data sets."""

Probabilities = tuple[float, float, float]

COMPARISON: Mapping[tuple[str, str], Mapping[str, Probabilities]] = {
    ("binary", "ae"): {
        "wvrn": (0.000, 0.010, 0.990),
        "cdq": (0.000, 0.003, 0.997),
        "enq": (0.000, 0.001, 0.999),
        "lr": (0.000, 0.259, 0.741),
        "gcn": (0.000, 0.015, 0.985),
        "gat": (0.000, 0.009, 0.991),
        "gin": (0.000, 0.003, 0.997),
    },
    ("binary", "rae"): {
        "wvrn": (0.000, 0.001, 0.999),
        "cdq": (0.000, 0.001, 0.999),
        "enq": (0.032, 0.001, 0.967),
    },
    ("multi-class", "ae"): {
        "wvrn": (0.000, 0.395, 0.605),
        "cdq": (0.000, 0.092, 0.908),
        "enq": (0.000, 0.844, 0.156),
    },
    ("multi-class", "rae"): {
        "wvrn": (0.000, 0.009, 0.991),
        "cdq": (0.000, 0.143, 0.857),
        "enq": (0.000, 0.038, 0.962),
    },
    ("quantifier", "ae"): {
        "cc": (0.000, 0.001, 0.999),
        "acc": (0.000, 0.541, 0.449),
        "pcc": (0.000, 0.001, 0.999),
        "pacc": (0.000, 0.789, 0.211),
        "hdy": (0.000, 0.141, 0.859),
        "dys": (0.000, 0.789, 0.211),
    },
}
"""Probabilities that XNQ is worse, equal or better, from the paper's Bayesian table."""
