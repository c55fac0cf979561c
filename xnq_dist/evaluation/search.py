"""Searches of a method's parameters: random draws, grids, and the fit of one readout.

The draws are the paper's and depend on the seed only. Training rows are gathered from
all parts, and all rows are scored part by part, so that memory holds the embeddings of
the training rows and not of all nodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.need import human
from xnq_dist.core.random_bits import Purpose, stream, stream_key
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest
from xnq_dist.evaluation.task import EvaluationWork, Scores
from xnq_dist.graph.layout import load_nodes
from xnq_dist.readout.logistic import decision, fit
from xnq_dist.reservoir.context import matrix_of

__all__ = [
    "Configuration",
    "NodeRows",
    "fit_split",
    "grid",
    "reservoir_draws",
    "strength_grid",
]

Configuration = dict[str, Any]
"""Values of a method's hyperparameters: JSON values."""

DIMS = (512, 1024, 2048, 4096)
"""Reservoir dimensions of the paper."""
STRENGTH_RANGE = (1e-2, 1e3)
"""Of log-uniform draws of C (the paper, section "Hyperparameters")."""
RECURRENT_RANGE = (1.0, 25.0)
"""The same of the recurrent scale."""
INPUT_RANGE = (0.1, 1.0)
"""The same of the input scale."""


def reservoir_draws(settings: Settings, draws: int) -> list[Configuration]:
    """Random configurations of reservoir and readout.

    A longer search begins with the configurations of a shorter one. Values that the
    settings specify are fixed, and the other values of a draw do not change with them.
    """
    reservoir = settings.reservoir
    given = {
        "recurrent_scale": reservoir.recurrent_scale,
        "input_scale": reservoir.input_scale,
        "C": settings.readout.C,
    }
    fixed = {name: value for name, value in given.items() if value != "select"}
    if "dim" in reservoir.model_fields_set:
        fixed["dim"] = reservoir.dim
    configurations = []
    for draw in range(draws):
        key = settings.seed, Purpose.SEARCH, draw
        random = stream(*key)
        # A uniform number chooses the size, so that other values of the draw do not
        # depend on the list of sizes.
        size, *scales = random.random(4).tolist()
        configuration: Configuration = {
            "dim": DIMS[int(size * len(DIMS))],
            "recurrent_scale": _log_uniform(RECURRENT_RANGE, scales[0]),
            "input_scale": _log_uniform(INPUT_RANGE, scales[1]),
            "C": _log_uniform(STRENGTH_RANGE, scales[2]),
            "seed": int(stream_key(*key).generate_state(1)[0]),
        }
        configurations.append(configuration | fixed)
    return configurations


def strength_grid(settings: Settings, draws: int) -> list[Configuration]:
    """Grid of C for a readout that has no other hyperparameters."""
    if settings.readout.C != "select":
        return [{"C": settings.readout.C}]
    low, high = (math.log10(end) for end in STRENGTH_RANGE)
    return [{"C": float(10.0**power)} for power in np.linspace(low, high, 10)]


def grid(**values: tuple[object, ...]) -> list[Configuration]:
    """Every combination of the values; the last name varies fastest.

    Without values there is one configuration, which is empty.

    Examples
    --------
    >>> grid(a=(1, 2), b=("x",))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [
        dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())
    ]


@dataclass(frozen=True)
class NodeRows:
    """Rows of the nodes in parts: their embeddings, or the raw features."""

    work: EvaluationWork
    embeddings: Manifest | None = None
    """The stage whose rows are used; None: the features in the graph's node tables."""

    def parts(self) -> Iterator[tuple[Ints, NDArray[Any]]]:
        """Canonical indexes and rows of each part, shapes (n,) and (n, d')."""
        manifest = self.work.graph()
        for number in range(int(manifest.facts["partitions"])):
            if self.embeddings:
                nodes = load_nodes(manifest, number, ["index"])
                file = self.embeddings.named("part-")[number]
                table = self.embeddings.where.read_table(file, "embeddings")
                column = table["embedding"]
            else:
                nodes = load_nodes(manifest, number, ["index", "features"])
                column = nodes["features"]
            yield nodes["index"].to_numpy(), matrix_of(column)

    def matrix(self, nodes: Ints | None = None) -> Floats32:
        """Rows of these canonical indexes, ascending, shape (n, d'); None: of all."""
        indexes, pieces = [], []
        for index, x in self.parts():
            chosen = slice(None) if nodes is None else np.isin(index, nodes)
            indexes.append(index[chosen])
            pieces.append(x[chosen])
        rows: Floats32 = np.concatenate(pieces)
        return rows[np.argsort(np.concatenate(indexes))]


def fit_split(rows: NodeRows, C: float, split: int) -> Scores:
    """Fit a logistic readout to the training rows and score all.

    Parameters
    ----------
    C
        Inverse L2 strength.

    Raises
    ------
    DoesNotFitError
        When the training rows need more than ``readout.memory``.
    """
    began, work = time.perf_counter(), rows.work
    task, memory = work.task(), work.settings.readout.memory_bytes
    train, n_classes = task.rows(split, "train"), task.n_classes
    _, first = next(rows.parts())
    # Pieces of 4 bytes a value, and the array that they are joined to.
    need = 8 * len(train) * first.shape[1]
    if need > memory:
        raise DoesNotFitError(
            f"{len(train)} training rows of {first.shape[1]} values take "
            f"{human(need)}, more than readout.memory = {human(memory)}: raise it, or "
            "set a smaller reservoir.dim"
        )
    model = fit(rows.matrix(train), task.labels[train], n_classes, C)
    logits = np.empty((len(task.labels), n_classes))
    for index, x in rows.parts():
        logits[index] = decision(model, x)
    seconds = time.perf_counter() - began
    if rows.embeddings:
        seconds += rows.embeddings.seconds
    return Scores.of(task, split, task.rows(split, "calibration"), logits, seconds)


def _log_uniform(ends: tuple[float, float], uniform: float) -> float:
    low, high = (math.log(end) for end in ends)
    # Rounded to six digits, so that a person can set the exact value.
    return float(f"{math.exp(low + uniform * (high - low)):.6g}")
