"""What a quantifier may count on: usable members, finite posteriors, a reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.quantify.interface import Communities, Estimates, NodeTable, Reference

__all__ = [
    "Usable",
    "check_posteriors",
    "check_two_classes",
    "labelled_rows",
    "reference_rows",
    "usable_members",
]

DENSE_SHARE = 4
"""Nodes a membership up to which a mark on every node is cheaper than a sort."""


@dataclass(frozen=True, eq=False)
class Usable:
    """The members of a batch that say something of its prevalence."""

    rows: Ints
    """Nodes that occur, ascending, shape (n,)."""
    offsets: Ints
    """Community s has ``members[offsets[s] : offsets[s + 1]]``, shape (S + 1,)."""
    members: Ints
    """Places in `rows`, as often as a node occurs, shape (M',)."""
    unlabelled: Bools
    """Communities with an unlabelled member, usable or not, shape (S,)."""

    def new_estimates(self, prior: Floats) -> Estimates:
        """Answers to fill in; those of communities without usable members are right.

        They are NaN without an unlabelled member, else the prior.
        """
        size = len(self.unlabelled)
        prevalence = np.full((size, len(prior)), np.nan)
        prevalence[self.unlabelled] = prior
        return Estimates(prevalence, np.zeros(size, np.int32), np.ones(size, np.bool_))


def usable_members(batch: Communities, nodes: NodeTable) -> Usable:
    """The unlabelled members whose posterior is not all zeros, renumbered.

    What is made of a node's posterior is then made once a node that occurs. The cost
    is linear in the members where nodes are few, else that of sorting them.
    """
    keep = nodes.unlabelled[batch.members]
    offsets, members = _kept(batch.offsets, batch.members, keep)
    unlabelled = np.diff(offsets) > 0
    n_nodes = len(nodes.posteriors)
    if n_nodes <= DENSE_SHARE * len(members):
        place = np.full(n_nodes, -1, np.int64)
        place[members] = 0
        occur = np.flatnonzero(place == 0)
        place[occur] = np.arange(len(occur))
        places = place[members]
    else:
        occur, places = np.unique(members, return_inverse=True)
    some = nodes.posteriors[occur].sum(axis=1) > 0
    if not some.all():
        offsets, places = _kept(offsets, places, some[places])
        places = (np.cumsum(some) - 1)[places]
    return Usable(occur[some], offsets, places, unlabelled)


def _kept(offsets: Ints, members: Ints, keep: Bools) -> tuple[Ints, Ints]:
    """Offsets and members when only some are kept."""
    if keep.all():
        return offsets, members
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)])
    return before[offsets], members[keep]


def check_posteriors(name: str, batch: Communities, nodes: NodeTable) -> None:
    """Refuse members whose posterior is not a number.

    Raises
    ------
    InputError
        Naming the first such unlabelled member.
    """
    posteriors, members = nodes.posteriors, batch.members
    few = len(posteriors) <= len(members)
    rows = posteriors if few else posteriors[members]
    if np.isfinite(rows.sum(dtype=np.float64)):
        return
    wrong = _not_finite(rows)
    if few:
        wrong = wrong[members]
    wrong &= nodes.unlabelled[members]
    if wrong.any():
        node = int(members[np.flatnonzero(wrong)[0]])
        raise InputError(
            f"quantifier = {name}: the posterior of row {node} is not a finite number "
            f"({int(np.count_nonzero(wrong))} members have such): check the features "
            "and the readout that made it"
        )


def _not_finite(rows: Floats32) -> Bools:
    return np.asarray((~np.isfinite(rows)).any(axis=1), np.bool_)


def check_two_classes(name: str, n_classes: int) -> None:
    """Refuse a task with other than two classes."""
    if n_classes != 2:
        raise InputError(
            f"quantifier = {name} is defined for two classes and there are "
            f"{n_classes}: set quantifier = sld or dmy"
        )


def labelled_rows(name: str, reference: Reference) -> tuple[Floats32, Ints32]:
    """Posteriors and labels of the reference, all finite, shapes (m, C) and (m,)."""
    posteriors, labels = reference.posteriors, reference.labels
    if posteriors is None or labels is None or not len(labels):
        raise InputError(
            f"quantifier = {name} needs labelled nodes whose label had no part in the "
            "readout, and there are none: give some nodes the role calibration, or set "
            "quantifier = sld"
        )
    wrong = _not_finite(posteriors)
    if wrong.any():
        raise InputError(
            f"quantifier = {name}: the posterior of labelled row "
            f"{int(np.flatnonzero(wrong)[0])} of {len(wrong)} is not a finite number: "
            "check the features and the readout that made it"
        )
    return posteriors, labels


def reference_rows(
    name: str, reference: Reference, classes: tuple[str, ...]
) -> tuple[Floats, Ints32]:
    """Posteriors (m, C) and labels (m,) of the reference, some of every class.

    Rows of zeros are left out; no row, or none of some class, is an `InputError`.
    """
    posteriors, labels = labelled_rows(name, reference)
    values = np.asarray(posteriors, np.float64)
    some = values.sum(axis=1) > 0
    values, labels = values[some], labels[some]
    missing = np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0)
    if len(missing):
        raise InputError(
            f"quantifier = {name} needs labelled nodes of every class whose label had "
            f"no part in the readout, and class {classes[missing[0]]!r} has none: give "
            "some the role calibration, or set quantifier = sld"
        )
    return values, labels
