"""A task: the true labels of a graph, and the nodes' roles in every split; its scores.

A split is a fold with a share of its labels. `EvaluationWork` names an evaluation's
folder, with its graph, task and scores, and is sent with every Dask task.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core import npy
from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder, Manifest, RunDirectory
from xnq_dist.evaluation.protocol import ROLES, make_folds
from xnq_dist.graph import layout
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.graph.tables import open_table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "EvaluationWork",
    "Scores",
    "Split",
    "Task",
    "TaskSource",
    "adjacency_of",
    "keep_arrays",
    "load_task",
    "read_arrays",
]

Arrays = dict[str, NDArray[Any]]
"""Arrays by name."""


@dataclass(frozen=True)
class Split:
    """One fold with one share of its labels."""

    fold: int
    """Number of the fold, as in the table of splits."""
    label_share: float = 1.0
    """Share of the training and calibration labels that is kept."""


@dataclass(frozen=True, eq=False)
class Task:
    """A labelled graph, in the order of the canonical index."""

    dataset: str
    classes: tuple[str, ...]
    """Names of the C classes, in the order of the codes."""
    labels: Ints32
    """True class code of every node, -1 if unknown, shape (N,)."""
    splits: tuple[Split, ...]
    roles: NDArray[np.int8]
    """Code of every node's role in every split, -1 for none, shape (splits, N)."""

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return len(self.classes)

    def rows(self, split: int, *roles: str) -> Ints:
        """Canonical indexes of the nodes that have one of these roles, ascending."""
        codes = [ROLES.index(role) for role in roles]
        return np.flatnonzero(np.isin(self.roles[split], codes))

    def known(self, split: int, *roles: str) -> Ints32:
        """Labels of the nodes with one of these roles, -1 for others, shape (N,)."""
        shown = np.full(len(self.labels), -1, np.int32)
        rows = self.rows(split, *roles)
        shown[rows] = self.labels[rows]
        return shown


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
    memberships: str | None = None
    """Table of the graph's communities; None: there is none."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a method for one configuration in one split."""

    held: Ints
    """Canonical indexes of labelled nodes whose scores do not depend on their labels,
    ascending, shape (m,). Calibration and misclassification rates are fitted to
    these nodes."""
    held_logits: Floats | Floats32
    """Uncalibrated logits (log-probabilities plus a constant per row), shape (m, C)."""
    target: Ints
    """The nodes with the roles validation and test, ascending, shape (t,)."""
    target_logits: Floats | Floats32
    """Uncalibrated logits of the targets, shape (t, C)."""
    seconds: float = 0.0
    """Wall time for this split."""

    @classmethod
    def of(
        cls,
        task: Task,
        split: int,
        held: Ints,
        logits: NDArray[np.floating],
        seconds: float,
    ) -> Scores:
        """Scores in single precision from logits of all nodes, shape (N, C)."""
        target = task.rows(split, "validation", "test")
        logits = logits.astype(np.float32)
        return cls(held, logits[held], target, logits[target], seconds)


@dataclass(frozen=True)
class EvaluationWork:
    """Location and settings of the evaluation of one task."""

    run: str = field(repr=False)
    """Location of its folder, which has the stages ``graph`` and ``labels``."""
    source: TaskSource
    settings: Settings

    def graph(self) -> Manifest:
        """The manifest of the stage ``graph``."""
        return RunDirectory(self.run).complete("graph")

    def task(self) -> Task:
        """The task's labels and folds, loaded once per process."""
        run = RunDirectory(self.run)
        made = (run.complete(name).fingerprint for name in ("graph", "labels"))
        return _task(self.run, self.source, self.settings.seed, *made)

    def adjacency(self) -> csr_array[Any]:
        """In-neighbours of node v in row v, shape (N, N), loaded once per process."""
        return adjacency_of(self.run, self.graph().fingerprint)

    def folder(self, name: str) -> Folder:
        """A folder for files that another evaluation reuses."""
        return Folder.of(self.run).child(name)


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
    classes = tuple(map(str, known.facts["classes"]))
    labels = layout.load_labels(known).codes
    if source.positive is not None:
        if source.positive not in classes:
            raise InputError(
                f"{source.dataset}: --positive {source.positive!r} is not a class: "
                f"choose one of {', '.join(classes)}"
            )
        code = classes.index(source.positive)
        classes = (f"not {source.positive}", source.positive)
        labels = np.where(labels < 0, -1, labels == code).astype(np.int32)
    if source.splits is None:
        roles = dict(enumerate(make_folds(labels)))
    else:
        ids = layout.load_ids(graph)
        roles = _read_splits(source.splits, ids, labels)
    folds = source.folds or tuple(roles)
    for fold in folds:
        if fold not in roles:
            raise SettingsError(
                f"{source.dataset}: there is no fold {fold}: choose from "
                f"{', '.join(map(str, roles))}"
            )
        for code, role in enumerate(ROLES):
            counts = np.bincount(labels[roles[fold] == code], minlength=len(classes))
            if not counts.all():
                missing = classes[int(counts.argmin())]
                raise InputError(
                    f"{source.dataset}: fold {fold} has no {role} node of class "
                    f"{missing!r}: use folds that have every class in every role"
                )
    for share in source.label_shares:
        if not 0 < share <= 1:
            raise SettingsError(
                f"--label-shares {share:g} is out of range: give shares above 0 and at "
                "most 1"
            )
    splits = tuple(
        Split(fold, share) for share in source.label_shares for fold in folds
    )
    rows = [_keep_share(roles[split.fold], labels, split, seed) for split in splits]
    return Task(source.dataset, classes, labels, splits, np.stack(rows))


@lru_cache(maxsize=1)
def adjacency_of(run: str, graph: str) -> csr_array[Any]:
    """The adjacency of a run directory whose graph has this fingerprint."""
    return read_adjacency(RunDirectory(run).complete("graph"))


def read_arrays(folder: Folder, name: str) -> Arrays:
    """Arrays of a file in the folder."""
    return npy.read_arrays(io.BytesIO(folder.read_bytes(f"{name}.npy")))


def keep_arrays(folder: Folder, name: str, make: Callable[[], Arrays]) -> Arrays:
    """Arrays of a file in the folder, which is made if it is not there."""
    if not folder.exists(f"{name}.npy"):
        buffer = io.BytesIO()
        npy.write_arrays(buffer, make())
        folder.create()
        folder.write_bytes(f"{name}.npy", buffer.getvalue())
    return read_arrays(folder, name)


@lru_cache(maxsize=1)
def _task(run: str, source: TaskSource, seed: int, graph: str, labels: str) -> Task:
    """The task; another one once the stages with these fingerprints changed."""
    return load_task(RunDirectory(run), source, seed)


def _read_splits(
    path: str, ids: NodeIds, labels: Ints32
) -> dict[int, NDArray[np.int8]]:
    """Role of every node by fold, shape (N,) each."""
    table = open_table(path, "table of splits")
    columns = ["node_id", "fold", "role"]
    table.require(zip(columns, columns, strict=True))
    batches = list(table.batches(columns))
    if not batches:
        raise InputError(f"{path} has no rows: give every node a role in every fold")
    node, fold, role = (
        pa.chunked_array([batch.column(name) for batch in batches]) for name in columns
    )

    def refuse(wrong: NDArray[Any], what: str, why: str) -> None:
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            value = {"node": node, "role": role}[what][row].as_py()
            raise InputError(f"{path}: {what} {value!r} in row {row} {why}")

    code = pc.fill_null(pc.index_in(role, pa.array(ROLES)), -1).to_numpy()
    refuse(code < 0, "role", f"is not one of {', '.join(ROLES)}")
    nodes = ids.index_of(node)
    refuse(nodes < 0, "node", "is not in the node table")
    unlabelled = "has a role but no label: remove the row, or give the node a label"
    refuse(labels[nodes] < 0, "node", unlabelled)
    numbers, place = np.unique(fold.to_numpy(), return_inverse=True)
    roles = np.full((len(numbers), len(labels)), -1, np.int8)
    roles[place, nodes] = code
    again = np.ones(len(nodes), np.bool_)
    again[np.unique(place * len(labels) + nodes, return_index=True)[1]] = False
    twice = "has two rows for one fold: give each node one role per fold"
    refuse(again, "node", twice)
    return dict(zip(map(int, numbers), roles, strict=True))


def _keep_share(
    roles: NDArray[np.int8], labels: Ints32, split: Split, seed: int
) -> NDArray[np.int8]:
    """Roles in which only a share of the training and calibration labels is kept.

    Each class keeps its share, rounded up, and at least two training labels and one
    calibration label. The labels of a smaller share are a subset of a larger share's.
    """
    kept = roles.copy()
    for code, minimum in ((0, 2), (1, 1)):
        for label in range(int(labels.max()) + 1):
            rows = np.flatnonzero((roles == code) & (labels == label))
            count = max(minimum, int(np.ceil(split.label_share * len(rows) - 1e-9)))
            random = stream(seed, Purpose.LABELS_KEPT, split.fold, code, label)
            kept[random.permutation(rows)[count:]] = -1
    return kept
