"""Which stages of a run are due, from its tables and the inputs its stages recorded.

The module imports no heavy library and starts no process: a run in which nothing
changed needs nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.config import Settings
from xnq_dist.core.errors import DamagedError, StageError
from xnq_dist.core.failures import OPEN, stage_errors
from xnq_dist.core.inputs import (
    choose_source,
    embeddings_inputs,
    graph_inputs,
    labels_inputs,
    posteriors_inputs,
    published_inputs,
    quantify_inputs,
    readout_inputs,
    select_inputs,
    selects_scales,
    set_scales,
)
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import (
    STAGES,
    Manifest,
    Published,
    RunDirectory,
    entries,
    fingerprint,
)
from xnq_dist.graph.contents import answer_digests
from xnq_dist.graph.profile.inputs import read_contents
from xnq_dist.graph.tables import Sources
from xnq_dist.sinks import undelivered

__all__ = [
    "ON_WORKERS",
    "as_recorded",
    "due_after_embeddings",
    "due_stages",
    "nothing_changed",
    "require_embeddings",
    "summary",
]

log = logging.getLogger(__name__)

ON_WORKERS = frozenset({"select", "embeddings", "readout", "posteriors", "quantify"})
"""Stages that need a cluster."""
ALL = ("graph", "labels", "embeddings", "readout", "posteriors", "quantify")
PUBLISHED = "published"

Stages = Mapping[str, Manifest]
"""Manifests of the stages that exist, by name."""


def nothing_changed(
    out: str, sources: Sources, settings: Settings
) -> dict[str, Any] | None:
    """The summary of a run that is complete and published from exactly these tables.

    None when a stage is due, or the run directory does not exist.

    Raises
    ------
    InputError, SettingsError, RunDirectoryError
        For tables, settings or a run directory that cannot be used.
    """
    run = RunDirectory(out)
    try:
        with stage_errors(run.uri, OPEN):
            if RunRecord.read(run.folder) is None or due_stages(run, sources, settings):
                return None
            current = Published(run).current()
    except DamagedError:
        return None  # a run repairs it
    if current is None or undelivered(run, settings):
        return None
    created = current.manifest.created
    log.info("nothing changed since %s", created)
    return {**summary(run), "stages": {}, "since": created}


def due_stages(
    run: RunDirectory, sources: Sources, settings: Settings
) -> tuple[str, ...]:
    """Stages that are due, in order, ``published`` last; empty if there are none.

    Tables without a stored digest are read. The result includes stages that may become
    due, depending on the result of an earlier one.

    Raises
    ------
    InputError, SettingsError
        For tables or settings that cannot be used.
    """
    stages = _stages(run)
    graph = stages.get("graph")
    if graph is None:
        return (*ALL, PUBLISHED)
    tables = read_contents(run.folder, sources, settings)
    partitions = int(graph.facts["partitions"])
    if settings.partitions != "auto":
        partitions = min(settings.partitions, int(tables["nodes"]["rows"]))
    if not _made_from(graph, graph_inputs(tables, settings, partitions)):
        return (*ALL, PUBLISHED)
    due = set()
    labels = stages.get("labels")
    if not _made_from(labels, labels_inputs(graph, tables)):
        due |= {"labels"}
    due |= _embedding_due(stages, settings, bool(due))
    due |= _readout_to_quantify_due(run, stages, sources, settings, due)
    return _with_published(run, stages, settings, due)


def due_after_embeddings(
    run: RunDirectory, sources: Sources, settings: Settings
) -> tuple[str, ...]:
    """Stages due from ``readout`` on, for the existing embeddings and labels.

    Raises
    ------
    StageError
        When the embeddings are needed and were not kept.
    """
    stages = _stages(run)
    due = _readout_to_quantify_due(run, stages, sources, settings, set())
    if "readout" in due or "posteriors" in due:
        require_embeddings(run)
    return _with_published(run, stages, settings, due)


def require_embeddings(run: RunDirectory) -> None:
    """Check that the files of the stage ``embeddings`` exist.

    Raises
    ------
    StageError
        When they were removed after use.
    """
    embeddings = run.stage("embeddings").manifest()
    if embeddings is None or embeddings.facts.get("released"):
        raise StageError(
            f"the embeddings of {run.uri} were not kept (embeddings.write = false): "
            "use xnq-dist run, which computes them again"
        )


def _stages(run: RunDirectory) -> dict[str, Manifest]:
    manifests = ((name, run.stage(name).manifest()) for name in STAGES)
    return {name: manifest for name, manifest in manifests if manifest is not None}


def _with_published(
    run: RunDirectory, stages: Stages, settings: Settings, due: set[str]
) -> tuple[str, ...]:
    """The due stages in order, then ``published`` unless the results are current."""
    if not due and _is_published(run, published_inputs(stages, settings)):
        return ()
    return (*(name for name in STAGES if name in due), PUBLISHED)


def _made_from(manifest: Manifest | None, inputs: Mapping[str, Any]) -> bool:
    return manifest is not None and manifest.fingerprint == fingerprint(inputs)


def _is_published(run: RunDirectory, inputs: Mapping[str, Any]) -> bool:
    """Whether these results are published undamaged, each file at its path.

    The report page must also list every entry that was set aside.
    """
    published = Published(run)
    current = published.current()
    if current is None or not _made_from(current.manifest, inputs):
        return False
    named = current.manifest.facts.get("set_aside") or ()
    unnamed = {name for name, _ in entries(run)} - set(named)
    return not (unnamed or current.stage.damages() or published.misplaced())


def as_recorded(settings: Settings, stage: Manifest) -> Settings:
    """The settings; ``backend = auto`` becomes the backend that made the stage."""
    if settings.backend != "auto":
        return settings
    backend = "gpu" if "backend" in stage.inputs else "cpu"
    return settings.model_copy(update={"backend": backend})


def _embedding_due(stages: Stages, settings: Settings, relabelled: bool) -> set[str]:
    """Those of ``select`` and ``embeddings`` that are due or may become due."""
    graph, labels, chosen = stages["graph"], stages.get("labels"), stages.get("select")
    embeddings = stages.get("embeddings")
    scales = set_scales(settings)
    if selects_scales(settings):
        if relabelled or labels is None or chosen is None:
            return {"select", "embeddings"}
        recorded = as_recorded(settings, chosen)
        if not _made_from(chosen, select_inputs(graph, labels, recorded)):
            return {"select", "embeddings"}
        recurrent = chosen.facts["recurrent_scale"]
        if isinstance(recurrent, list):
            recurrent = tuple(recurrent)
        scales = recurrent, chosen.facts["input_scale"]
    elif chosen is not None:
        return {"select", "embeddings"}  # made by earlier settings: to be removed
    if embeddings is None:
        return {"embeddings"}
    recorded = as_recorded(settings, embeddings)
    if not _made_from(embeddings, embeddings_inputs(graph, recorded, *scales)):
        return {"embeddings"}
    released = bool(embeddings.facts.get("released"))
    if released and (settings.embeddings.write or relabelled):
        return {"embeddings"}
    return set()


def _readout_to_quantify_due(
    run: RunDirectory,
    stages: Stages,
    sources: Sources,
    settings: Settings,
    before: set[str],
) -> set[str]:
    """Those of ``readout``, ``posteriors`` and ``quantify`` that are due."""
    graph, labels = stages["graph"], stages.get("labels")
    embeddings, readout = stages.get("embeddings"), stages.get("readout")
    posteriors, quantify = stages.get("posteriors"), stages.get("quantify")
    if before or labels is None or embeddings is None or readout is None:
        return {"readout", "posteriors", "quantify"}
    recorded = as_recorded(settings, readout)
    if not _made_from(readout, readout_inputs(graph, embeddings, labels, recorded)):
        due = {"readout", "posteriors", "quantify"}
    elif posteriors is None or not _made_from(posteriors, posteriors_inputs(readout)):
        due = {"posteriors", "quantify"}
    elif quantify is None:
        return {"quantify"}
    else:
        source = choose_source(sources.memberships, settings)
        engine = ""
        if source == "leiden":
            from xnq_dist.groups.detection import engine_of

            engine = engine_of(settings, graph.facts["n_edges"])
        inputs = quantify_inputs(
            as_recorded(settings, quantify),
            source,
            answer_digests(
                run.folder, sources, settings, source, graph.facts["id_type"]
            ),
            engine,
            labels,
            posteriors,
            [float(value) for value in readout.facts["prior"]],
        )
        others = settings.intervals.seed_runs
        if others:
            from xnq_dist.quantify.intervals.seed_runs import check_seed_runs

            inputs["seed_runs"] = check_seed_runs(others, run.uri, graph, inputs)
        return set() if _made_from(quantify, inputs) else {"quantify"}
    if embeddings.facts.get("released"):
        due |= {"embeddings"}  # the readout or the posteriors need them again
    return due


def summary(run: RunDirectory) -> dict[str, Any]:
    """Paths of the results of a complete run, and counts."""
    graph = run.stage("graph").manifest()
    quantify = run.stage("quantify").manifest()
    if graph is None or quantify is None:
        raise StageError(f"{run.uri} is not a complete run: run it again to resume")
    more = {
        name: run.folder.uri_of(f"{name}.parquet")
        for name in ("anomalies", "changes")
        if run.folder.exists(f"{name}.parquet")
    }
    return {
        "run": run.uri,
        "run_id": Published(run).pointer().get("run_id"),
        "nodes": graph.facts["n_nodes"],
        "edges": graph.facts["n_edges"],
        "communities": quantify.facts["n_communities"],
        "prevalence": run.folder.uri_of("prevalence.parquet"),
        "report": run.folder.uri_of("report.html"),
        **more,
    }
