"""The records of all quantifiers: what the rest of the package knows about them.

A quantifier is one record here and one module with a function ``make(name,
settings)``.
"""

from __future__ import annotations

from dataclasses import dataclass

from xnq_dist.core.records import PartRecord, Registry

__all__ = [
    "QUANTIFIERS",
    "Record",
]


@dataclass(frozen=True, kw_only=True)
class Record(PartRecord):
    """One quantifier."""

    two_classes: bool = False
    """Whether it is defined for two classes only."""
    neighbours: bool = False
    """Whether it needs the posteriors of nodes' neighbours."""
    votes: bool = False
    """Whether it uses only the most likely class of each posterior."""
    graph: bool = False
    """Whether it needs the graph itself, beyond posteriors and neighbours."""

    def defined_for(self, n_classes: int) -> bool:
        """Whether it is defined for this number of classes."""
        return n_classes == 2 or not self.two_classes


RECORDS = (
    Record(
        name="auto",
        text=(
            "Known labels are counted; the unlabelled members add the mean of their "
            "posteriors, moved by the community's labelled members as far as all "
            "labels show that communities differ by class. Intervals include four "
            "errors: the chance of each unlabelled node's class, that of the move, the "
            "bias that posteriors share within a group of the graph (learnt from the "
            "labelled nodes), and the bias that all posteriors share."
        ),
        graph=True,
        module="xnq_dist.quantify.default.auto",
    ),
    Record(
        name="cc",
        text="Classify and count: the share of nodes whose most probable class it is.",
        votes=True,
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="acc",
        text="Adjusted count: votes corrected by the readout's error rates.",
        votes=True,
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="pcc",
        text="Mean posterior (probabilistic classify and count).",
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="pacc",
        text=(
            "Adjusted mean posterior: mean posteriors corrected by the readout's mean "
            "posteriors within each class."
        ),
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="hdy",
        text=(
            "Histograms of the posterior: the mixture of the two classes' histograms "
            "that is nearest to the community's (Hellinger distance), and the median "
            "over 10, 20, ..., 110 bins."
        ),
        two_classes=True,
        module="xnq_dist.quantify.classic.histograms",
    ),
    Record(
        name="dys",
        text=(
            "Histograms of the posterior: the mixture of the two classes' histograms "
            "that is nearest to the community's (Topsoe distance)."
        ),
        two_classes=True,
        module="xnq_dist.quantify.classic.histograms",
    ),
    Record(
        name="dmy",
        text=(
            "Histograms of every class's posterior: the mixture of the classes' "
            "histograms that is nearest to the community's (mean Topsoe distance)."
        ),
        module="xnq_dist.quantify.classic.histograms",
    ),
    Record(
        name="kdey_ml",
        text=(
            "Kernel densities of the posteriors of each class's labelled nodes: the "
            "mixture of them that makes the community's posteriors most likely."
        ),
        module="xnq_dist.quantify.classic.kdey_ml",
    ),
    Record(
        name="sld",
        text=(
            "Expectation maximisation after Saerens, Latinne and Decaestecker (SLD): "
            "starting from the class proportions of the labelled nodes, posteriors "
            "are re-weighted and averaged in turns until the proportions no longer "
            "change."
        ),
        module="xnq_dist.quantify.classic.sld",
    ),
    Record(
        name="nacc",
        text=(
            "Neighbourhood-aware adjusted count (NACC): votes of a node and of most "
            "of its neighbours, taken together, corrected by how often each pair was "
            "seen at the labelled nodes of each class."
        ),
        neighbours=True,
        module="xnq_dist.quantify.classic.neighbour_counts",
    ),
    Record(
        name="npacc",
        text=(
            "Neighbourhood-aware adjusted mean posterior: products of a node's "
            "posterior and its neighbours' mean posterior, corrected by their means "
            "at the labelled nodes of each class."
        ),
        neighbours=True,
        module="xnq_dist.quantify.classic.neighbour_counts",
    ),
)
QUANTIFIERS = Registry("quantifier", RECORDS)
