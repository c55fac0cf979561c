"""Counts of labels around every node by fold, in two rounds of neighbour sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Bools, Floats32, Ints, Ints32
from xnq_dist.core.method_records import method_of
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import FileRecord, RunDirectory, Stage
from xnq_dist.graph import layout
from xnq_dist.groups.own_groups import Groups, degree_groups
from xnq_dist.quantify.default.estimator_fit import Held, Learnt
from xnq_dist.quantify.default.scenarios import (
    Surroundings,
    study,
    tilt_of,
)
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.readout.plus.variants import node_folds
from xnq_dist.selection.verdict import Selection

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "WALKS",
    "LabelledByFold",
    "learn",
    "learn_in_process",
    "read_surroundings",
    "studies_choice",
]

WALKS = 2
"""Steps from a node within which labels are counted."""


@dataclass(frozen=True)
class LabelledByFold:
    """Indicators of labelled nodes by fold, and a column of ones that counts walks.

    Their sums are over distinct neighbours: an edge counts 1, whatever its weight.
    """

    run: str = field(repr=False)
    folds: int
    seed: int

    def __call__(self, number: int) -> Floats32:
        """Return one partition's indicators, shape (n_owned, K + 1)."""
        run = RunDirectory(self.run)
        record = run.complete("labels").named("labels-")[number]
        columns = ["index", "label"]
        rows = run.stage("labels").read_table(record, "node_labels", columns)
        index = rows["index"].to_numpy()
        known = rows["label"].is_valid().to_numpy()
        return _indicators(known, node_folds(index, self.folds, self.seed), self.folds)


def _indicators(known: Bools, folds: Ints32, count: int) -> Floats32:
    columns = np.zeros((len(known), count + 1), np.float32)
    rows = np.flatnonzero(known)
    columns[rows, folds[rows]] = 1.0
    columns[:, -1] = 1.0
    return columns


def read_surroundings(
    run: RunDirectory,
    stage: Stage,
    files: tuple[tuple[FileRecord, ...], ...],
    groups: tuple[Ints32, ...],
    rows: Ints,
    settings: Settings,
) -> Surroundings:
    """Read the surroundings of the nodes in `rows` (ascending), by partition."""
    folds = settings.readout.folds
    reached = [np.empty((len(rows), folds + 1)) for _ in files]
    graph = run.complete("graph")
    for number, index in enumerate(layout.node_index(run.stage("graph"), graph)):
        at = np.minimum(np.searchsorted(rows, index), len(rows) - 1)
        used = np.flatnonzero(rows[at] == index)
        for target, round_files in zip(reached, files, strict=True):
            values = stage.read_arrays(round_files[number])["values"]
            target[at[used]] = values[used]
    of_rows = tuple(codes[rows] for codes in groups)
    return Surroundings(of_rows, node_folds(rows, folds, settings.seed), tuple(reached))


def learn(
    nodes: NodeTable,
    compared: NodeTable,
    reference: Reference,
    groups: Groups,
    held: Held | None,
    settings: Settings,
    around: Callable[[Ints], Surroundings],
) -> tuple[Learnt, Selection | None]:
    """Learn the variances of `auto`; study how the labelled nodes were chosen.

    Parameters
    ----------
    nodes, reference
        As for `Quantifier.estimate`.
    compared
        The nodes with posteriors by the models of their own folds, labelled or not.
    groups
        Groups of the graph's nodes.
    held
        Posteriors of labelled nodes by models fitted without their group's labels.
    settings
        `labels`, `method` and `seed` are used.
    around
        Returns the surroundings of the given nodes; called if the choice is studied.

    Returns
    -------
    The variances, and the result of the study, None where there was none.
    """
    selection = None
    if studies_choice(settings):
        own_folds = method_of(settings.method).cross_fitted
        selection = study(compared, reference, around, own_folds, settings.seed)
    tilt = tilt_of(settings.labels, selection, nodes, reference.prior)
    return Learnt.of(nodes, reference, groups.stacked, held, tilt=tilt), selection


def studies_choice(settings: Settings) -> bool:
    """Whether the choice of the labelled nodes has to be studied."""
    return settings.labels.drawn != "weighted" and settings.labels.prior is None


def learn_in_process(
    nodes: NodeTable,
    compared: NodeTable,
    reference: Reference,
    adjacency: csr_array[Any],
    groups: tuple[Ints32, ...],
    settings: Settings,
    held: Held | None = None,
) -> tuple[Learnt, Selection | None]:
    """`learn` from all edges in this process; row v holds the in-neighbours of v."""
    folds = node_folds(
        np.arange(len(nodes.labels)), settings.readout.folds, settings.seed
    )

    def around(rows: Ints) -> Surroundings:
        links = adjacency.copy()
        links.data = np.ones_like(links.data)
        values = _indicators(~nodes.unlabelled, folds, settings.readout.folds)
        reached, sums = [], values.astype(np.float64)
        for _ in range(WALKS):
            sums = links @ sums
            reached.append(sums[rows])
        of_rows = tuple(codes[rows] for codes in groups)
        return Surroundings(of_rows, folds[rows], tuple(reached))

    every = Groups(groups, degree_groups(np.diff(adjacency.indptr)))
    return learn(nodes, compared, reference, every, held, settings, around)
