"""The stages ``readout`` and ``posteriors``; the numerics are in the other modules.

One task assembles the labelled rows, the fits run as parallel tasks, and one task per
partition writes its posteriors. The client gets only facts and models.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.backend import choose
from xnq_dist.core.cluster import threads_each, workers
from xnq_dist.core.differences import shown
from xnq_dist.core.errors import StageError
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.inputs import posteriors_inputs, readout_inputs
from xnq_dist.core.method_records import METHODS
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import ReadoutSettings, Settings
from xnq_dist.core.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.core.waiting import gather, result
from xnq_dist.graph.layout import load_label_weights, load_labels, load_roles
from xnq_dist.groups.own_groups import Groups, node_groups
from xnq_dist.readout.apply import SavedReadout
from xnq_dist.readout.fit import FoldPlan, finish, grid_of, plan_folds
from xnq_dist.readout.logistic import FitJob, LogisticFit, fit_jobs
from xnq_dist.readout.objective import MemoryRows
from xnq_dist.readout.regularisation import ChosenC, climb, cross_fit
from xnq_dist.readout.rows import (
    FEATURES,
    GROUPS,
    LabelFile,
    Labelled,
    Part,
    assemble,
    gather_used,
    write_readout,
)
from xnq_dist.readout.tasks import TaskFits, rows_fit, watch

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = [
    "ReadoutWork",
    "fit_logistic",
    "fit_pooled",
    "fit_readout",
    "write_posteriors",
]

log = logging.getLogger(__name__)


def _plan(
    rows: Labelled, classes: list[Any], settings: ReadoutSettings, seed: int
) -> FoldPlan:
    count = len(classes)
    return plan_folds(rows.labels, rows.roles, count, settings, seed, classes)


def _ready(
    rows: Labelled, plan: FoldPlan, n_classes: int, backend: str, threads: int
) -> MemoryRows:
    """Construct the rows with their moments."""
    fields = rows.x, rows.labels, plan.folds, n_classes
    return MemoryRows.of(*fields, backend=choose(backend), threads=threads)


def _finish(
    rows: Labelled,
    ready: MemoryRows,
    plan: FoldPlan,
    chosen: ChosenC,
    classes: list[Any],
    settings: ReadoutSettings,
    attempt: Attempt,
) -> tuple[list[FileRecord], dict[str, Any]]:
    """Fit, calibrate and write the readout; return its files and facts."""
    args = rows.index, rows.labels, rows.roles, settings, plan, chosen, classes
    return _write(finish(ready, *args), int(rows.x.shape[1]), classes, attempt)


def _write(
    fitted: SavedReadout, dim: int, classes: list[Any], attempt: Attempt
) -> tuple[list[FileRecord], dict[str, Any]]:
    prior = fitted.prior.tolist()
    facts = {"classes": classes, "prior": prior, "dim": dim, **fitted.diagnostics}
    arrays = fitted.to_arrays()
    return write_readout(attempt, arrays, fitted.calibration, facts), facts


def fit_readout(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress = silent
) -> Manifest:
    """Run the stage ``readout``, or reuse it if complete.

    Parameters
    ----------
    run
        A run directory with the stages ``graph``, ``labels`` and ``embeddings``.
    settings
        Settings of the run.
    client
        The workers.
    progress
        Called with the progress of each step.

    Returns
    -------
    Manifest
        Of the stage; its facts hold ``prior`` and ``classes``.

    Raises
    ------
    InputError
        When a class has too few labelled nodes.
    DoesNotFitError
        When ``readout.memory`` is too small for one group of labelled rows, or workers
        die again and again.
    InfrastructureError
        When the disk is full or failing, or the cluster is lost.
    StageError
        When an earlier stage is missing, or files do not fit each other.
    """
    graph, labels, embeddings = _made_from(run)
    parts = _parts(client, run, graph, embeddings, labels)
    inputs = readout_inputs(graph, embeddings, labels, settings)
    with stage_errors(run.uri, "readout"):
        fitted = run.reuse("readout", inputs)
        if fitted is not None:
            return fitted
        began = time.perf_counter()
        stage = run.stage("readout")
        attempt = stage.begin()
        groups = node_groups(run.stage("graph"), graph, settings)
        made_from = client, run, graph, labels, embeddings, parts, settings
        work = ReadoutWork(*made_from, attempt, groups, progress)
        files, facts = METHODS.module_of(settings.method).fit(work)
        files = [*files, _write_groups(attempt, groups)]
        return _commit(stage, attempt, files, inputs, facts, began)


def write_posteriors(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress = silent
) -> Manifest:
    """Run the stage ``posteriors``, or reuse it if complete.

    Arguments and errors as for `fit_readout`, which made the stage ``readout``.
    """
    fitted = run.complete("readout", "run fit_readout first")
    inputs = posteriors_inputs(fitted)
    with stage_errors(run.uri, "posteriors"):
        written = run.reuse("posteriors", inputs)
        if written is not None:
            return written
        graph, labels, embeddings = _made_from(run)
        parts = _parts(client, run, graph, embeddings, labels)
        sources = run, client, parts, fitted, int(graph.facts["n_nodes"]), inputs
        write = METHODS.module_of(settings.method).write_posteriors
        return _posteriors(*sources, progress, write)


def _made_from(run: RunDirectory) -> tuple[Manifest, Manifest, Manifest]:
    """Manifests of graph, labels and embeddings."""
    graph = run.complete("graph", "run prepare first")
    labels = run.complete("labels", "run prepare first")
    return graph, labels, run.complete("embeddings", "run embed first")


def _parts(
    client: Client,
    run: RunDirectory,
    graph: Manifest,
    embeddings: Manifest,
    labels: Manifest,
) -> list[Part]:
    nodes, rows = graph.named("nodes-"), embeddings.named("part-")
    known = labels.named("labels-")
    if not len(nodes) == len(rows) == len(known):
        raise StageError(
            f"{run.uri} has {len(nodes)} partitions but embeddings of {len(rows)} and "
            f"labels of {len(known)}: run again with --overwrite"
        )
    has_roles = bool(labels.facts["has_roles"])
    stages = run.stage("graph"), run.stage("embeddings")
    where, each = run.stage("labels"), threads_each(client, len(nodes))
    return [
        Part(
            *(stages[0], node, stages[1], row, has_roles),
            labels=LabelFile(where, file),
            threads=each,
        )
        for node, row, file in zip(nodes, rows, known, strict=True)
    ]


@dataclass(frozen=True)
class ReadoutWork:
    """Inputs of a method's fit."""

    client: Client
    run: RunDirectory
    graph: Manifest
    labels: Manifest
    embeddings: Manifest
    parts: list[Part]
    settings: Settings
    attempt: Attempt
    """Where the readout's files are written."""
    groups: Groups
    """Groups of the graph's nodes, for the errors that posteriors share."""
    progress: Progress

    @property
    def classes(self) -> list[Any]:
        """The classes in the order of their codes."""
        return list(self.labels.facts["classes"])

    @property
    def dim(self) -> int:
        """Columns of the embeddings."""
        return int(self.embeddings.facts["dim"])


Fitted = tuple[Sequence[FileRecord], dict[str, Any]]
"""A readout's files and facts."""


def fit_logistic(work: ReadoutWork) -> Fitted:
    """Fit and calibrate a logistic regression of the embeddings."""
    client, readout, classes = work.client, work.settings.readout, work.classes
    if not rows_fit(client, work.parts, work.dim, work.settings):
        return _fit_spilled(work)
    pieces = client.map(gather_used, work.parts, pure=False)
    watch(client, pieces, "labelled rows", work.progress)
    rows = client.submit(assemble, pieces, pure=False)
    seed = work.settings.seed
    plan = client.submit(_plan, rows, classes, readout, seed, pure=False)
    del pieces  # so that the workers can free them
    threads = max(workers(client).values(), default=1)  # none: the wait says so
    options = len(classes), work.settings.backend, threads
    ready = client.submit(_ready, rows, plan, *options, pure=False)
    count = result(client, client.submit(getattr, plan, "count", pure=False))
    fits = TaskFits(client, [ready], "folds", work.progress)
    (chosen,) = cross_fit([grid_of(readout)], count, climb, fits)
    args = rows, ready, plan, chosen, classes, readout, work.attempt
    finished: Fitted = result(client, client.submit(_finish, *args, pure=False))
    return finished


def _fit_spilled(work: ReadoutWork) -> Fitted:
    """`fit_logistic` with the labelled rows in files."""
    from xnq_dist.readout.spilled import spill

    if work.settings.backend == "gpu":
        log.warning(
            "labelled rows need more than readout.memory, so the readout is fitted on "
            "CPUs: raise readout.memory to use the GPU"
        )
    readout, classes = work.settings.readout, work.classes
    where, known = work.run.stage("labels"), work.labels
    labels, roles = load_labels(where, known), None
    used = labels >= 0
    if known.facts["has_roles"]:
        all_roles = load_roles(where, known)
        used &= all_roles >= 0
        roles = all_roles[used]
    index, labels = np.flatnonzero(used), labels[used]
    count, attempt = len(classes), work.attempt
    plan = plan_folds(labels, roles, count, readout, work.settings.seed, classes)
    rows = Labelled(index, labels, roles, np.empty((len(index), 0), np.float32))
    spilled = spill(
        work.client, work.parts, rows, plan.folds, count, attempt, work.progress
    )

    def fit_all(jobs: Sequence[FitJob]) -> list[LogisticFit]:
        work.progress("folds", 0, len(jobs))
        fits = fit_jobs(spilled, jobs)
        work.progress("folds", len(jobs), len(jobs))
        return fits

    (chosen,) = cross_fit([plan.grid], plan.count, climb, fit_all)
    fitted = finish(spilled, index, labels, roles, readout, plan, chosen, classes)
    spilled.delete()
    return _write(fitted, work.dim, classes, attempt)


def fit_pooled(work: ReadoutWork) -> Fitted:
    """Fit the two stages of xnq+ to all labelled nodes (with roles: that have one)."""
    from xnq_dist.readout.plus.learning import fit_plus
    from xnq_dist.readout.plus.work import Embedded

    run, known = work.run, work.labels
    labels = load_labels(run.stage("labels"), known)
    if known.facts["has_roles"]:
        labels[load_roles(run.stage("labels"), known) < 0] = -1
    fitted = fit_plus(
        work.client,
        Embedded(
            run.stage("graph"), work.graph, run.stage("embeddings"), work.embeddings
        ),
        labels,
        work.classes,
        work.settings,
        work.attempt,
        work.progress,
        work.groups.links[0],
        load_label_weights(run.stage("labels"), known),
    )
    return fitted.files, fitted.facts


def _write_groups(attempt: Attempt, groups: Groups) -> FileRecord:
    by_links = dict(zip(("groups", "fine"), groups.links, strict=False))
    return attempt.write_arrays(GROUPS, **by_links, degree=groups.degree)


def _commit(
    stage: Stage,
    attempt: Attempt,
    files: Sequence[FileRecord],
    inputs: dict[str, Any],
    facts: dict[str, Any],
    began: float,
) -> Manifest:
    log.info(
        "readout: C = %g, log-loss %s, accuracy %s",
        facts["C"],
        shown(facts["log_loss"]),
        shown(facts["accuracy"]),
    )
    skill = facts["skill"]
    if skill is not None and skill["lower"] <= 0:
        log.warning(
            "readout: posteriors are not significantly better than the class shares "
            "alone: they reduce the log-loss by %.1f %% (95 %% interval %.1f to %.1f), "
            "so estimates of all communities are close to the labels' shares; add "
            "labels, or features that distinguish the classes",
            *(100 * skill[name] for name in ("value", "lower", "upper")),
        )
    seconds = time.perf_counter() - began
    return stage.commit(attempt, files, fingerprint(inputs), inputs, facts, seconds)


def _posteriors(
    run: RunDirectory,
    client: Client,
    parts: list[Part],
    fitted: Manifest,
    n_nodes: int,
    inputs: dict[str, Any],
    progress: Progress,
    write: Callable[..., list[FileRecord]],
) -> Manifest:
    """Run the stage ``posteriors`` with one task per partition."""
    began = time.perf_counter()
    stage = run.stage("posteriors")
    attempt = stage.begin()
    classes = fitted.facts["classes"]
    (record,) = fitted.named("readout-")
    readout = run.stage("readout")
    features = fitted.named(FEATURES)
    optional: list[tuple[FileRecord, ...]] = [(record,) for record in features]
    optional = optional or [()] * len(parts)
    futures = [
        client.submit(
            write,
            part,
            number,
            readout,
            record,
            attempt,
            classes,
            *optional[number],
            pure=False,
        )
        for number, part in enumerate(parts)
    ]
    watch(client, futures, "partitions", progress)
    of_parts = gather(client, futures)
    written = sum(files[0].rows for files in of_parts)
    if written != n_nodes:
        raise StageError(
            f"posteriors have {written} rows for {n_nodes} nodes: run again with "
            "--overwrite"
        )
    facts = {"classes": classes, "prior": fitted.facts["prior"], "n_nodes": n_nodes}
    seconds = time.perf_counter() - began
    files = [file for files in of_parts for file in files]
    return stage.commit(attempt, files, fingerprint(inputs), inputs, facts, seconds)
