"""Loading of the node table, the groups of the graph and held-out posteriors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.errors import StageError
from xnq_dist.core.store import FileRecord, RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.labels import ROLES
from xnq_dist.groups.own_groups import Groups
from xnq_dist.quantify.classic.counts import with_votes
from xnq_dist.quantify.default.estimator_fit import Held, Learnt
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.readout.rows import OWN
from xnq_dist.reservoir.context import matrix_of
from xnq_dist.selection.tilt import tilted

__all__ = [
    "load_groups",
    "load_held_posteriors",
    "load_learnt",
    "load_node_table",
    "neighbour_values",
    "with_own_folds",
]


MIN_LEFT = 1e-3
"""Least share of a class that is taken to be unlabelled: the estimate of the class's
nodes is not exact."""


def neighbour_values(run: RunDirectory, number: int) -> Floats32:
    """Posteriors and votes of a partition, to be summed over neighbours.

    Rows are in local order, shape (n_owned, 2 C).
    """
    record = run.complete("posteriors").named("part-")[number]
    table = run.stage("posteriors").read_table(record, "posteriors", ["posterior"])
    return with_votes(matrix_of(table["posterior"]))


def load_node_table(run: RunDirectory) -> NodeTable:
    """Load all nodes by canonical index, with the labelled nodes as their reference.

    Weighted labels make the posteriors those of all nodes. Of a class that was labelled
    more often fewer nodes are left, so an unlabelled node's posteriors are multiplied
    by the share of each class that is unlabelled, and normalised.

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
        if labels.weights is not None:
            left = 1.0 - known.facts["class_counts"] / (prior * n_nodes)
            free = index[labels.codes[index] < 0]
            values[free] = tilted(values[free], np.maximum(left, MIN_LEFT))
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
    weights = None if labels.weights is None else labels.weights[rows]
    return NodeTable(
        posteriors=values,
        labels=labels.codes,
        out_of_fold=out_of_fold,
        classes=tuple(str(name) for name in classes),
        prior=prior,
        reference=Reference(values[rows], labels.codes[rows], rows, weights=weights),
    )


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
