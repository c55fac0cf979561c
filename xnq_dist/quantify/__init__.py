"""Class prevalence of communities from calibrated posteriors and known labels."""

from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NeighbourStatistics,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = [
    "Communities",
    "Estimates",
    "NeighbourStatistics",
    "NodeTable",
    "Quantifier",
    "Reference",
]
