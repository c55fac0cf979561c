"""Class prevalence of communities from calibrated posteriors and known labels."""

from xnq_dist.quantify.interface import (
    QUANTIFIERS,
    Communities,
    Estimates,
    NeighbourStatistics,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = [
    "QUANTIFIERS",
    "Communities",
    "Estimates",
    "NeighbourStatistics",
    "NodeTable",
    "Quantifier",
    "Reference",
]
