"""Which stages of a run are due, from its tables and the inputs its stages recorded.

The module imports no heavy library and starts no process: a run in which nothing
changed needs nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import DamagedError, StageError
from xnq_dist.core.failures import OPEN, stage_errors
from xnq_dist.core.lock import run_lock
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES, choose_source, following, selects_scales
from xnq_dist.core.store import (
    Manifest,
    RunDirectory,
    fingerprint,
)
from xnq_dist.graph.profile.inputs import answer_digests, read_contents
from xnq_dist.graph.sources import Sources

__all__ = [
    "as_recorded",
    "due_stages",
    "elsewhere",
    "nothing_changed",
    "record_sources",
    "require_embeddings",
    "scratch_of",
    "summary",
]

log = logging.getLogger(__name__)


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
            record = RunRecord.read(run)
            if not record.settings or due_stages(run, sources, settings):
                return None
            current = run.current()
            if record.sources != sources.absolute():
                with run_lock(run):
                    record_sources(run, sources)
    except DamagedError:
        return None  # a run repairs it
    if current is None:
        return None
    created = current.manifest.created
    log.info("nothing changed since %s", created)
    return {**summary(run), "stages": {}, "since": created}


def record_sources(run: RunDirectory, sources: Sources) -> None:
    """Record where the tables of a complete run are now, for later commands."""
    replace(RunRecord.read(run), sources=sources.absolute()).write(run)


def due_stages(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    names: Sequence[str] = tuple(STAGES),
) -> tuple[str, ...]:
    """Stages that are due, in order, ``published`` last; empty if there are none.

    A stage is due if one that it is made from is, or if its inputs differ. Tables
    without a stored digest are read. The result includes stages that may become due,
    depending on the result of an earlier one.

    Parameters
    ----------
    names
        Stages to look at, in order; those before them are complete.

    Raises
    ------
    InputError, SettingsError
        For tables or settings that cannot be used.
    """
    stages, tables = run.manifests(), TableDigests(run, sources, settings)

    def fits(name: str, made: Manifest, read: Settings) -> bool:
        """Whether a stage was made from the present inputs."""
        inputs = STAGES[name].made_from(stages, tables, read)
        return made.fingerprint == fingerprint(inputs)

    def is_published() -> bool:
        """Whether the results are published undamaged, each file at its path."""
        current = run.current()
        # If the record is lost, the run writes its tables and settings.
        if current is None or not RunRecord.read(run).settings:
            return False
        made = fits("published", current.manifest, settings)
        return made and run.is_placed(current) and not current.stage.damages()

    def is_made(name: str) -> bool:
        """Whether a stage is complete as needed; those before it must be complete."""
        if name == "published":
            return is_published()
        made = stages.get(name)
        if made is None or not _is_used(name, settings):
            return False
        if made.released and settings.embeddings.write:
            return False
        return fits(name, made, as_recorded(settings, made))

    due: list[str] = []
    for name in names:
        # One that the settings no longer need is to be removed.
        if name in stages or _is_used(name, settings):
            follows = not set(due).isdisjoint(STAGES[name].after)
            if follows or not is_made(name):
                due.append(name)
    embeddings, users = stages.get("embeddings"), {"readout", "posteriors"}
    if embeddings and embeddings.released and not users.isdisjoint(due):
        # They are needed again, and what was made from them is made again, too.
        due += following("embeddings")
    return tuple(name for name in STAGES if name in due)


def _is_used(name: str, settings: Settings) -> bool:
    """Whether the settings need a stage."""
    if name == "select":
        return selects_scales(settings)
    return name != "scores" or bool(settings.columns.scores)


def require_embeddings(run: RunDirectory) -> None:
    """Check that the files of the stage ``embeddings`` exist.

    Raises
    ------
    StageError
        When they were removed after use.
    """
    if run.complete("embeddings").released:
        raise StageError(
            f"the embeddings of {run.uri} were not kept (embeddings.write = false): "
            "use xnq-dist run, which computes them again"
        )


def elsewhere(settings: Settings) -> bool:
    """Whether workers may run on other machines."""
    kind = CLUSTERS[settings.cluster.kind]
    return kind.running or kind.queued


def scratch_of(run: RunDirectory, settings: Settings) -> str | None:
    """Folder for temporary files, which all workers see if there is one.

    It is `scratch`, or the run directory, once it exists, if workers have machines of
    their own. None: the system's folder.
    """
    if settings.scratch is None and elsewhere(settings) and run.is_local:
        return str(run.path()) if run.exists() else None
    return settings.scratch


class TableDigests(dict[str, Any]):
    """Digests of a run's tables, which are read when one is asked for.

    ``source`` is the source of the communities.
    """

    def __init__(self, run: RunDirectory, sources: Sources, settings: Settings) -> None:
        super().__init__(source=choose_source(sources.memberships, settings))
        self._of = run, sources, settings

    def __missing__(self, name: str) -> Any:
        if name == "memberships":
            found = answer_digests(*self._of, self["source"])
        else:
            found = read_contents(*self._of)
        self.update(found)
        return found[name]


def as_recorded(settings: Settings, stage: Manifest) -> Settings:
    """The settings; ``backend = auto`` becomes the backend that made the stage."""
    if settings.backend != "auto":
        return settings
    backend = "gpu" if "backend" in stage.inputs else "cpu"
    return settings.model_copy(update={"backend": backend})


def summary(run: RunDirectory) -> dict[str, Any]:
    """Paths of the results of a complete run, and counts."""
    graph, quantify = run.complete("graph"), run.complete("quantify")
    current = run.current()
    if current is None:
        raise StageError(f"{run.uri} has no results: run it again to resume")
    more = {
        name: run.uri_of(f"{name}.parquet")
        for name in ("anomalies", "changes")
        if run.exists(f"{name}.parquet")
    }
    return {
        "run": run.uri,
        "run_id": current.run_id,
        "nodes": graph.facts["n_nodes"],
        "edges": graph.facts["n_edges"],
        "communities": quantify.facts["n_communities"],
        "prevalence": run.uri_of("prevalence.parquet"),
        "report": run.uri_of("report.html"),
        "verdict": (current.manifest.facts.get("verdict") or {}).get("lines", []),
        **more,
    }
