"""Selection of usable members, and checks of labelled nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.quantify.interface import Communities, Estimates, NodeTable

__all__ = [
    "Usable",
    "reference_rows",
    "usable_members",
]


@dataclass(frozen=True, eq=False)
class Usable:
    """The unlabelled members of a batch with a posterior that is not all zeros."""

    nodes: NodeTable
    """Nodes that are members, in the order of the graph, n rows."""
    sets: Communities
    """The communities; their members are rows of `nodes`."""
    unlabelled: Ints
    """Number of unlabelled members, usable or not, shape (S,)."""

    def new_estimates(self) -> Estimates:
        """Estimates to fill in, final for communities without usable members.

        These are NaN without an unlabelled member, else the prior.
        """
        size, prior = len(self.unlabelled), self.nodes.prior
        prevalence = np.full((size, len(prior)), np.nan)
        prevalence[self.unlabelled > 0] = prior
        return Estimates(prevalence, np.ones(size, np.bool_))


def usable_members(batch: Communities, nodes: NodeTable) -> Usable:
    """Select and renumber the unlabelled members whose posterior is not all zeros.

    Functions of a posterior can then be computed once per node instead of once per
    membership. Cost and memory (5 bytes a node) are linear in the nodes and members.
    """
    free = batch.only(nodes.unlabelled)
    inside = np.zeros(len(nodes.posteriors), np.bool_)
    inside[free.members] = True
    rows = np.flatnonzero(inside)
    inside[rows] = nodes.posteriors[rows].sum(axis=1) > 0
    usable, rows = free.only(inside), np.flatnonzero(inside)
    places = np.cumsum(inside, dtype=np.int32)[usable.members].astype(np.int64) - 1
    sets = Communities(usable.offsets, places)
    return Usable(nodes.of(rows), sets, free.sizes)


def reference_rows(name: str, nodes: NodeTable) -> tuple[Floats, Ints32]:
    """Return the reference's posteriors (m, C) and labels (m,), without rows of zeros.

    No row of some class is an `InputError`.
    """
    reference, classes = nodes.reference, nodes.classes
    values = np.asarray(reference.posteriors, np.float64)
    nonzero = values.sum(axis=1) > 0
    values, labels = values[nonzero], reference.labels[nonzero]
    missing = np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0)
    if len(missing):
        raise InputError(
            f"quantifier = {name} needs labelled nodes of every class that the readout "
            f"was not fitted to, and class {classes[missing[0]]!r} has none: give some "
            "the role calibration, or set quantifier = sld"
        )
    return values, labels
