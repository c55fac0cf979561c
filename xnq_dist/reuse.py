"""New labels or memberships on existing embeddings; no edges are read.

When the results go to another directory, the stages of the run are first taken over:
their files are hard-linked where the file system supports it, else copied. The new
directory does not depend on the old one, which is never written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow.fs as pafs

from xnq_dist.core.config import recorded_settings
from xnq_dist.core.errors import RunDirectoryError, SettingsError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES, differences, following
from xnq_dist.core.store import (
    MANIFEST,
    Folder,
    Manifest,
    RunDirectory,
    fingerprint,
)
from xnq_dist.due import as_recorded, require_embeddings
from xnq_dist.graph.profile.inputs import TableReader
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import open_table

__all__ = ["Request", "relabel", "take_over"]

OF_LABELS = following("labels")
"""Stages that new labels change."""
TAKEN = tuple(name for name in STAGES if name not in following("quantify"))
"""Stages that another run may use further."""


@dataclass(frozen=True)
class Request:
    """A request to estimate again: the run, the new tables, where the results go."""

    base: str
    """The run directory with the embeddings."""
    out: str
    """Where the results go; `base` itself or another run directory."""
    sources: Sources
    settings: Settings
    labels: str | None = None
    """Table of node id, label and optionally role; None: keep the labels of the run."""

    @classmethod
    def of(
        cls,
        base: str,
        out: str | None = None,
        memberships: str | None = None,
        labels: str | None = None,
        overrides: Iterable[str] = (),
    ) -> Request:
        """The tables and settings of the last run of `base`, with their replacements.

        Raises
        ------
        RunDirectoryError
            When `base` is not a run directory.
        SettingsError
            For settings that cannot be used.
        """
        run = RunDirectory(base)
        record = RunRecord.read(run)
        if not record.settings:
            raise RunDirectoryError(
                f"{run.uri} is not a run directory with embeddings: name one with "
                "--run, or use xnq-dist run"
            )
        settings = recorded_settings(record.settings, overrides)
        if memberships is not None and settings.communities not in ("auto", "given"):
            raise SettingsError(
                f"--memberships is not used with communities = {settings.communities}, "
                "the setting of the run: add --set communities=given"
            )
        sources = Sources(**record.sources)
        if memberships:
            sources = replace(sources, memberships=memberships)
        where = RunDirectory(base if out is None else out)
        return cls(run.location, where.location, sources, settings, labels)


def take_over(run: RunDirectory, request: Request) -> None:
    """Check the embeddings, then link or copy them into the directory of the results.

    Raises
    ------
    RunDirectoryError
        When the directory holds another graph, or `base` changes during the copy.
    StageError
        When the graph, labels or embeddings of `base` are not complete.
    SettingsError
        When the settings would give other embeddings.
    """
    base = RunDirectory(request.base)
    stages = _complete_stages(base)
    _check_settings(stages, request)
    nodes = stages["graph"].inputs["nodes"]
    if base.uri != run.uri:
        RunRecord.read(run).belongs(nodes, run.uri)
        try:
            _take_stages(base, run, stages, request.labels is None)
            unchanged = _complete_stages(base) == stages
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            raise RunDirectoryError(
                f"{base.uri} changed while its stages were taken over: run again when "
                "no other run uses it"
            )
    RunRecord(
        nodes=nodes,
        sources=request.sources.paths,
        settings=request.settings.model_dump(mode="json"),
        base=None if base.uri == run.uri else base.uri,
    ).write(run)


def _complete_stages(run: RunDirectory) -> dict[str, Manifest]:
    """Manifests of the complete stages; graph, labels and embeddings are required."""
    for name in ("graph", "labels", "embeddings"):
        run.complete(name)
    made = run.manifests()
    return {name: made[name] for name in TAKEN if name in made}


def _check_settings(stages: Mapping[str, Manifest], request: Request) -> None:
    """Refuse settings that would change the graph or its embeddings."""
    graph, settings = stages["graph"], request.settings
    # unknown_nodes of the run was applied to edges; the new one applies to labels only.
    rules = {"unknown_nodes": graph.inputs["settings"]["input"]["unknown_nodes"]}
    as_read = settings.model_copy(
        update={"input": settings.input.model_copy(update=rules)}
    )
    scored = stages["scores"].inputs["columns"] if "scores" in stages else []
    now = {"columns.scores": settings.columns.scores}
    changed = differences({"columns.scores": scored}, now)
    for name in ("graph", "embeddings"):
        read = as_recorded(as_read, stages[name])
        inputs = STAGES[name].made_from(stages, graph.inputs, read)
        changed += differences(stages[name].inputs, inputs)
    if changed:
        raise SettingsError(
            f"the embeddings of {request.base} were made with other settings "
            f"({'; '.join(changed)}): leave these settings out, or use xnq-dist run, "
            "which embeds again"
        )


def _take_stages(
    base: RunDirectory, run: RunDirectory, stages: Mapping[str, Manifest], labels: bool
) -> None:
    """Link or copy missing or differing stages, the manifest of each last.

    `labels`: whether the labels of `base` replace different ones of `run`.
    """
    for name, made in stages.items():
        source, target = base.stage(name), run.stage(name)
        known = target.manifest()
        stays = name in OF_LABELS and not labels
        if known and (stays or known.fingerprint == made.fingerprint):
            continue
        for fault in source.damages():
            raise RunDirectoryError(
                f"{fault.path} {fault.what}: repair it with xnq-dist run on "
                f"{base.uri}, then run this again"
            )
        run.remove(name)
        target.create()
        for record in made.files:
            _take_file(source, target, record.name)
        target.write_bytes(MANIFEST, source.read_bytes(MANIFEST))


def _take_file(source: Folder, target: Folder, name: str) -> None:
    old, new = source.path(name), target.path(name)
    if source.is_local and target.is_local:
        with suppress(OSError):  # another file system, or one without links
            os.link(old, new)
            return
    pafs.copy_files(
        old,
        new,
        source_filesystem=source.filesystem,
        destination_filesystem=target.filesystem,
    )


def relabel(run: RunDirectory, request: Request) -> Manifest:
    """Manifest of the stage ``labels``, which is made again for a new table of labels.

    Raises
    ------
    InputError
        When the table of labels breaks the data contract.
    SettingsError
        When the existing labels have inclusion weights and the settings name none, or
        the reverse.
    StageError
        When the labels changed and the embeddings were not kept.
    """
    from xnq_dist.graph.labelling import label

    graph, known = run.complete("graph"), run.complete("labels")
    settings = request.settings
    if request.labels is not None:
        table = open_table(request.labels, "table of labels", settings.input)
        reader = TableReader(request.sources, settings, run)
        contents = reader.labels(request.labels)
        made_from = STAGES["labels"].made_from
        expected = fingerprint(made_from({"graph": graph}, contents, settings))
        if known.fingerprint != expected:
            require_embeddings(run)
        known = label(run, graph, table, contents, settings)
    weighted = settings.columns.label_weight is not None
    if weighted != bool(known.named("label-weights-")):
        raise SettingsError(
            f"the labels in {run.uri} were read with{'out' if weighted else ''} "
            "inclusion weights (labels.drawn = weighted): name their table with "
            "--labels, so that they are read again with these settings"
        )
    return known
