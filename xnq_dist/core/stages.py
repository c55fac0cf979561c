"""The stages of a run: their order, what each is made from, and what has changed.

A stage is due when its inputs differ, and with it what is made from it.
`jobs.each_stage` does those that are due. Inputs are settings, the fingerprints of
earlier stages, the digests of tables (`graph.contents`) and the number of the format.
The package version is no input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.records import INPUT_SCALE, METHODS, RECURRENT_SCALES
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import Settings

__all__ = [
    "LEIDEN_EDGE",
    "STAGES",
    "Made",
    "StageRecord",
    "choose_source",
    "differences",
    "following",
    "scales_of",
    "selects_scales",
    "set_scales",
    "shown",
    "streams",
]

ELSEWHERE = {"watch"}
"""Sections of the settings that no file of a run depends on."""
PREPARED: Any = {
    "input": {"directed", "duplicates", "unknown_nodes"},
    "features": {"scale"},
    "partitioner": True,
}
"""Settings that the graph depends on."""
ESTIMATED: Any = {
    **dict.fromkeys(("quantifier", "labelled", "memberships", "auto"), True),
    **dict.fromkeys(("intervals", "quality", "seed"), True),
    # Labels are compared by value, after `labels.missing` was applied.
    "labels": {"drawn", "prior"},
    "readout": {"folds"},
    "disclosure": {"min_size"},
    "input": {"unknown_nodes", "memory"},
}
"""Settings that estimates depend on."""
LEIDEN_EDGE = 160
"""Bytes per directed edge while Leiden runs, adjacency included (measured: 104 to 155,
most with loops)."""

Digests = Mapping[str, Any]
"""Digests of tables by what they were read for, as from `graph.contents`."""
Scales = tuple[Any, Any]
"""Recurrent and input scale."""


class Made(Protocol):
    """A complete stage: what inputs take from its manifest."""

    @property
    def fingerprint(self) -> str:
        """Of its own inputs."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it recorded."""

    @property
    def files(self) -> Sequence[Any]:
        """The records of its files."""


Stages = Mapping[str, Made]
"""Complete stages by name."""


def _graph_inputs(
    stages: Stages, tables: Digests, settings: Settings
) -> dict[str, Any]:
    """Inputs of the stage ``graph``.

    The number of partitions is that of the existing graph if settings name none.
    """
    partitions = settings.partitions
    if partitions == "auto":
        partitions = int(stages["graph"].facts["partitions"])
    relevant = settings.model_dump(include=PREPARED)
    relevant["partitions"] = min(partitions, int(tables["nodes"]["rows"]))
    if settings.reservoir.supersteps == "auto":
        relevant["supersteps"] = "auto"
    if settings.partitioner in ("auto", "stream"):
        # The memory decides between METIS and streaming, and the edges streaming uses.
        relevant["input"]["memory"] = settings.input.memory_bytes
    return {"settings": relevant}


def _scores_inputs(_: Stages, __: Digests, settings: Settings) -> dict[str, Any]:
    """Inputs of the stage ``scores``."""
    return {"columns": settings.columns.scores}


def selects_scales(settings: Settings) -> bool:
    """Whether the stage ``select`` searches for the reservoir's scales."""
    scales = settings.reservoir.recurrent_scale, settings.reservoir.input_scale
    return "select" in scales and METHODS[settings.method].searches


def set_scales(settings: Settings) -> Scales:
    """Recurrent and input scale of the settings; those of xnq+ for ``select``."""
    reservoir = settings.reservoir
    recurrent, inputs = reservoir.recurrent_scale, reservoir.input_scale
    return (
        RECURRENT_SCALES if recurrent == "select" else recurrent,
        INPUT_SCALE if inputs == "select" else inputs,
    )


def scales_of(stages: Stages, settings: Settings) -> Scales:
    """The scales that the stage ``select`` chose if it is used, else those set."""
    if not selects_scales(settings):
        return set_scales(settings)
    chosen = stages["select"].facts
    return chosen["recurrent_scale"], chosen["input_scale"]


def _select_inputs(_: Stages, __: Digests, settings: Settings) -> dict[str, Any]:
    """Inputs of the stage ``select``."""
    return _device(settings) | {
        "seed": settings.seed,
        "reservoir": settings.reservoir.model_dump(),
        "exchange_dtype": settings.exchange.dtype,
        "folds": settings.readout.folds,
    }


def _embeddings_inputs(
    stages: Stages, _: Digests, settings: Settings
) -> dict[str, Any]:
    """Inputs of the stage ``embeddings``."""
    scales = {"recurrent_scale", "input_scale"}
    return _device(settings) | {
        "method": settings.method,
        "seed": settings.seed,
        # Use the chosen scales instead of the settings, which may be `select`.
        "reservoir": settings.reservoir.model_dump(exclude=scales),
        "scales": [*scales_of(stages, settings)],
        "exchange_dtype": settings.exchange.dtype,
    }


def _device(settings: Settings) -> dict[str, Any]:
    """Inputs of a GPU's products, whose bits differ from a CPU's."""
    return {"backend": "gpu"} if settings.backend == "gpu" else {}


def _readout_inputs(stages: Stages, _: Digests, settings: Settings) -> dict[str, Any]:
    """Inputs of the stage ``readout``."""
    inputs: dict[str, Any] = {
        "method": settings.method,
        "readout": settings.readout.model_dump(exclude={"memory"}),
        "seed": settings.seed,
    }
    # `readout.memory` counts where labelled nodes are sampled.
    facts = stages["embeddings"].facts
    second_stage = METHODS[settings.method].second_stage
    columns = sum(facts["blocks"]) if second_stage else facts["dim"]
    rows = settings.readout.max_rows(columns)
    if rows < stages["labels"].facts["n_labelled"]:
        inputs["rows"] = rows
    return inputs


def _quantify_inputs(
    stages: Stages, tables: Digests, settings: Settings
) -> dict[str, Any]:
    """Inputs of the stage ``quantify``: ``source`` (`choose_source`), ``memberships``.

    Only detected communities have no memberships.
    """
    source = tables["source"]
    inputs = {
        "prior": [float(value) for value in stages["readout"].facts["prior"]],
        "communities": source,
        "settings": settings.model_dump(mode="json", include=ESTIMATED),
    }
    if source != "leiden":
        return inputs | {"memberships": tables["memberships"]}
    streamed = streams(settings, stages["graph"].facts["n_edges"])
    detected = settings.leiden.model_dump()
    return inputs | {"leiden": detected, "engine": "streamed" if streamed else "cpu"}


def streams(settings: Settings, edges: int) -> bool:
    """Whether edges stay on disk because `input.memory` does not hold them."""
    return edges * LEIDEN_EDGE > settings.input.memory_bytes


def choose_source(memberships: str | None, settings: Settings) -> str:
    """The source of the communities: ``given``, ``leiden`` or ``column:NAME``.

    Parameters
    ----------
    memberships
        Path of the memberships table; None: there is none.

    Raises
    ------
    SettingsError
        When ``communities = given`` and there is no memberships table.
    """
    given, source = memberships is not None, settings.communities
    if source == "auto":
        return "given" if given else "leiden"
    if source == "given" and not given:
        raise SettingsError(
            "communities = given needs a memberships table: name one with "
            "--memberships, or set communities = leiden"
        )
    return source


def _published_inputs(stages: Stages, _: Digests, settings: Settings) -> dict[str, Any]:
    """Inputs of the published results, except the directory's previous results."""
    return {
        "written": [record.checksum for record in stages["quantify"].files],
        # Where results go as well changes none of their bytes.
        "settings": redacted(settings.model_dump(mode="json", exclude=ELSEWHERE)),
    }


@dataclass(frozen=True)
class StageRecord:
    """A stage of a run, which writes one folder."""

    name: str
    format: int
    """Raise it when the stage writes different files from the same inputs."""
    made_by: str
    """Stage of a job that makes it: a method of `jobs.Job`, else of `pipeline`."""
    after: tuple[str, ...] = ()
    """Stages that it is made from."""
    tables: tuple[str, ...] = ()
    """Tables whose digests are inputs."""
    inputs: Callable[[Stages, Digests, Settings], dict[str, Any]] = lambda *_: {}
    """Settings that are inputs."""
    stays: bool = False
    """Whether it and what is made from it stay until their own inputs differ.

    A new selection may choose the same scales: they are inputs, its fingerprint is not.
    """

    def made_from(
        self, stages: Stages, tables: Digests, settings: Settings
    ) -> dict[str, Any]:
        """All its inputs."""
        made = (name for name in self.after if not STAGES[name].stays)
        return {
            "format": self.format,
            **{name: stages[name].fingerprint for name in made if name in stages},
            **{name: tables[name] for name in self.tables},
            **self.inputs(stages, tables, settings),
        }


STAGES = {
    stage.name: stage
    for stage in (
        StageRecord(
            "graph", 6, "graph", (), ("nodes", "features", "edges"), _graph_inputs
        ),
        StageRecord("labels", 3, "graph", ("graph",), ("labels",)),
        StageRecord("scores", 2, "graph", ("graph",), ("scores",), _scores_inputs),
        StageRecord(
            "select", 3, "embed", ("graph", "labels"), (), _select_inputs, stays=True
        ),
        StageRecord(
            "embeddings", 3, "embed", ("graph", "select"), (), _embeddings_inputs
        ),
        StageRecord(
            "readout",
            15,
            "readout",
            ("graph", "embeddings", "labels", "scores"),
            (),
            _readout_inputs,
        ),
        StageRecord("posteriors", 2, "posteriors", ("readout",)),
        StageRecord(
            "quantify", 15, "quantify", ("posteriors", "labels"), (), _quantify_inputs
        ),
        StageRecord("published", 5, "publish", ("quantify",), (), _published_inputs),
    )
}


def following(name: str) -> tuple[str, ...]:
    """A stage, and the stages to remove when it is done again, in their order."""
    found = [name]
    if not STAGES[name].stays:
        for stage in STAGES.values():
            if not stage.stays and not set(found).isdisjoint(stage.after):
                found.append(stage.name)
    return tuple(found)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """The differences, one phrase each, in key order.

    For example ``key: old -> new`` for a setting, and ``edges: other values, in 10,000
    rows`` for a table.
    """
    new = json.loads(json.dumps(new, default=str))
    phrases: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(after, dict) and "digest" in after:
            phrases.append(f"{key}: other values, in {after['rows']:,} rows")
        elif isinstance(before, dict) and isinstance(after, dict):
            within = "" if key == "settings" else f"{key}."
            phrases += differences(before, after, prefix + within)
        else:
            phrases.append(f"{prefix}{key}: {shown(before)} -> {shown(after)}")
    return phrases


def shown(value: Any) -> str:
    """A value as text for the log: floats with six significant digits.

    Examples
    --------
    >>> shown((0.30000000000000004, 2))
    '[0.3, 2]'
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return json.dumps(redacted(value), default=str)
