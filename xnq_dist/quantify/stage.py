"""Stage ``quantify``: the prevalence of every community, in batches on Dask workers.

The client sorts the memberships and writes one file per batch. Each worker process
loads the node table once, in its first task: posteriors of all nodes in float32
(N x C) and a few numbers per node. A task estimates a batch and writes one file; the
client joins the files in the order of the communities. No sum mixes two communities.
`auto` learns the variances of its intervals from groups of the graph, and from all
communities with labelled members how much communities differ by class: in a pass of
its own over the batches, whose results the client adds up in the order of the
communities. So batches and workers do not change a bit of an estimate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xnq_dist.core.cluster import workers
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES, choose_source
from xnq_dist.core.store import (
    Manifest,
    RunDirectory,
    TableWriter,
)
from xnq_dist.core.waiting import gather, result, run_on_workers
from xnq_dist.graph import layout
from xnq_dist.graph.profile.inputs import answer_digests
from xnq_dist.graph.sources import Sources
from xnq_dist.quantify.batches import (
    BatchJob,
    CommunityBatch,
    estimate_batch,
    estimate_graph,
    evidence_of_batch,
    forget_nodes,
    label_facts,
    learn_from,
    total_rows,
    write_batches,
    write_tables,
)
from xnq_dist.quantify.communities import open_memberships
from xnq_dist.quantify.default.pooling import SPREADS, fit_weights
from xnq_dist.quantify.default.scenarios import check_prior
from xnq_dist.quantify.default.surroundings import (
    WALKS,
    labelled_by_fold,
    studies_choice,
)
from xnq_dist.quantify.interface import make_quantifier
from xnq_dist.quantify.loading import neighbour_values
from xnq_dist.reservoir.propagation import only_sums, propagate
from xnq_dist.reservoir.states import Start
from xnq_dist.selection.verdict import sentences

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["quantify"]

log = logging.getLogger(__name__)

STAGE = "quantify"

T = TypeVar("T")


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
        `intervals`, `auto`, `method`, `readout.folds`, `quality`, `leiden`,
        `backend`, `input`, `columns`, `seed` and `scratch` are used.
    client
        The workers.
    progress
        Called with the number of finished batches.

    Returns
    -------
    Manifest
        Of the stage: ``prevalence-*``, one row per community and class; ``totals-*``,
        one row per class for the complete graph; ``communities-*`` when
        communities were detected; for `auto` ``learnt-*``, for label plans and
        contrasts. The fact ``labels`` describes how the labelled nodes were chosen.

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
    sort of the memberships, and one batch; all edges where Leiden holds them; for
    `auto` 192 bytes for each community with labelled members. Memory of
    a worker process: 4 C + 18 bytes per node and one batch per thread; 28 more per node
    in the one that estimates the complete graph; for nacc and npacc another 16 C bytes
    per node, for bootstrap intervals about 40 C bytes per member of a block of
    communities.
    """
    source = choose_source(sources.memberships, settings)
    names = ("graph", "labels", "readout", "posteriors")
    stages = {name: run.complete(name) for name in names}
    graph, classes = stages["graph"], stages["labels"].facts["classes"]
    check_prior(settings.labels.prior, tuple(map(str, classes)))
    read = answer_digests(run, sources, settings, source) | {"source": source}
    inputs = STAGES[STAGE].made_from(stages, read, settings)
    reused = run.reuse(STAGE, inputs)
    if reused is not None:
        return reused
    attempt = run.stage(STAGE).begin()
    method = make_quantifier(settings.quantifier, settings).name
    job = BatchJob(run, attempt, settings, method, classes)
    job, learnt = _learn(job, graph, client)
    nodes = layout.load_ids(graph)
    detected: TableWriter | None = None
    if source == "leiden":
        detected = attempt.table_writer("communities", "communities")
    progress("communities", 0, 1)
    with (
        open_memberships(graph, nodes, sources, settings, source) as memberships,
        detected or nullcontext(),
    ):
        progress("communities", 1, 1)
        threads = max(1, sum(workers(client).values()))
        batches: Iterable[CommunityBatch]
        batches = write_batches(attempt, memberships, threads, nodes, detected)
        whole = client.submit(estimate_graph, job, pure=False)
        if job.learnt is not None and settings.auto.pooled:
            batches = list(batches)
            job, learnt["pooled"] = _pool(job, batches, client)
        estimated = _over(batches, estimate_batch, job, client, progress)
    of_graph = result(client, whole)
    labels = label_facts(job, learnt.get("labels"), of_graph)
    table, counts = write_tables(job, memberships, estimated)
    totals = total_rows(job, of_graph["answer"], labels)
    files = [table, attempt.write_table("totals", totals, "totals")]
    files += [job.learnt] if job.learnt is not None else []
    files += [detected.record] if detected is not None else []
    facts = {
        "duplicates_dropped": memberships.sorter.duplicates,
        "unknown_dropped": memberships.unknown_dropped,
        "source": source,
        "detected": memberships.digest,
        "quantifier": method,
        **counts,
        **learnt,
    }
    if learnt:
        facts["labels"] = labels
    _log(facts, settings)
    for used in chain(*job.sums, (batch.members for batch, _ in estimated)):
        attempt.delete(used.name)
    run_on_workers(client, forget_nodes)
    return attempt.commit(files, inputs, facts)


def _learn(
    job: BatchJob, graph: Manifest, client: Client
) -> tuple[BatchJob, dict[str, Any]]:
    """Sum over neighbours and learn what the quantifier needs; facts on the latter."""
    run, settings, auto = job.run, job.settings, job.method == "auto"
    start: Start | None = None
    if QUANTIFIERS[job.method].neighbours:
        start, rounds = partial(neighbour_values, run), 1
    elif auto and studies_choice(settings):
        folds = settings.readout.folds
        start = partial(labelled_by_fold, run, folds, settings.seed)
        rounds = WALKS
    if start is not None:
        files = propagate(
            *(client, graph, start, only_sums),
            *(range(1, rounds + 1), job.attempt, "sums"),
            weighted=not auto,
            backend=settings.backend,
        )
        job = replace(job, sums=list(files.values()))
    if not auto:
        return job, {}
    record, labels = result(client, client.submit(learn_from, job, pure=False))
    return replace(job, learnt=record), {"labels": labels}


def _pool(
    job: BatchJob, batches: list[CommunityBatch], client: Client
) -> tuple[BatchJob, dict[str, Any]]:
    """Learn how much communities differ by class beyond their posteriors."""
    found = [rows for _, rows in _over(batches, evidence_of_batch, job, client)]
    weights = fit_weights(np.concatenate(found))
    facts = {
        "communities": sum(map(len, found)),
        "weights": weights.tolist(),
        "spread": float(np.sqrt((weights[0] * np.tile(SPREADS, 2) ** 2).sum())),
    }
    return replace(job, parts=weights), facts


def _log(facts: dict[str, Any], settings: Settings) -> None:
    """Log what was left out, and how the labelled nodes were chosen."""
    if facts["suppressed"]:
        log.info(
            "%d of %d communities have fewer than %d members and are not shown "
            "(disclosure.min_size)",
            *(facts["suppressed"], facts["n_communities"]),
            settings.disclosure.min_size,
        )
    if facts["unknown_dropped"]:
        log.warning(
            "%d memberships left out: their nodes are not in the node table",
            facts["unknown_dropped"],
        )
    if "labels" in facts:
        declared = settings.labels.drawn in ("random", "by_place")
        warn = declared and facts["labels"].get("verdict") in ("class", "both")
        for text in sentences(facts["labels"], settings.intervals.level)[:1]:
            log.log(logging.WARNING if warn else logging.INFO, "%s", text)


def _over(
    batches: Iterable[CommunityBatch],
    task: Callable[[BatchJob, CommunityBatch], T],
    job: BatchJob,
    client: Client,
    progress: Progress = silent,
) -> list[tuple[CommunityBatch, T]]:
    """Do a task for all batches; return them with its results, in order."""
    futures = {client.submit(task, job, batch, pure=False): batch for batch in batches}
    progress("quantify", 0, len(futures))
    done = gather(client, [*futures], partial(progress, "quantify"))
    return list(zip(futures.values(), done, strict=True))
