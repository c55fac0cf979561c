"""The methods of the comparison: their search spaces and how they compute scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.records import METHODS as RECORDED
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.methods.baselines import cdq, densities, enq, wvrn
from xnq_dist.evaluation.methods.demon import demon
from xnq_dist.evaluation.methods.embedded import (
    plus_split_scores,
    row_scores,
)
from xnq_dist.evaluation.methods.gnn import Kind, gnn_logits, require_gnn
from xnq_dist.evaluation.regions import communities_of
from xnq_dist.evaluation.rivals import rival_scores
from xnq_dist.evaluation.search import (
    Configuration,
    NodeRows,
    grid,
    reservoir_draws,
    strength_grid,
)
from xnq_dist.evaluation.task import EvaluationWork, Scores, adjacency_of
from xnq_dist.groups.leiden import leiden
from xnq_dist.quantify.interface import Communities

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["METHODS", "Method", "choose_methods"]

Score = Callable[
    ["Client", EvaluationWork, Configuration, Sequence[int]], Iterator[Scores]
]
"""Client, work, configuration, indices of splits -> scores in each of the splits."""
Logits = Callable[..., NDArray[np.floating]]
"""Work, index of the split, the values of a configuration by name -> logits of all
nodes, shape (N, C)."""
FLOOR = 1e-6
"""Minimum probability before taking the logarithm; wvRN often gives 0."""


@dataclass(frozen=True)
class Method:
    """One method of the comparison."""

    name: str
    embedder: str
    """Source of the scores, for the tables."""
    configurations: Callable[[Settings, int], list[Configuration]]
    """Settings and number of draws -> configurations of the search."""
    score: Score
    needs_features: bool = False
    crisp: bool = False
    """Whether scores are votes only, for CC and ACC."""
    calibrations: tuple[str, ...] = ()
    """Calibrations from which validation chooses; empty: all, as in the paper."""
    check: Callable[[], None] = lambda: None
    """Raises a `SettingsError` if the method cannot run on this machine."""


def _in_process(logits: Logits) -> Score:
    """Scores by a function that this process calls for one split after the other.

    This process holds all edges.
    """

    def score(
        client: Client,
        work: EvaluationWork,
        configuration: Configuration,
        splits: Sequence[int],
    ) -> Iterator[Scores]:
        task = work.task()
        for split in splits:
            began, held = time.perf_counter(), task.rows(split, "calibration")
            found = logits(work, split, **configuration)
            seconds = time.perf_counter() - began
            yield Scores.of(task, split, held, found, seconds)

    return score


def _wvrn(work: EvaluationWork, split: int, rounds: int) -> NDArray[np.floating]:
    task = work.task()
    known = task.known(split, "train")
    shares = wvrn(work.adjacency(), known, task.n_classes, rounds)
    return np.log(np.maximum(shares, FLOOR))


def _enq(work: EvaluationWork, split: int, hops: int) -> NDArray[np.floating]:
    task = work.task()
    rule = task.n_classes, hops, work.settings.seed
    votes = enq(work.adjacency(), task.known(split, "train"), *rule)
    return np.eye(task.n_classes)[votes]


def _cdq(
    work: EvaluationWork, split: int, communities: str, strategy: str
) -> NDArray[np.floating]:
    task, settings = work.task(), work.settings
    sets, density = _detected(
        work.run,
        work.graph().fingerprint,
        communities,
        settings.leiden.resolution,
        settings.seed,
    )
    used = density if strategy == "density" else None
    known, n_classes = task.known(split, "train"), task.n_classes
    return np.eye(n_classes)[cdq(sets, known, n_classes, settings.seed, used)]


@lru_cache(maxsize=1)
def _detected(
    run: str, graph: str, name: str, resolution: float, seed: int
) -> tuple[Communities, Floats]:
    """Communities and their densities, which configurations and splits share."""
    adjacency = adjacency_of(run, graph)
    if name == "demon":
        sets = demon(adjacency, seed)
    else:
        sets = communities_of(leiden(adjacency, resolution, seed))
    return sets, densities(sets, adjacency)


def _rival(
    with_neighbours: bool, work: EvaluationWork, split: int
) -> NDArray[np.floating]:
    """Scores of a rival, which cross-fits training and calibration labels."""
    task, edges = work.task(), work.adjacency() if with_neighbours else None
    known = task.known(split, "train", "calibration")
    features = NodeRows(work).matrix()
    return rival_scores(features, known, task.n_classes, work.settings.seed, edges)


def _gnn(
    kind: Kind, work: EvaluationWork, split: int, width: int, layers: int
) -> NDArray[np.floating]:
    """Logits of a network that is trained for this configuration and split."""
    task = work.task()
    features = NodeRows(work).matrix()
    return gnn_logits(
        kind,
        layers,
        width,
        work.adjacency(),
        features,
        task.known(split, "train"),
        task.known(split, "validation"),
        task.n_classes,
        work.settings.seed,
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="xnq",
            embedder="reservoir",
            configurations=reservoir_draws,
            score=partial(row_scores, "xnq"),
        ),
        Method(
            name="xnq+",
            embedder="several reservoirs, label features",
            configurations=lambda *_: grid(),
            # The method's definition fixes the calibration.
            calibrations=("bcts",),
            score=plus_split_scores,
        ),
        Method(
            name="lr",
            embedder="raw features",
            configurations=strength_grid,
            score=partial(row_scores, None),
            needs_features=True,
        ),
        Method(
            name="features",
            embedder="classifier of features",
            configurations=lambda *_: grid(),
            calibrations=("none",),
            score=_in_process(partial(_rival, False)),
            needs_features=True,
        ),
        Method(
            name="boosting",
            embedder="classifier of features and neighbours",
            configurations=lambda *_: grid(),
            calibrations=("none",),
            score=_in_process(partial(_rival, True)),
        ),
        *(
            Method(
                name=kind,
                embedder=f"{kind.upper()}, trained",
                configurations=lambda *_: grid(width=(128, 256), layers=(2, 3, 4)),
                score=_in_process(partial(_gnn, kind)),
                needs_features=True,
                check=require_gnn,
            )
            for kind in get_args(Kind)
        ),
        Method(
            name="wvrn",
            embedder="soft votes of neighbours",
            configurations=lambda *_: grid(rounds=(1, 2, 3, 4, 5)),
            score=_in_process(_wvrn),
        ),
        Method(
            name="enq",
            embedder="votes of ego networks",
            configurations=lambda *_: grid(hops=(1, 2)),
            crisp=True,
            calibrations=("none",),
            score=_in_process(_enq),
        ),
        Method(
            name="cdq",
            embedder="votes of communities",
            configurations=lambda *_: grid(
                communities=("demon", "leiden"), strategy=("frequency", "density")
            ),
            crisp=True,
            calibrations=("none",),
            score=_in_process(_cdq),
        ),
    )
}
"""Methods of the paper and baselines, by name."""


def choose_methods(names: Sequence[str], has_features: bool) -> list[Method]:
    """Return the methods of these names.

    Methods of the pipeline that are not in `METHODS` have the logistic readout.

    Raises
    ------
    SettingsError
        When a method does not exist, or needs features or packages that are missing.
    """
    of_pipeline = {
        record.name: Method(
            name=record.name,
            embedder=record.title,
            # Configurations differ only in C, so they share the stage.
            configurations=strength_grid,
            score=partial(row_scores, record.name),
        )
        for record in RECORDED.values()
    }
    known = of_pipeline | METHODS
    for name in names:
        if name not in known:
            raise SettingsError(
                f"there is no method {name!r}: choose from {', '.join(known)}"
            )
        if known[name].needs_features and not has_features:
            raise SettingsError(
                f"method {name!r} needs node features and the graph has none: remove "
                "it from --methods, or set columns.features"
            )
        known[name].check()
    return [known[name] for name in dict.fromkeys(names)]
