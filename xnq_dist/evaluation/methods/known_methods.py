"""The methods of the comparison: their search spaces and how their scores are computed.

There are three kinds of methods. Most have an embedding, which is computed once per
configuration, and a logistic readout that is fitted to it in every split. With
`score_graph`, this process computes the scores of all splits; with `estimate_graph`, it
estimates the prevalence of the complete graph, without scores of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.method_records import METHODS as RECORDED
from xnq_dist.core.method_records import MethodRecord
from xnq_dist.core.progress import silent
from xnq_dist.core.settings import ReservoirSettings, Settings
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.evaluation.grid_search import grid, reservoir_draws, strength_grid
from xnq_dist.evaluation.methods.gnn import (
    Kind,
    require_gnn,
    trained_scores,
    training_settings,
)
from xnq_dist.evaluation.methods.method_interface import (
    Configuration,
    GraphEstimate,
    Scores,
)
from xnq_dist.evaluation.methods.network import (
    cdq_scores,
    enq_scores,
    lbq_estimates,
    rival_split_scores,
    wvrn_scores,
)
from xnq_dist.evaluation.methods.reservoir_plus import (
    plus_configuration,
    plus_settings,
    plus_split_scores,
)
from xnq_dist.evaluation.work import EvaluationWork

if TYPE_CHECKING:
    from distributed import Client

    from xnq_dist.reservoir.context import ReservoirSpec

__all__ = ["METHODS", "Method", "choose_methods", "known_methods"]

GraphScores = Callable[
    ["Client", EvaluationWork, Sequence[Configuration], Sequence[int]],
    Iterator[tuple[int, int, Scores]],
]
"""Client, work, configurations, indices of splits -> draw, index of split, scores."""

GraphEstimates = Callable[
    ["Client", EvaluationWork, Sequence[int]], Iterator[GraphEstimate]
]
"""Client, work, indices of splits -> the estimate of each split."""

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
    needs_features: bool = False
    crisp: bool = False
    """Whether scores are votes only, for CC and ACC."""
    calibrations: Callable[[Settings], tuple[str, ...]] = lambda _: CALIBRATIONS
    """Calibrations from which validation chooses."""
    relevant_settings: Callable[[Settings], dict[str, Any]] = lambda _: {}
    """Settings that its scores depend on, besides the configuration."""
    reservoir: Callable[[Settings, float, Configuration], ReservoirSpec] | None = None
    """Settings, rho(A) and configuration -> the reservoir."""
    embed: Callable[[RunDirectory, Settings, Client], Manifest] | None = None
    """Computes the stage ``embeddings``. Without this and `reservoir`,
    the raw features are the embedding."""
    score_graph: GraphScores | None = None
    """Scores of all configurations and splits."""
    estimate_graph: GraphEstimates | None = None
    """Estimates of all splits."""
    check: Callable[[], None] = lambda: None
    """Raises a `SettingsError` if the method cannot run on this machine."""
    n_classes: int | None = None
    """Number of classes that it is defined for; None: any."""


def _with_matrix(settings: Settings, matrix: str | None) -> ReservoirSettings:
    reservoir = settings.reservoir
    if matrix is None:
        return reservoir
    return reservoir.model_copy(update={"matrix": matrix})


def _reservoir(
    matrix: str | None, settings: Settings, rho: float, configuration: Configuration
) -> ReservoirSpec:
    from xnq_dist.reservoir.embed import reservoir_spec

    suited = _with_matrix(settings, matrix)
    changes = {"seed": configuration["seed"], "reservoir": suited}
    scales = (configuration[name] for name in ("recurrent_scale", "input_scale", "dim"))
    return reservoir_spec(settings.model_copy(update=changes), rho, *scales)


def _reservoir_settings(matrix: str | None, settings: Settings) -> dict[str, Any]:
    names = {"supersteps", "matrix"}
    return {
        "reservoir": _with_matrix(settings, matrix).model_dump(include=names),
        "exchange": settings.exchange.dtype,
    }


def _xnq(name: str, matrix: str | None) -> Method:
    return Method(
        name=name,
        embedder="reservoir" if matrix is None else f"reservoir, {matrix}",
        configurations=reservoir_draws,
        relevant_settings=partial(_reservoir_settings, matrix),
        reservoir=partial(_reservoir, matrix),
    )


def _wvrn(name: str, vote: Literal["soft", "hard"]) -> Method:
    return Method(
        name=name,
        embedder=f"{vote} votes of neighbours",
        configurations=lambda *_: grid(rounds=(1, 2, 3, 4, 5)),
        score_graph=partial(wvrn_scores, vote),
    )


def _rival(name: str, embedder: str, with_neighbours: bool) -> Method:
    return Method(
        name=name,
        embedder=embedder,
        configurations=lambda *_: [{}],
        needs_features=not with_neighbours,
        calibrations=lambda _: ("none",),
        relevant_settings=lambda settings: {"seed": settings.seed},
        score_graph=partial(rival_split_scores, with_neighbours),
    )


def _trained(name: Kind) -> Method:
    return Method(
        name=name,
        embedder=f"{name.upper()}, trained",
        configurations=lambda *_: grid(width=(128, 256), layers=(2, 3, 4)),
        needs_features=True,
        relevant_settings=training_settings,
        score_graph=partial(trained_scores, name),
        check=require_gnn,
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _xnq("xnq", None),
        _xnq("xnq-dense", "dense"),
        _xnq("xnq-sparse", "sparse"),
        Method(
            name="xnq+",
            embedder="several reservoirs, label features",
            configurations=plus_configuration,
            # The method's definition fixes the calibration.
            calibrations=lambda settings: (settings.readout.calibration,),
            relevant_settings=plus_settings,
            score_graph=plus_split_scores,
        ),
        Method(
            name="lr",
            embedder="raw features",
            configurations=lambda settings, _: strength_grid(settings),
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
            relevant_settings=lambda settings: {"seed": settings.seed},
            score_graph=enq_scores,
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
            score_graph=cdq_scores,
        ),
        Method(
            name="lbq",
            embedder="links of the complete graph",
            configurations=lambda *_: [{}],
            estimate_graph=lbq_estimates,
            n_classes=2,
        ),
    )
}
"""Methods of the paper and baselines, by name."""


def _of_pipeline(record: MethodRecord) -> Method:
    """A method of the pipeline: its embeddings, with the logistic readout."""

    def embed(run: RunDirectory, settings: Settings, client: Client) -> Manifest:
        suited = settings.model_copy(update={"method": record.name})
        module = RECORDED.module_of(record.name)
        made: Manifest = module.embed(run, suited, client, silent)
        return made

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
        embed=embed,
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
