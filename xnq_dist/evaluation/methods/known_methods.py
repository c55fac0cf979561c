"""The methods side by side: what each one searches, and how its scores are made.

Four kinds of work. ``rows``: a configuration makes an embedding once, and a logistic
readout is fitted to it in every split. ``split``: a worker does a configuration in a
split by itself. ``graph``: passes over the partitions, driven from here, serve all
splits. ``whole``: so does one pass, which answers for the whole graph and has no scores
of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.method_records import METHODS as RECORDED
from xnq_dist.core.method_records import MethodRecord
from xnq_dist.core.progress import silent
from xnq_dist.core.reservoir_settings import ReservoirSettings
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.evaluation.grid_search import grid, reservoir_draws, strength_grid
from xnq_dist.evaluation.methods.gnn import (
    Kind,
    require_gnn,
    trained_matters,
    trained_scores,
)
from xnq_dist.evaluation.methods.method_interface import Configuration, Scores, Whole
from xnq_dist.evaluation.methods.network import (
    cdq_scores,
    enq_scores,
    lbq_whole,
    wvrn_scores,
)
from xnq_dist.evaluation.methods.reservoir_plus import (
    plus_configuration,
    plus_matters,
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
"""Client, work, configurations, places of splits -> draw, place of split, scores."""

WholeEstimates = Callable[["Client", EvaluationWork, Sequence[int]], Iterator[Whole]]
"""Client, work, places of splits -> the answer for each."""


@dataclass(frozen=True)
class Method:
    """One method of the comparison."""

    name: str
    embedder: str
    """What makes the scores, for the tables."""
    kind: Literal["rows", "split", "graph", "whole"]
    configurations: Callable[[Settings, int], list[Configuration]]
    """Settings and wished draws -> the search."""
    needs_features: bool = False
    crisp: bool = False
    """Votes only: CC and ACC."""
    calibrations: Callable[[Settings], tuple[str, ...]] = lambda settings: (
        settings.evaluation.calibrations
    )
    """What validation chooses the calibration from."""
    matter: Callable[[Settings], dict[str, Any]] = lambda _: {}
    """Settings, beside the configuration, that its scores depend on."""
    reservoir: Callable[[Settings, float, Configuration], ReservoirSpec] | None = None
    """Kind ``rows``: settings, rho(A) and configuration -> the reservoir."""
    embed: Callable[[RunDirectory, Settings, Client], Manifest] | None = None
    """Kind ``rows``: makes the stage ``embeddings``; with neither, the raw features
    are the embedding."""
    score_split: Callable[[EvaluationWork, Configuration, int], Scores] | None = None
    """Kind ``split``."""
    score_graph: GraphScores | None = None
    """Kind ``graph``."""
    estimate_graph: WholeEstimates | None = None
    """Kind ``whole``."""
    check: Callable[[], None] = lambda: None
    """Raises a `SettingsError` where the method cannot run on this machine."""
    n_classes: int | None = None
    """The number of classes that it is defined for; None: any."""


def _with_matrix(settings: Settings, matrix: str | None) -> ReservoirSettings:
    wanted = settings.reservoir
    return wanted if matrix is None else wanted.model_copy(update={"matrix": matrix})


def _reservoir(
    matrix: str | None, settings: Settings, rho: float, configuration: Configuration
) -> ReservoirSpec:
    from xnq_dist.reservoir.embed import reservoir_spec

    suited = _with_matrix(settings, matrix)
    changes = {"seed": configuration["seed"], "reservoir": suited}
    scales = (configuration[name] for name in ("recurrent_scale", "input_scale", "dim"))
    return reservoir_spec(settings.model_copy(update=changes), rho, *scales)


def _reservoir_matters(matrix: str | None, settings: Settings) -> dict[str, Any]:
    names = {"supersteps", "bias_scale", "matrix", "nonzeros"}
    return {
        "reservoir": _with_matrix(settings, matrix).model_dump(include=names),
        "exchange": settings.exchange.dtype,
    }


def _xnq(name: str, matrix: str | None) -> Method:
    return Method(
        name=name,
        embedder="reservoir" if matrix is None else f"reservoir, {matrix}",
        kind="rows",
        configurations=reservoir_draws,
        matter=partial(_reservoir_matters, matrix),
        reservoir=partial(_reservoir, matrix),
    )


def _wvrn(name: str, vote: Literal["soft", "hard"]) -> Method:
    return Method(
        name=name,
        embedder=f"{vote} votes of neighbours",
        kind="graph",
        configurations=lambda *_: grid(rounds=(1, 2, 3, 4, 5)),
        score_graph=partial(wvrn_scores, vote),
    )


def _trained(name: Kind) -> Method:
    return Method(
        name=name,
        embedder=f"{name.upper()}, trained",
        kind="split",
        configurations=lambda *_: grid(width=(128, 256), layers=(2, 3, 4)),
        needs_features=True,
        matter=trained_matters,
        score_split=partial(trained_scores, name),
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
            embedder="reservoirs side by side, label features",
            kind="graph",
            configurations=plus_configuration,
            # Its definition says which: nothing is left for validation to choose.
            calibrations=lambda settings: (settings.readout.calibration,),
            matter=plus_matters,
            score_graph=plus_split_scores,
        ),
        Method(
            name="lr",
            embedder="raw features",
            kind="rows",
            configurations=lambda settings, _: strength_grid(settings),
            needs_features=True,
        ),
        *(_trained(name) for name in get_args(Kind)),
        _wvrn("wvrn", "soft"),
        _wvrn("wvrn-hard", "hard"),
        Method(
            name="enq",
            embedder="votes of ego networks",
            kind="graph",
            configurations=lambda *_: grid(hops=(1, 2)),
            crisp=True,
            matter=lambda settings: {"seed": settings.seed},
            score_graph=enq_scores,
        ),
        Method(
            name="cdq",
            embedder="votes of communities",
            kind="graph",
            configurations=lambda *_: grid(
                communities=("demon", "leiden"), strategy=("frequency", "density")
            ),
            crisp=True,
            matter=lambda settings: {
                "seed": settings.seed,
                "resolution": settings.leiden.resolution,
            },
            score_graph=cdq_scores,
        ),
        Method(
            name="lbq",
            embedder="links, the whole graph at once",
            kind="whole",
            configurations=lambda *_: [{}],
            estimate_graph=lbq_whole,
            n_classes=2,
        ),
    )
}
"""Methods of the paper and baselines by their names."""


def _of_pipeline(record: MethodRecord) -> Method:
    """The embeddings of a method of the pipeline, with the readout of the others."""

    def embed(run: RunDirectory, settings: Settings, client: Client) -> Manifest:
        suited = settings.model_copy(update={"method": record.name})
        module = RECORDED.module_of(record.name)
        made: Manifest = module.embed(run, suited, client, silent)
        return made

    return Method(
        name=record.name,
        embedder=record.title,
        kind="rows",
        # The configurations differ in C alone: they share the stage.
        configurations=lambda settings, _: strength_grid(settings),
        matter=lambda settings: {
            "embedding": record.inputs("embeddings"),
            "seed": settings.seed,
            "reservoir": settings.reservoir.model_dump(),
            "exchange": settings.exchange.dtype,
            "dtype": settings.embeddings.dtype,
        },
        embed=embed,
    )


def known_methods() -> dict[str, Method]:
    """Every method by its name; those of the pipeline that are not in METHODS last."""
    records = RECORDED.records().values()
    more = {r.name: _of_pipeline(r) for r in records if r.name not in METHODS}
    return METHODS | more


def choose_methods(names: Sequence[str], has_features: bool) -> list[Method]:
    """The methods of these names.

    Raises
    ------
    SettingsError
        When there is no such method, it needs features and there are none, or packages
        that are not installed.
    """
    known = known_methods()
    for name in names:
        if name not in known:
            raise SettingsError(
                f"there is no method {name!r}: choose from {', '.join(known)}"
            )
        if known[name].needs_features and not has_features:
            raise SettingsError(
                f"method {name!r} works on node features and the graph has none: leave "
                "it out, or set columns.features"
            )
        known[name].check()
    return [known[name] for name in dict.fromkeys(names)]
