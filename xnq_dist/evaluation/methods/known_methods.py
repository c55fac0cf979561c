"""The methods of the comparison: their search spaces and how they compute scores.

A method gives scores of nodes, or, if it is of a complete graph, one estimate a split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.method_records import METHODS as RECORDED
from xnq_dist.core.method_records import MethodRecord
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.grid_search import grid, reservoir_draws, strength_grid
from xnq_dist.evaluation.methods.embedded import (
    embed_draw,
    embed_method,
    plus_configuration,
    plus_settings,
    plus_split_scores,
    row_scores,
)
from xnq_dist.evaluation.methods.gnn import Kind, require_gnn, trained_scores
from xnq_dist.evaluation.methods.method_interface import Configuration, Figure, Scores
from xnq_dist.evaluation.methods.network import (
    cdq_scores,
    enq_scores,
    lbq_figures,
    rival_split_scores,
    wvrn_scores,
)
from xnq_dist.evaluation.work import EvaluationWork

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["METHODS", "Method", "choose_methods", "known_methods"]

Score = Callable[
    ["Client", EvaluationWork, Sequence[Configuration], Sequence[int]],
    Iterator[tuple[int, int, Scores]],
]
"""Client, work, configurations, indices of splits -> draw, index of split, scores."""

OfGraph = Callable[
    ["Client", EvaluationWork, Sequence[int]], Iterator[tuple[Figure, float]]
]
"""Client, work, indices of splits -> figure of each split, and its seconds."""

CALIBRATIONS = ("bcts", "platt", "platt_logit", "temperature", "none")
"""Calibrations of the readout that validation chooses from, as in the paper."""


@dataclass(frozen=True)
class Method:
    """One method of the comparison."""

    name: str
    embedder: str
    """Source of the scores, for the tables."""
    configurations: Callable[[Settings, int], list[Configuration]]
    """Settings and number of draws -> configurations of the search."""
    score: Score
    """Scores of all configurations and splits."""
    needs_features: bool = False
    crisp: bool = False
    """Whether scores are votes only, for CC and ACC."""
    calibrations: Callable[[Settings], tuple[str, ...]] = lambda _: CALIBRATIONS
    """Calibrations from which validation chooses."""
    relevant_settings: Callable[[Settings], dict[str, Any]] = lambda _: {}
    """Settings that its scores depend on, besides the configuration."""
    of_graph: OfGraph | None = None
    """Errors of estimates of the complete graph; `score` and the search are unused."""
    check: Callable[[], None] = lambda: None
    """Raises a `SettingsError` if the method cannot run on this machine."""
    n_classes: int | None = None
    """Number of classes that it is defined for; None: any."""


def _reservoir_settings(settings: Settings) -> dict[str, Any]:
    names = {"supersteps", "matrix"}
    return {
        "reservoir": settings.reservoir.model_dump(include=names),
        "exchange": settings.exchange.dtype,
    }


def _seed(settings: Settings) -> dict[str, Any]:
    return {"seed": settings.seed}


def _wvrn(name: str, vote: Literal["soft", "hard"]) -> Method:
    return Method(
        name=name,
        embedder=f"{vote} votes of neighbours",
        configurations=lambda *_: grid(rounds=(1, 2, 3, 4, 5)),
        score=partial(wvrn_scores, vote),
    )


def _rival(name: str, embedder: str, with_neighbours: bool) -> Method:
    return Method(
        name=name,
        embedder=embedder,
        configurations=lambda *_: [{}],
        needs_features=not with_neighbours,
        calibrations=lambda _: ("none",),
        relevant_settings=_seed,
        score=partial(rival_split_scores, with_neighbours),
    )


def _trained(name: Kind) -> Method:
    return Method(
        name=name,
        embedder=f"{name.upper()}, trained",
        configurations=lambda *_: grid(width=(128, 256), layers=(2, 3, 4)),
        needs_features=True,
        relevant_settings=_seed,
        score=partial(trained_scores, name),
        check=require_gnn,
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="xnq",
            embedder="reservoir",
            configurations=reservoir_draws,
            relevant_settings=_reservoir_settings,
            score=partial(row_scores, embed_draw),
        ),
        Method(
            name="xnq+",
            embedder="several reservoirs, label features",
            configurations=plus_configuration,
            # The method's definition fixes the calibration.
            calibrations=lambda settings: (settings.readout.calibration,),
            relevant_settings=plus_settings,
            score=plus_split_scores,
        ),
        Method(
            name="lr",
            embedder="raw features",
            configurations=lambda settings, _: strength_grid(settings),
            score=partial(row_scores, None),
            needs_features=True,
        ),
        _rival("features", "classifier of features", False),
        _rival("boosting", "classifier of features and neighbours", True),
        *(_trained(name) for name in get_args(Kind)),
        _wvrn("wvrn", "soft"),
        _wvrn("wvrn-hard", "hard"),
        Method(
            name="enq",
            embedder="votes of ego networks",
            configurations=lambda *_: grid(hops=(1, 2)),
            crisp=True,
            relevant_settings=_seed,
            score=enq_scores,
        ),
        Method(
            name="cdq",
            embedder="votes of communities",
            configurations=lambda *_: grid(
                communities=("demon", "leiden"), strategy=("frequency", "density")
            ),
            crisp=True,
            relevant_settings=lambda settings: {
                "seed": settings.seed,
                "resolution": settings.leiden.resolution,
            },
            score=cdq_scores,
        ),
        Method(
            name="lbq",
            embedder="links of the complete graph",
            configurations=lambda *_: [{}],
            score=lambda *_: iter(()),
            of_graph=lbq_figures,
            n_classes=2,
        ),
    )
}
"""Methods of the paper and baselines, by name."""


def _of_pipeline(record: MethodRecord) -> Method:
    """A method of the pipeline: its embeddings, with the logistic readout."""
    return Method(
        name=record.name,
        embedder=record.title,
        # Configurations differ only in C, so they share the stage.
        configurations=lambda settings, _: strength_grid(settings),
        relevant_settings=lambda settings: {
            "embedding": record.inputs("embeddings"),
            "seed": settings.seed,
            "reservoir": settings.reservoir.model_dump(),
            "exchange": settings.exchange.dtype,
        },
        score=partial(row_scores, partial(embed_method, record.name)),
    )


def known_methods() -> dict[str, Method]:
    """Every method by name; pipeline methods that are not in METHODS come last."""
    records = RECORDED.records().values()
    more = {r.name: _of_pipeline(r) for r in records if r.name not in METHODS}
    return METHODS | more


def choose_methods(names: Sequence[str], has_features: bool) -> list[Method]:
    """Return the methods of these names.

    Raises
    ------
    SettingsError
        When a method does not exist, or needs features or packages that are missing.
    """
    known = known_methods()
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
