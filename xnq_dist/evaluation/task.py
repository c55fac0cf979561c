"""Loads a task from its tables: true labels, folds, shares of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation.datasets.test_folds import ROLES, make_folds
from xnq_dist.evaluation.methods.method_interface import Split, Task
from xnq_dist.graph import layout
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import open_table

__all__ = ["TaskSource", "load_task"]


@dataclass(frozen=True)
class TaskSource:
    """Source and options of a task."""

    dataset: str
    """Its name in the results."""
    splits: str | None = None
    """Table of ``node_id, fold, role``; None: folds are drawn."""
    positive: str | None = None
    """Class that is evaluated against all others; None: all classes."""
    folds: tuple[int, ...] | None = None
    """Folds to use; None: all."""
    label_shares: tuple[float, ...] = (1.0,)


def load_task(run: RunDirectory, source: TaskSource, seed: int) -> Task:
    """Load the labels of a run directory and the folds of a table.

    Raises
    ------
    StageError
        When the stage ``graph`` or ``labels`` is incomplete.
    InputError
        When the positive class does not exist, the table of splits does not match the
        nodes, or a role has no node of a class.
    SettingsError
        When a fold does not exist or a label share is out of range.
    """
    graph, known = run.complete("graph"), run.complete("labels")
    classes = tuple(str(name) for name in known.facts["classes"])
    labels = layout.load_labels(run.stage("labels"), known)
    if source.positive is not None:
        if source.positive not in classes:
            raise InputError(
                f"{source.dataset}: --positive {source.positive!r} is not a class: "
                f"choose one of {', '.join(classes)}"
            )
        code = classes.index(source.positive)
        classes = (f"not {source.positive}", source.positive)
        labels = np.where(labels < 0, -1, labels == code).astype(np.int32)
    if len(classes) < 2:
        raise InputError(
            f"{source.dataset}: the labels have {len(classes)} class(es): give labels "
            "of at least two"
        )
    if source.splits is None:
        roles = make_folds(labels)
        numbers = list(range(len(roles)))
    else:
        ids = layout.load_ids(run.stage("graph"), graph)
        numbers, roles = _read_splits(source.splits, ids, labels)
    if source.folds is not None:
        absent = [fold for fold in source.folds if fold not in numbers]
        if absent:
            raise SettingsError(
                f"{source.dataset}: there is no fold {absent[0]}: choose from "
                f"{', '.join(map(str, numbers))}"
            )
        roles = roles[[numbers.index(fold) for fold in source.folds]]
        numbers = list(source.folds)
    for fold, row in zip(numbers, roles, strict=True):
        _check_fold(source.dataset, fold, row, labels, classes)
    splits, rows = [], []
    for share in source.label_shares:
        if not 0 < share <= 1:
            raise SettingsError(
                f"--label-shares {share:g} is out of range: give shares above 0 and at "
                "most 1"
            )
        for fold, row in zip(numbers, roles, strict=True):
            splits.append(Split(fold, share))
            rows.append(_keep_share(row, labels, share, fold, seed))
    return Task(source.dataset, classes, labels, tuple(splits), np.stack(rows))


def _read_splits(
    path: str, ids: NodeIds, labels: NDArray[np.int32]
) -> tuple[list[int], NDArray[np.int8]]:
    """Read fold numbers and the role of every node in each fold, shape (folds, N)."""
    table = open_table(path, "table of splits")
    table.require({"node id": "node_id", "fold": "fold", "role": "role"})
    columns = ["node_id", "fold", "role"]
    batches = list(table.batches(columns))
    if not batches:
        raise InputError(f"{path} has no rows: give every node a role in every fold")
    read = {
        name: pa.chunked_array([batch.column(name) for batch in batches])
        for name in columns
    }
    codes = pc.index_in(read["role"], pa.array(ROLES))
    if codes.null_count:
        row = int(np.flatnonzero(codes.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"{path}: role {read['role'][row].as_py()!r} in row {row} is not one of "
            f"{', '.join(ROLES)}"
        )
    nodes = ids.index_of(read["node_id"])
    if (nodes < 0).any():
        row = int(np.flatnonzero(nodes < 0)[0])
        raise InputError(
            f"{path}: node {read['node_id'][row].as_py()!r} in row {row} is not in the "
            "node table"
        )
    folds = read["fold"].to_numpy()
    numbers = sorted({int(fold) for fold in np.unique(folds)})
    roles = np.full((len(numbers), len(labels)), -1, np.int8)
    place = np.searchsorted(numbers, folds)
    cells = place * len(labels) + nodes
    unique, counts = np.unique(cells, return_counts=True)
    if (counts > 1).any():
        twice = int(unique[counts > 1][0]) % len(labels)
        raise InputError(
            f"{path}: node {ids.name(twice)} has two rows for one fold: "
            "give each node one role per fold"
        )
    roles.ravel()[cells] = codes.to_numpy()
    unknown = (roles >= 0) & (labels < 0)
    if unknown.any():
        node = int(np.flatnonzero(unknown.any(axis=0))[0])
        raise InputError(
            f"{path}: node {ids.name(node)} has a role but no label: remove the row, "
            "or give the node a label"
        )
    return numbers, roles


def _check_fold(
    dataset: str,
    fold: int,
    roles: NDArray[np.int8],
    labels: NDArray[np.int32],
    classes: Sequence[str],
) -> None:
    for code, role in enumerate(ROLES):
        inside = labels[roles == code]
        if not len(inside):
            raise InputError(
                f"{dataset}: fold {fold} has no {role} node: use folds that have nodes "
                "in every role"
            )
        counts = np.bincount(inside, minlength=len(classes))
        if not counts.all():
            missing = classes[int(np.flatnonzero(counts == 0)[0])]
            raise InputError(
                f"{dataset}: fold {fold} has no {role} node of class {missing!r}: use "
                "folds that have every class in every role"
            )


def _keep_share(
    roles: NDArray[np.int8],
    labels: NDArray[np.int32],
    share: float,
    fold: int,
    seed: int,
) -> NDArray[np.int8]:
    """Roles in which only a share of the training and calibration labels is kept.

    Each class keeps its share, rounded up, and at least two training labels and one
    calibration label. The labels of a smaller share are a subset of a larger share's.
    """
    if share == 1.0:
        return roles
    kept = roles.copy()
    for code, minimum in ((0, 2), (1, 1)):
        for label in range(int(labels.max()) + 1):
            rows = np.flatnonzero((roles == code) & (labels == label))
            count = max(minimum, int(np.ceil(share * len(rows) - 1e-9)))
            random = stream(seed, Purpose.LABELS_KEPT, fold, code, label)
            kept[random.permutation(rows)[count:]] = -1
    return kept
