"""The inputs of every stage, as values: a stage made from equal inputs is kept.

Inputs are the digests of tables (`graph.contents`), the fingerprints of earlier stages,
the settings that change what the stage writes, and the number of its format
(`core.stages`); the package version is no input.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.method_records import INPUT_SCALE, METHODS, RECURRENT_SCALES
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import Manifest

__all__ = [
    "choose_source",
    "embeddings_inputs",
    "graph_inputs",
    "labels_inputs",
    "posteriors_inputs",
    "published_inputs",
    "readout_inputs",
    "scores_inputs",
    "select_inputs",
    "selects_scales",
    "set_scales",
]

log = logging.getLogger(__name__)

ELSEWHERE = {"watch"}
"""Sections of the settings that no file of a run depends on."""

Digests = Mapping[str, Mapping[str, Any]]
Scale = float | tuple[float, ...]


def _made_from(name: str, *stages: Manifest) -> dict[str, Any]:
    """Inputs of every stage: its format, and the stages that it is made from."""
    earlier = {stage.stage: stage.fingerprint for stage in stages}
    return {"format": STAGES[name].format, **earlier}


def graph_inputs(
    tables: Digests, settings: Settings, partitions: int
) -> dict[str, Any]:
    """Inputs of the stage ``graph``.

    Parameters
    ----------
    tables
        Digests of ``nodes`` (the ids), ``features`` and ``edges``.
    """
    relevant: dict[str, Any] = {
        "input": settings.input.model_dump(
            include={"directed", "duplicates", "unknown_nodes"}
        ),
        "features": {"scale": settings.features.scale},
        "partitions": partitions,
        "partitioner": settings.partitioner,
    }
    if settings.reservoir.supersteps == "auto":
        relevant["supersteps"] = "auto"
    if settings.partitioner == "random":
        relevant["seed"] = settings.seed
    if settings.partitioner in ("auto", "stream"):
        # The memory decides between METIS and streaming, and the edges streaming uses.
        relevant["input"]["memory"] = settings.input.memory_bytes
    read = {name: dict(tables[name]) for name in ("nodes", "features", "edges")}
    return _made_from("graph") | read | {"settings": relevant}


def labels_inputs(graph: Manifest, tables: Digests) -> dict[str, Any]:
    """Inputs of the stage ``labels``; `tables`: the digest of ``labels``."""
    return _made_from("labels", graph) | {"labels": dict(tables["labels"])}


def scores_inputs(
    graph: Manifest, tables: Digests, settings: Settings
) -> dict[str, Any]:
    """Inputs of the stage ``scores``; `tables`: the digest of ``scores``."""
    return _made_from("scores", graph) | {
        "columns": settings.columns.scores,
        "scores": dict(tables["scores"]),
    }


def selects_scales(settings: Settings) -> bool:
    """Whether the stage ``select`` searches for the reservoir's scales."""
    scales = settings.reservoir.recurrent_scale, settings.reservoir.input_scale
    return "select" in scales and METHODS[settings.method].searches


def set_scales(settings: Settings) -> tuple[Any, Any]:
    """Recurrent and input scale of the settings; those of xnq+ for ``select``."""
    reservoir = settings.reservoir
    recurrent, inputs = reservoir.recurrent_scale, reservoir.input_scale
    return (
        RECURRENT_SCALES if recurrent == "select" else recurrent,
        INPUT_SCALE if inputs == "select" else inputs,
    )


def select_inputs(
    graph: Manifest, labels: Manifest, settings: Settings
) -> dict[str, Any]:
    """Inputs of the stage ``select``; the backend is not ``auto``."""
    return _device(settings) | {
        **_made_from("select", graph, labels),
        "seed": settings.seed,
        "reservoir": settings.reservoir.model_dump(),
        "exchange_dtype": settings.exchange.dtype,
        "folds": settings.readout.folds,
    }


def embeddings_inputs(
    graph: Manifest, settings: Settings, recurrent_scale: Scale, input_scale: float
) -> dict[str, Any]:
    """Inputs of the stage ``embeddings``; the backend is not ``auto``."""
    scales = {"recurrent_scale", "input_scale"}
    return _device(settings) | {
        **_made_from("embeddings", graph),
        "method": settings.method,
        "seed": settings.seed,
        # Use the chosen scales instead of the settings, which may be `select`.
        "reservoir": settings.reservoir.model_dump(exclude=scales),
        "scales": [recurrent_scale, input_scale],
        "exchange_dtype": settings.exchange.dtype,
    }


def _device(settings: Settings) -> dict[str, Any]:
    """Inputs of a GPU's products, whose bits differ from a CPU's."""
    if settings.backend != "gpu" or settings.exchange.on_cpus:
        return {}
    return {"backend": "gpu"}


def readout_inputs(
    graph: Manifest,
    embeddings: Manifest,
    labels: Manifest,
    scores: Manifest | None,
    settings: Settings,
) -> dict[str, Any]:
    """Inputs of the stage ``readout``; `scores`: None without `columns.scores`."""
    stages = [graph, embeddings, labels, *([] if scores is None else [scores])]
    inputs = _made_from("readout", *stages) | {
        "method": settings.method,
        "readout": settings.readout.model_dump(exclude={"memory"}),
        "seed": settings.seed,
    }
    # `readout.memory` counts where labelled nodes are sampled.
    facts, second_stage = embeddings.facts, METHODS[settings.method].second_stage
    columns = sum(facts["blocks"]) if second_stage else facts["dim"]
    rows = settings.readout.max_rows(columns)
    if rows < labels.facts["n_labelled"]:
        inputs["rows"] = rows
    return inputs


def posteriors_inputs(readout: Manifest) -> dict[str, Any]:
    """Inputs of the stage ``posteriors``."""
    return _made_from("posteriors", readout)


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
    if source != "given" and given:
        log.warning(
            "the memberships table is not used with communities = %s: set communities "
            "= given to use it",
            source,
        )
    return source


def published_inputs(
    stages: Mapping[str, Manifest], settings: Settings
) -> dict[str, Any]:
    """Inputs of the published results, except the directory's previous results."""
    return _made_from("published") | {
        "stages": {name: stage.fingerprint for name, stage in stages.items()},
        "written": [record.checksum for record in stages["quantify"].files],
        # Where results go as well changes none of their bytes.
        "settings": redacted(settings.model_dump(mode="json", exclude=ELSEWHERE)),
    }
