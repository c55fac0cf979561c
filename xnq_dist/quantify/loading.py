"""Loading of the node table, the groups of the graph and held-out posteriors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import FileRecord, RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.labels import ROLES
from xnq_dist.groups.own_groups import Groups
from xnq_dist.quantify.classic.counts import with_votes
from xnq_dist.quantify.default.estimator_fit import Held, Learnt
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.readout.calibration import FLOOR, PRIOR_ROWS, fit_calibration
from xnq_dist.readout.rows import OWN
from xnq_dist.reservoir.context import matrix_of
from xnq_dist.selection.tilt import tilted

__all__ = [
    "left_factors",
    "load_groups",
    "load_held_posteriors",
    "load_learnt",
    "load_node_table",
    "neighbour_values",
    "with_own_folds",
]


MIN_LEFT = 1e-3
"""Least number of unlabelled nodes that a weighted label stands for."""


def neighbour_values(run: RunDirectory, number: int) -> Floats32:
    """Posteriors and votes of a partition, to be summed over neighbours.

    Rows are in local order, shape (n_owned, 2 C).
    """
    record = run.complete("posteriors").named("part-")[number]
    table = run.stage("posteriors").read_table(record, "posteriors", ["posterior"])
    return with_votes(matrix_of(table["posterior"]))


def load_node_table(run: RunDirectory) -> NodeTable:
    """Load all nodes by canonical index, with the labelled nodes as their reference.

    Weighted labels make the posteriors those of all nodes; those of unlabelled nodes
    are multiplied by `left_factors`, and normalised.

    Posteriors that are negative or not finite are a `StageError`.
    """
    graph, posteriors = run.complete("graph"), run.complete("posteriors")
    known, from_posteriors = run.complete("labels"), run.stage("posteriors")
    prior = np.array(run.complete("readout").facts["prior"], np.float64)
    labels = layout.load_labels(known)
    n_nodes, classes = graph.facts["n_nodes"], known.facts["classes"]
    values = np.zeros((n_nodes, len(classes)), np.float32)
    out_of_fold = np.zeros(n_nodes, np.bool_)
    columns = ["posterior", "out_of_fold"]
    of_parts = layout.node_index(graph)
    for index, record in zip(of_parts, posteriors.named("part-"), strict=True):
        table = from_posteriors.read_table(record, "posteriors", columns)
        values[index] = matrix_of(table["posterior"])
        out_of_fold[index] = table["out_of_fold"].to_numpy()
    if not np.isfinite(values).all() or (values < 0).any():
        raise StageError(
            f"{from_posteriors.uri} holds posteriors that are negative or not "
            "finite: run again with --overwrite"
        )
    usable = out_of_fold
    if known.facts["has_roles"]:
        usable = labels.roles == ROLES.index("calibration")
    rows = np.flatnonzero(usable & (labels.codes >= 0))
    own = Reference(values[rows], labels.codes[rows], rows)
    if labels.weights is not None:
        own = replace(own, weights=labels.weights[rows])
        left = left_factors(own, labels.weights * (n_nodes / labels.weights.sum()))
        for index in of_parts:
            free = index[labels.codes[index] < 0]
            values[free] = tilted(values[free], left)
    return NodeTable(
        posteriors=values,
        labels=labels.codes,
        out_of_fold=out_of_fold,
        classes=tuple(str(name) for name in classes),
        prior=prior,
        reference=own,
    )


def left_factors(reference: Reference, represented: Floats) -> Floats:
    """Factors from posteriors of all nodes to those of the unlabelled ones, (C,).

    A labelled node that stands for w nodes, `represented`, stands for w - 1 without a
    label. Out-of-fold posteriors are calibrated to both, and the factors are from one
    to the other: what is left of a class where labels were chosen by class, and 1
    where they were chosen by place, which posteriors know.
    """
    logs = np.log(np.maximum(reference.posteriors, FLOOR))
    all_nodes = represented[reference.rows]
    free, every = (
        fit_calibration(
            "bcts",
            logs,
            reference.labels,
            PRIOR_ROWS,
            w * (w.sum() / max(w @ w, 1e-300)),
        ).offset
        for w in (np.maximum(all_nodes - 1.0, MIN_LEFT), all_nodes)
    )
    return np.asarray(np.exp(free - every))


def with_own_folds(run: RunDirectory, nodes: NodeTable) -> NodeTable:
    """Return the table with posteriors by the models of each node's own fold.

    Unlabelled nodes then have posteriors of the same kind as labelled ones, as is
    needed where both are compared. Methods other than xnq+ have no others.
    """
    records = run.complete("posteriors").named(OWN)
    if not records:
        return nodes
    stage, values = run.stage("posteriors"), np.empty_like(nodes.posteriors)
    of_parts = layout.node_index(run.complete("graph"))
    for index, record in zip(of_parts, records, strict=True):
        values[index] = stage.read_arrays(record)["posterior"]
    return replace(nodes, posteriors=values)


def load_groups(run: RunDirectory) -> Groups:
    """Load the groups of the graph's nodes, from the stage ``readout``."""
    (record,) = run.complete("readout").named("groups-")
    arrays = run.stage("readout").read_arrays(record)
    by_links = tuple(arrays[name] for name in ("groups", "fine") if name in arrays)
    return Groups(by_links, arrays["degree"])


def load_learnt(run: RunDirectory, record: FileRecord) -> Learnt:
    """Load the variances that `auto` has learnt, from a file of the stage."""
    arrays = run.stage("quantify").read_arrays(record)
    return Learnt.from_arrays(load_groups(run).stacked, arrays)


def load_held_posteriors(run: RunDirectory) -> Held | None:
    """Load posteriors of labelled nodes, by models fitted without their group's labels.

    The stage ``readout`` of xnq+ has them as ``held-*``: arrays ``index`` (canonical,
    ascending) and ``posterior``. None for other methods.
    """
    records = run.complete("readout").named("held-")
    if not records:
        return None
    arrays = run.stage("readout").read_arrays(records[0])
    return Held(arrays["index"], arrays["posterior"])
