"""Counts of labels around every node by fold, in two rounds of neighbour sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.random_bits import Purpose
from xnq_dist.core.records import METHODS
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import FileRecord, RunDirectory, Stage
from xnq_dist.graph import layout
from xnq_dist.groups.own_groups import Groups, degree_groups
from xnq_dist.quantify.default.estimator_fit import Held, Learnt
from xnq_dist.quantify.default.scenarios import tilt_of
from xnq_dist.quantify.interface import NodeTable
from xnq_dist.readout.plus.first_stage import node_folds
from xnq_dist.readout.rows import located, sample_rows
from xnq_dist.reservoir.context import join
from xnq_dist.selection.scored_rows import MAX_NODES, ScoredRows, bounded, log_rates
from xnq_dist.selection.verdict import Selection, judge

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "WALKS",
    "labelled_by_fold",
    "learn",
    "learn_in_process",
    "read_reached",
    "studies_choice",
    "study",
]

WALKS = 2
"""Steps from a node within which labels are counted."""


def labelled_by_fold(run: RunDirectory, folds: int, seed: int, number: int) -> Floats32:
    """Indicators of a partition's labelled nodes by fold, and ones that count walks.

    Their sums are over distinct neighbours: an edge counts 1, whatever its weight. The
    shape is (n_owned, K + 1).
    """
    record = run.complete("labels").named("labels-")[number]
    columns = ["index", "label"]
    rows = run.stage("labels").read_table(record, "node_labels", columns)
    index = rows["index"].to_numpy()
    known = rows["label"].is_valid().to_numpy()
    return _indicators(known, node_folds(index, folds, seed), folds)


def _indicators(known: Bools, folds: Ints32, count: int) -> Floats32:
    columns = np.zeros((len(known), count + 1), np.float32)
    rows = np.flatnonzero(known)
    columns[rows, folds[rows]] = 1.0
    columns[:, -1] = 1.0
    return columns


def read_reached(
    run: RunDirectory,
    stage: Stage,
    files: Sequence[Sequence[FileRecord]],
    rows: Ints,
) -> list[Floats]:
    """Read the sums of each round for the nodes in `rows` (ascending), (n, K + 1)."""
    local, places = located(layout.node_index(run.complete("graph")), rows)
    reached = []
    for records in files:
        found = [
            stage.read_arrays(record)["values"][own]
            for record, own in zip(records, local, strict=True)
        ]
        reached.append(join(found, places).astype(np.float64))
    return reached


def study(
    nodes: NodeTable,
    links: tuple[Ints32, ...],
    reached_from: Callable[[Ints], Sequence[Floats]],
    settings: Settings,
) -> Selection | None:
    """Test how the labelled nodes were chosen; None where there are too few.

    Parameters
    ----------
    nodes
        With posteriors by the models of their own folds, labelled or not.
    links
        Groups of the graph's nodes by links, the coarse ones first.
    reached_from
        Returns, for some nodes (ascending), the labelled neighbours in each of the K
        folds and, in the last column, all neighbours: by walks of one step, then of
        two, shape (n, K + 1) each.
    settings
        `method`, `readout.folds` and `seed` are used.
    """
    every = nodes.reference.rows, np.flatnonzero(nodes.unlabelled)
    chosen = MAX_NODES, settings.seed, Purpose.SELECTION_ROWS
    rows = np.sort(np.concatenate([sample_rows(one, *chosen) for one in every]))
    n_known, n_free = map(len, every)
    count = settings.readout.folds
    folds = node_folds(rows, count, settings.seed)
    reached, rates = reached_from(rows), []
    for walks in reached:
        others = walks[:, :-1].copy()
        others[np.arange(len(rows)), folds] = 0.0
        seen, degree = others.sum(axis=1), walks[:, -1]
        rate = n_known / max(n_known + n_free, 1)
        rates.append(log_rates(seen, degree, rate, 1.0 - 1.0 / count))
    if not METHODS[settings.method].second_stage:
        folds = np.zeros(len(rows), np.int32)
    scored = ScoredRows(
        bounded(nodes.posteriors[rows], nodes.prior),
        nodes.labels[rows],
        folds,
        tuple(codes[rows] for codes in links),
        reached[0][:, -1],
        np.stack(rates, axis=1),
    )
    return judge(scored, (n_known, n_free))


def learn(
    nodes: NodeTable,
    compared: NodeTable,
    groups: Groups,
    held: Held | None,
    settings: Settings,
    reached_from: Callable[[Ints], Sequence[Floats]],
) -> tuple[Learnt, Selection | None]:
    """Learn the variances of `auto`; study how the labelled nodes were chosen.

    Parameters
    ----------
    nodes
        As for `Quantifier.estimate`.
    compared
        The nodes with posteriors by the models of their own folds, labelled or not.
    groups
        Groups of the graph's nodes.
    held
        Posteriors of labelled nodes by models fitted without their group's labels.
    settings
        `labels`, `method` and `seed` are used.
    reached_from
        As for `study`; called if the choice is studied.

    Returns
    -------
    The variances, and the result of the study, None where there was none.
    """
    selection = None
    if studies_choice(settings):
        selection = study(compared, groups.links, reached_from, settings)
    tilt = tilt_of(settings.labels, selection, nodes)
    return Learnt.of(nodes, groups.stacked, held, tilt=tilt), selection


def studies_choice(settings: Settings) -> bool:
    """Whether the choice of the labelled nodes has to be studied."""
    return settings.labels.drawn != "weighted" and settings.labels.prior is None


def learn_in_process(
    nodes: NodeTable,
    compared: NodeTable,
    adjacency: csr_array[Any],
    groups: tuple[Ints32, ...],
    settings: Settings,
    held: Held | None = None,
) -> tuple[Learnt, Selection | None]:
    """`learn` from all edges in this process; row v holds the in-neighbours of v."""
    folds = node_folds(
        np.arange(len(nodes.labels)), settings.readout.folds, settings.seed
    )

    def reached_from(rows: Ints) -> list[Floats]:
        links = adjacency.copy()
        links.data = np.ones_like(links.data)
        values = _indicators(~nodes.unlabelled, folds, settings.readout.folds)
        reached, sums = [], values.astype(np.float64)
        for _ in range(WALKS):
            sums = links @ sums
            reached.append(sums[rows])
        return reached

    every = Groups(groups, degree_groups(np.diff(adjacency.indptr)))
    return learn(nodes, compared, every, held, settings, reached_from)
