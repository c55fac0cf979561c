"""Stage ``quantify``: the prevalence of every community, in batches on Dask workers.

The client sorts the memberships and writes one file per batch. Each worker process
loads the node table once, in its first task: posteriors of all nodes in float32
(N x C) and a few numbers per node. A task estimates a batch and writes one file; the
client joins the files in the order of the communities. No sum mixes two communities,
and `auto` learns from groups of the graph, not from the user's communities, so
batches, workers and the other communities do not change a bit of an estimate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from xnq_dist.core.cluster import workers
from xnq_dist.core.errors import StageError
from xnq_dist.core.inputs import choose_source, quantify_inputs
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import FileRecord, Manifest, RunDirectory, fingerprint
from xnq_dist.core.waiting import Heartbeats, gather, result, run_on_workers, wait_some
from xnq_dist.graph import layout
from xnq_dist.graph.contents import answer_digests
from xnq_dist.graph.tables import Sources
from xnq_dist.groups.detection import engine_of
from xnq_dist.quantify.batch_files import write_batches, write_prevalence
from xnq_dist.quantify.batches import (
    STAGE,
    BatchJob,
    CommunityBatch,
    estimate_batch,
    estimate_graph,
    forget_nodes,
    learn_from,
)
from xnq_dist.quantify.community_rows import label_facts, total_rows
from xnq_dist.quantify.default.scenarios import check_prior
from xnq_dist.quantify.default.surroundings import labels_around, studies_choice
from xnq_dist.quantify.loading import NeighbourValues
from xnq_dist.quantify.registry import make_quantifier
from xnq_dist.quantify.sources import open_memberships
from xnq_dist.reservoir.propagation import only_sums, propagate
from xnq_dist.selection.words import brief

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["quantify"]

log = logging.getLogger(__name__)

MIN_MEMBERSHIPS, MAX_MEMBERSHIPS = 1 << 16, 1 << 22
"""Bounds of the memberships in a batch: worth a task, and small enough for memory. One
community may have more."""
BATCHES_A_THREAD = 4


def quantify(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """Estimate the prevalence of every class in every community.

    Parameters
    ----------
    run
        With complete stages ``graph``, ``labels``, ``readout`` and ``posteriors``.
    sources
        The memberships table, or the node table when `communities` names its column.
    settings
        `communities`, `memberships`, `labels`, `quantifier`, `labelled`,
        `intervals`, `method`, `readout.folds`, `quality`, `leiden`, `backend`,
        `input`, `columns`, `seed` and `scratch` are used.
    client
        The workers.
    progress
        Called with the number of finished batches.

    Returns
    -------
    Manifest
        Of the stage: ``prevalence-*``, one row per community and class; ``totals-*``,
        one row per class for the complete graph; ``evidence-*``, the evidence of labels
        and of posteriors that the anomaly tests use; ``communities-*`` when
        communities were detected; for `auto` ``learnt-*`` and ``sums-*``, for
        covariances of communities, and ``tilted-*`` and ``scenarios-*`` where
        estimates are a mixture. The fact ``labels`` describes how the labelled nodes
        were chosen.

    Raises
    ------
    InputError, SettingsError
        For memberships or settings that cannot be used.
    StageError
        When an earlier stage is not complete, or counts do not add up.
    DoesNotFitError
        When workers die again and again.
    InfrastructureError
        When the disk is full or failing, or the cluster is lost.

    Notes
    -----
    Memory of the client: names of the communities, node ids, `input.memory` for the
    sort of the memberships, and one batch; all edges where Leiden holds them. Memory of
    a worker process: 4 C + 18 bytes per node and one batch per thread; for nacc and
    npacc another 16 C bytes per node, for bootstrap intervals about 40 C bytes per
    member of a block of communities.
    """
    began = time.monotonic()
    graph, labels, posteriors, readout = (
        run.complete(name) for name in ("graph", "labels", "posteriors", "readout")
    )
    check_prior(
        settings.labels.prior, tuple(str(name) for name in labels.facts["classes"])
    )
    source = choose_source(sources.memberships, settings)
    quantifier = make_quantifier(settings.quantifier, settings)
    prior = [float(value) for value in readout.facts["prior"]]
    tables = answer_digests(
        run.folder, sources, settings, source, graph.facts["id_type"]
    )
    engine = ""
    if source == "leiden":
        engine = engine_of(settings, graph.facts["n_edges"])
    inputs = quantify_inputs(
        settings, source, tables, engine, labels, posteriors, prior
    )
    reused = run.reuse(STAGE, inputs)
    if reused is not None:
        return reused

    stage = run.stage(STAGE)
    attempt = stage.begin()
    sums: list[FileRecord] = []
    if quantifier.needs_neighbours:
        values = NeighbourValues(run.folder.location)
        once = only_sums, 1, attempt, "neighbours"
        rounds = propagate(
            *(client, run.stage("graph"), graph, values, *once),
            backend=settings.backend,
        )
        sums = rounds[1]
    nodes = layout.load_ids(run.stage("graph"), graph)
    job = BatchJob(
        run.location,
        f"{graph.attempt} {labels.attempt}",
        posteriors.attempt,
        tuple(prior),
        attempt,
        settings,
        tuple(sums),
    )
    learnt: dict[str, Any] = {}
    if quantifier.name == "auto":
        job, learnt = _learn(job, run, graph, client)
    threads = max(1, sum(workers(client).values()))
    with ExitStack() as opened:
        progress("communities", 0, 1)
        memberships = opened.enter_context(
            open_memberships(run, graph, nodes, sources, settings, source)
        )
        progress("communities", 1, 1)
        detected = None
        if source == "leiden":
            detected = opened.enter_context(
                attempt.table_writer("communities", "communities")
            )
        per_batch = memberships.total // (threads * BATCHES_A_THREAD) + 1
        size = min(max(per_batch, MIN_MEMBERSHIPS), MAX_MEMBERSHIPS)
        written = write_batches(attempt, memberships.chunks(), size, nodes, detected)
        graph_future = client.submit(estimate_graph, job, pure=False)
        estimated = _estimate(job, written, client, progress)
    row_info = labels.facts["classes"], quantifier.name, settings
    total = result(client, graph_future)
    graph_arrays = stage.read_arrays(total)
    studied = learnt.get("labels", {"drawn": settings.labels.drawn})
    choice = label_facts(studied, graph_arrays, row_info[0])
    if learnt:
        learnt["labels"] = choice
    written_files, counts = write_prevalence(
        stage, attempt, memberships, row_info, estimated
    )
    if counts["suppressed"]:
        log.info(
            "%d of %d communities have fewer than %d members and are not shown "
            "(disclosure.min_size)",
            *(counts["suppressed"], len(memberships.names)),
            settings.disclosure.min_size,
        )
    totals = total_rows(graph_arrays, *row_info, choice)
    files = [*written_files, attempt.write_table("totals", totals, "totals")]
    if job.learnt is not None:
        files.append(job.learnt)
    if detected is not None:
        files.append(detected.record)
    n_memberships = memberships.total - memberships.duplicates
    members = counts.pop("members")
    if members != n_memberships:
        raise StageError(
            f"batches hold {members} memberships instead of {n_memberships}: this "
            "is an internal error, please report it"
        )
    facts = {
        "n_communities": len(memberships.names),
        "n_memberships": n_memberships,
        "duplicates_dropped": memberships.duplicates,
        "unknown_dropped": memberships.unknown_dropped,
        "without_community": memberships.without,
        "source": source,
        "quantifier": quantifier.name,
        **counts,
        **learnt,
    }
    if memberships.unknown_dropped:
        log.warning(
            "%d memberships left out: their nodes are not in the node table",
            facts["unknown_dropped"],
        )
    if quantifier.name == "auto":
        _log_choice(choice, settings)
    for used in (*sums, total, *chain(*job.around)):
        attempt.folder.delete(used.name)
    run_on_workers(client, forget_nodes)
    seconds = time.monotonic() - began
    digest = fingerprint(inputs)
    return stage.commit(attempt, files, digest, inputs, facts, seconds)


def _learn(
    job: BatchJob, run: RunDirectory, graph: Manifest, client: Client
) -> tuple[BatchJob, dict[str, Any]]:
    """Return the job with the variances that `auto` learns, and facts about them."""
    if studies_choice(job.settings):
        around = labels_around(client, run, graph, job.settings, job.attempt)
        job = replace(job, around=around)
    record, facts = result(client, client.submit(learn_from, job, pure=False))
    return replace(job, learnt=record), facts


def _log_choice(labels: dict[str, Any], settings: Settings) -> None:
    """Log how the labelled nodes were chosen."""
    verdict = labels.get("verdict", "none")
    declared = settings.labels.drawn in ("random", "by_place")
    warn = declared and verdict in ("class", "both")
    if text := brief(labels, settings.intervals.level):
        log.log(logging.WARNING if warn else logging.INFO, "labels: %s", text)


def _estimate(
    job: BatchJob, batches: Iterable[CommunityBatch], client: Client, progress: Progress
) -> list[tuple[CommunityBatch, FileRecord]]:
    """Estimate all batches; return them with their files, in order."""
    futures = {}
    for batch in batches:
        key = f"quantify-{job.attempt.id}-{batch.number:05d}"
        futures[client.submit(estimate_batch, job, batch, pure=False, key=key)] = batch
    estimated: list[tuple[CommunityBatch, FileRecord]] = []
    progress("quantify", 0, len(futures))
    look, left = Heartbeats(client).look, list(futures)
    try:
        while left:
            done, left = wait_some(left, look)
            for future, record in zip(done, gather(client, done), strict=True):
                batch = futures[future]
                estimated.append((batch, record))
                # Dask would recompute a future that is still held when a worker dies.
                future.release()
                job.attempt.folder.delete(batch.members.name)
            progress("quantify", len(estimated), len(futures))
    finally:
        for future in left:
            future.release()
    return sorted(estimated, key=lambda pair: pair[0].number)
