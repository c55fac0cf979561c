"""New labels or memberships on embeddings that are there; no edges are read.

Into another directory the stages of the run are taken over first: their files are
linked where the file system can, else copied. The new directory then stands for itself,
whatever becomes of the old one, which is never written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow.fs as pafs

from xnq_dist.core.config import Settings, load_settings
from xnq_dist.core.differences import differences
from xnq_dist.core.errors import RunDirectoryError, SettingsError, StageError
from xnq_dist.core.inputs import (
    embeddings_inputs,
    graph_inputs,
    labels_inputs,
    selects_scales,
    set_scales,
)
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import (
    FOLLOWS,
    MANIFEST,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.due import as_recorded, released_in_vain
from xnq_dist.graph.contents import Contents, label_aspects
from xnq_dist.graph.tables import Sources, open_table

__all__ = ["Request", "relabel", "take_over"]

log = logging.getLogger(__name__)

KEPT = ("graph", "select", "embeddings")
"""Stages that new labels or memberships leave as they are."""
OWN = ("labels", "readout", "posteriors")
"""Stages that new labels change."""


@dataclass(frozen=True)
class Request:
    """A request to estimate again: a run, new tables, where results go."""

    base: str
    """The run directory with the embeddings."""
    out: str
    """Where the results go; `base` itself or another run directory."""
    sources: Sources
    settings: Settings
    labels: str | None = None
    """Table of node id, label and optionally role; None: the labels of the run."""

    @classmethod
    def of(
        cls,
        base: str,
        out: str | None = None,
        memberships: str | None = None,
        labels: str | None = None,
        overrides: Iterable[str] = (),
    ) -> Request:
        """The tables and settings of the last run of `base`, with what replaces them.

        Raises
        ------
        RunDirectoryError
            When `base` is no run directory.
        SettingsError
            For settings that cannot be.
        """
        run = RunDirectory(base)
        record = RunRecord.read(run.folder)
        if record is None or not record.settings:
            raise RunDirectoryError(
                f"{run.uri} is not a run directory with embeddings: name one with "
                "--run, or use xnq-dist run"
            )
        settings = load_settings(base=record.settings, overrides=overrides)
        if memberships is not None and settings.communities not in ("auto", "given"):
            raise SettingsError(
                f"--memberships is not used with communities = {settings.communities}, "
                "the setting of the run: add --set communities=given"
            )
        paths = dict(record.sources)
        sources = Sources(
            str(paths.get("nodes") or ""),
            str(paths.get("edges") or ""),
            memberships or paths.get("memberships"),
        )
        where = RunDirectory(base if out is None else out)
        return cls(run.location, where.location, sources, settings, labels)


def take_over(run: RunDirectory, request: Request) -> None:
    """Check the embeddings, and have them in the directory of the results.

    Raises
    ------
    RunDirectoryError
        When the directory holds another graph, or `base` changes meanwhile.
    StageError
        When `base` has no whole graph, labels or embeddings.
    SettingsError
        When the settings are of other embeddings.
    """
    base = RunDirectory(request.base)
    found = _whole(base)
    graph = found["graph"]
    _check_settings(found, request)
    nodes = graph.inputs["nodes"]
    if base.uri != run.uri:
        record = RunRecord.read(run.folder) or RunRecord()
        record.belongs(nodes, run.uri)
        _take_stages(base, run, found, request.labels is None)
        if _whole(base) != found:
            raise RunDirectoryError(
                f"{base.uri} changed while its stages were taken over: run again when "
                "no other run is at work on it"
            )
    RunRecord(
        nodes=nodes,
        sources={
            "nodes": request.sources.nodes,
            "edges": request.sources.edges,
            "memberships": request.sources.memberships,
        },
        settings=request.settings.model_dump(mode="json"),
        base=None if base.uri == run.uri else base.uri,
    ).write(run.folder)


def _whole(run: RunDirectory) -> dict[str, Manifest]:
    """The stages there; graph, labels and embeddings at least."""
    found = {
        name: manifest
        for name in (*KEPT, *OWN)
        if (manifest := run.stage(name).manifest()) is not None
    }
    for name in ("graph", "labels", "embeddings"):
        if name not in found:
            raise StageError(
                f"{run.uri} has no whole stage {name!r}, so there are no embeddings to "
                "quantify from: complete it with xnq-dist run"
            )
    return found


def _check_settings(found: Mapping[str, Manifest], request: Request) -> None:
    """Refuse settings that would change the graph or its embeddings."""
    graph, embeddings = found["graph"], found["embeddings"]
    settings = as_recorded(request.settings, embeddings)
    partitions = int(graph.facts["partitions"])
    recurrent, inputs = embeddings.inputs["scales"]
    if isinstance(recurrent, list):
        recurrent = tuple(recurrent)
    if not selects_scales(settings):
        recurrent, inputs = set_scales(settings)
    # What became of unknown ends of edges says nothing of unknown nodes with labels.
    rules = {"unknown_nodes": graph.inputs["settings"]["input"]["unknown_nodes"]}
    as_read = settings.model_copy(
        update={"input": settings.input.model_copy(update=rules)}
    )
    expected = (
        (graph, graph_inputs(graph.inputs, as_read, partitions)),
        (embeddings, embeddings_inputs(graph, settings, recurrent, inputs)),
    )
    for stage, wanted in expected:
        if stage.fingerprint != fingerprint(wanted):
            changed = "; ".join(differences(stage.inputs, wanted))
            raise SettingsError(
                f"the embeddings of {request.base} were made otherwise ({changed}): "
                "leave such settings out, or use xnq-dist run, which embeds again"
            )


def _take_stages(
    base: RunDirectory, run: RunDirectory, found: Mapping[str, Manifest], labels: bool
) -> None:
    """Link or copy stages that are not there; the labels' too where they are kept."""
    copied = 0
    for name in (*KEPT, *OWN):
        theirs, ours = found.get(name), run.stage(name).manifest()
        if theirs is None or (ours and ours.fingerprint == theirs.fingerprint):
            continue
        if name in OWN and ours is not None and not labels:
            continue
        if faults := base.stage(name).damages():
            if name in OWN and name != "labels":
                log.warning("%s: %s is made again here", faults[0], name)
                continue
            fault = faults[0]
            raise RunDirectoryError(
                f"{fault.path} {fault.what}: xnq-dist run on "
                f"{base.uri} repairs it; then run this again"
            )
        for later in FOLLOWS[name]:
            run.stage(later).folder.delete_folder()
        copied += _take_stage(base.stage(name), run.stage(name), theirs)
    if copied:
        log.info("%s: copied %s bytes of %s", run.uri, f"{copied:,}", base.uri)


def _take_stage(source: Stage, target: Stage, manifest: Manifest) -> int:
    """One stage's files, its manifest last; bytes that had to be copied."""
    target.folder.create()
    copied = sum(_take_file(source, target, record) for record in manifest.files)
    target.folder.write_bytes(MANIFEST, source.folder.read_bytes(MANIFEST))
    return copied


def _take_file(source: Stage, target: Stage, record: FileRecord) -> int:
    old, new = source.folder.path(record.name), target.folder.path(record.name)
    if source.folder.is_local and target.folder.is_local:
        try:
            os.link(old, new)
        except FileExistsError:
            return 0
        except FileNotFoundError as error:
            raise RunDirectoryError(
                f"{source.folder.uri_of(record.name)} is gone: run again when no other "
                "run is at work on that directory"
            ) from error
        except OSError:  # another file system, or one without links
            log.debug("%s cannot be linked and is copied", old)
        else:
            return 0
    pafs.copy_files(
        old,
        new,
        source_filesystem=source.folder.filesystem,
        destination_filesystem=target.folder.filesystem,
    )
    return record.bytes


def relabel(
    run: RunDirectory, request: Request, progress: Progress = silent
) -> Manifest:
    """The stage ``labels`` for the labels that are requested.

    Raises
    ------
    InputError
        When the table of labels breaks the data contract.
    SettingsError
        When the existing labels were read with inclusion weights and the settings have
        none, or the other way round.
    StageError
        When the labels changed and the embeddings were not kept.
    """
    from xnq_dist.graph.labelling import label

    graph, known = run.stage("graph").manifest(), run.stage("labels").manifest()
    if graph is None:
        raise StageError(f"{run.uri} has no whole stage 'graph': run it again")
    settings = request.settings
    if request.labels is not None:
        table = open_table(request.labels, "table of labels")
        aspects = label_aspects(settings.columns)
        contents = Contents(run.folder).digests(table, aspects)
        wanted = fingerprint(labels_inputs(graph, contents))
        if known is None or known.fingerprint != wanted:
            released_in_vain(run)
        unknown = settings.input.unknown_nodes
        known = label(run, graph, table, contents, settings.columns, unknown, progress)
    if known is None:
        raise StageError(f"{run.uri} has no whole stage 'labels': name --labels")
    weighted = settings.columns.label_weight is not None
    if weighted != ("label_weights" in known.inputs):
        raise SettingsError(
            f"the labels in {run.uri} were read with{'out' if weighted else ''} "
            "inclusion weights (labels.drawn = weighted): name their table with "
            "--labels, so that they are read again with these settings"
        )
    return known
