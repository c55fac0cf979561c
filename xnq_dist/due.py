"""What of a run is still to be done, by its tables and what its stages were made of.

Nothing heavy is imported and no process is started: a run of which nothing changed
ends with the answer of this module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from xnq_dist.core.clusters import CLUSTERS
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
from xnq_dist.graph.contents import answer_digests, read_contents
from xnq_dist.graph.tables import Sources

__all__ = [
    "ON_WORKERS",
    "answers_due",
    "as_recorded",
    "due_stages",
    "nothing_changed",
    "released_in_vain",
    "summary",
]

log = logging.getLogger(__name__)

ON_WORKERS = frozenset({"select", "embeddings", "readout", "posteriors", "quantify"})
"""Stages that need a cluster."""
ALL = ("graph", "labels", "embeddings", "readout", "posteriors", "quantify")
PUBLISHED = "published"

Found = Mapping[str, Manifest]


def nothing_changed(
    out: str, sources: Sources, settings: Settings
) -> dict[str, Any] | None:
    """The summary of a run that is whole, published and made from just these tables.

    None when something is to be done, or the run directory is not there.

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
        return None  # a run mends it
    if current is None:
        return None
    created = current.manifest.created
    log.info("nothing changed since %s", created)
    return {**summary(run), "stages": {}, "since": created}


def due_stages(
    run: RunDirectory, sources: Sources, settings: Settings
) -> tuple[str, ...]:
    """Stages that are to be done, in order, ``published`` last; empty for none.

    Tables are read where their digests are not kept. A stage is named, too, when it
    may have to be done again for what an earlier one will find.

    Raises
    ------
    InputError, SettingsError
        For tables or settings that cannot be used.
    """
    found = _stages(run)
    graph = found.get("graph")
    if graph is None:
        return (*ALL, PUBLISHED)
    tables = read_contents(run.folder, sources, settings)
    partitions = int(graph.facts["partitions"])
    if settings.partitions != "auto":
        partitions = min(settings.partitions, int(tables["nodes"]["rows"]))
    if not _is(graph, graph_inputs(tables, settings, partitions)):
        return (*ALL, PUBLISHED)
    due = set()
    labels = found.get("labels")
    if not _is(labels, labels_inputs(graph, tables)):
        due |= {"labels"}
    due |= _embedding_due(found, settings, bool(due))
    due |= _answers_due(run, found, sources, settings, due)
    return _with_published(run, found, settings, due)


def answers_due(
    run: RunDirectory, sources: Sources, settings: Settings
) -> tuple[str, ...]:
    """Stages to be done from the readout on, for embeddings and labels as they are.

    Raises
    ------
    StageError
        When the embeddings are needed and were not kept.
    """
    found = _stages(run)
    due = _answers_due(run, found, sources, settings, set())
    if "readout" in due or "posteriors" in due:
        released_in_vain(run)
    return _with_published(run, found, settings, due)


def released_in_vain(run: RunDirectory) -> None:
    """Refuse to go on without embeddings.

    Raises
    ------
    StageError
        When the files of the stage ``embeddings`` were removed after use.
    """
    embeddings = run.stage("embeddings").manifest()
    if embeddings is None or embeddings.facts.get("released"):
        raise StageError(
            f"the embeddings of {run.uri} were not kept (embeddings.write = false): "
            "use xnq-dist run, which makes them again"
        )


def _stages(run: RunDirectory) -> dict[str, Manifest]:
    found = {name: run.stage(name).manifest() for name in STAGES}
    return {name: there for name, there in found.items() if there is not None}


def _with_published(
    run: RunDirectory, found: Found, settings: Settings, due: set[str]
) -> tuple[str, ...]:
    """The stages in order, and ``published`` unless nothing is to be done."""
    if not due and _is_published(run, published_inputs(found, settings)):
        return ()
    return (*(name for name in STAGES if name in due), PUBLISHED)


def _is(found: Manifest | None, inputs: Mapping[str, Any]) -> bool:
    return found is not None and found.fingerprint == fingerprint(inputs)


def _is_published(run: RunDirectory, inputs: Mapping[str, Any]) -> bool:
    """Whether these results are published, every byte at every path.

    And whether their page names all that was set aside.
    """
    published = Published(run)
    current = published.current()
    if current is None or not _is(current.manifest, inputs):
        return False
    named = current.manifest.facts.get("set_aside") or ()
    unnamed = {name for name, _ in entries(run)} - set(named)
    return not (unnamed or current.stage.damages() or published.misplaced())


def as_recorded(settings: Settings, found: Manifest) -> Settings:
    """The settings with the backend that a stage was made by, where any will do."""
    if settings.backend != "auto":
        return settings
    backend = "gpu" if "backend" in found.inputs else "cpu"
    return settings.model_copy(update={"backend": backend})


def _embedding_due(found: Found, settings: Settings, relabelled: bool) -> set[str]:
    """Of ``select`` and ``embeddings``, those that are due or may be."""
    graph, labels, chosen = found["graph"], found.get("labels"), found.get("select")
    embeddings = found.get("embeddings")
    scales = set_scales(settings)
    if selects_scales(settings):
        if relabelled or labels is None or chosen is None:
            return {"select", "embeddings"}
        own = as_recorded(settings, chosen)
        if not _is(chosen, select_inputs(graph, labels, own)):
            return {"select", "embeddings"}
        recurrent = chosen.facts["recurrent_scale"]
        if isinstance(recurrent, list):
            recurrent = tuple(recurrent)
        scales = recurrent, chosen.facts["input_scale"]
    elif chosen is not None:
        return {"select", "embeddings"}  # of earlier settings: to be removed
    if embeddings is None:
        return {"embeddings"}
    own = as_recorded(settings, embeddings)
    if not _is(embeddings, embeddings_inputs(graph, own, *scales)):
        return {"embeddings"}
    released = bool(embeddings.facts.get("released"))
    if released and (settings.embeddings.write or relabelled):
        return {"embeddings"}
    return set()


def _answers_due(
    run: RunDirectory,
    found: Found,
    sources: Sources,
    settings: Settings,
    before: set[str],
) -> set[str]:
    """Of ``readout``, ``posteriors`` and ``quantify``, those that are due."""
    graph, labels = found["graph"], found.get("labels")
    embeddings, readout = found.get("embeddings"), found.get("readout")
    posteriors, quantify = found.get("posteriors"), found.get("quantify")
    if before or labels is None or embeddings is None or readout is None:
        return {"readout", "posteriors", "quantify"}
    own = as_recorded(settings, readout)
    if not _is(readout, readout_inputs(graph, embeddings, labels, own)):
        due = {"readout", "posteriors", "quantify"}
    elif posteriors is None or not _is(posteriors, posteriors_inputs(readout)):
        due = {"posteriors", "quantify"}
    elif quantify is None:
        return {"quantify"}
    else:
        source = choose_source(sources.memberships, settings)
        inputs = quantify_inputs(
            as_recorded(settings, quantify),
            source,
            answer_digests(run.folder, sources, settings, source),
            _leiden_engine(settings) if source == "leiden" else "",
            labels,
            posteriors,
            [float(value) for value in readout.facts["prior"]],
        )
        others = settings.intervals.seed_runs
        if others:
            from xnq_dist.quantify.intervals.seed_runs import check_seed_runs

            inputs["seed_runs"] = check_seed_runs(others, run.uri, graph, inputs)
        return set() if _is(quantify, inputs) else {"quantify"}
    if embeddings.facts.get("released"):
        due |= {"embeddings"}  # they are needed once more
    return due


def _leiden_engine(settings: Settings) -> str:
    """As `groups.leiden.engine_of`, which takes long to import."""
    wanted = settings.leiden.engine
    if wanted == "igraph" or (
        wanted == "auto" and not CLUSTERS.record_of(settings.cluster.kind).gpu
    ):
        return "igraph"
    from xnq_dist.groups.leiden import engine_of

    return engine_of(settings)


def summary(run: RunDirectory) -> dict[str, Any]:
    """Where the results of a whole run are, and their size."""
    graph = run.stage("graph").manifest()
    found = run.stage("quantify").manifest()
    if graph is None or found is None:
        raise StageError(f"{run.uri} is not a whole run: run it again to resume")
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
        "communities": found.facts["n_communities"],
        "prevalence": run.folder.uri_of("prevalence.parquet"),
        "report": run.folder.uri_of("report.html"),
        **more,
    }
