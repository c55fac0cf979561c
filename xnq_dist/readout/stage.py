"""The stages ``readout`` and ``posteriors``; arithmetic is in the other modules.

The labelled rows meet inside a task, the fits run as tasks in parallel, and one task
per partition writes its posteriors. Only figures and models pass the client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.backend import choose
from xnq_dist.core.cluster import workers
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import StageError
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.inputs import posteriors_inputs, readout_inputs
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings_sections import ReadoutSettings
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
from xnq_dist.groups.own_groups import Groups, own_groups
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
    write_posteriors,
    write_readout,
)
from xnq_dist.readout.tasks import TaskFits, rows_fit, watch

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = ["fit_readout"]

log = logging.getLogger(__name__)


def _plan(
    rows: Labelled, classes: list[Any], settings: ReadoutSettings, seed: int
) -> FoldPlan:
    count = len(classes)
    return plan_folds(rows.labels, rows.roles, count, settings, seed, classes)


def _ready(
    rows: Labelled, plan: FoldPlan, n_classes: int, backend: str, threads: int
) -> MemoryRows:
    """The rows with their moments."""
    known = rows.x, rows.labels, plan.folds, n_classes
    return MemoryRows.of(*known, backend=choose(backend), threads=threads)


def _finish(
    rows: Labelled,
    ready: MemoryRows,
    plan: FoldPlan,
    chosen: ChosenC,
    classes: list[Any],
    settings: ReadoutSettings,
    attempt: Attempt,
) -> tuple[list[FileRecord], dict[str, Any]]:
    """Fit, calibrate and write the readout; its files and figures."""
    known = rows.index, rows.labels, rows.roles, settings, plan, chosen, classes
    return _write(finish(ready, *known), int(rows.x.shape[1]), classes, attempt)


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
    """The stages ``readout`` and ``posteriors``, each reused when it is whole.

    Parameters
    ----------
    run
        A run directory with the stages ``graph``, ``labels`` and ``embeddings``.
    settings
        Settings of the run.
    client
        Where the work runs.
    progress
        Told how far it is.

    Returns
    -------
    Manifest
        Of the stage ``posteriors``; its facts hold ``prior`` and ``classes``.

    Raises
    ------
    InputError
        When a class has too few labelled nodes.
    DoesNotFitError
        When ``readout.memory`` does not hold one group of labelled rows, or workers
        die again and again.
    InfrastructureError
        When the disk is full or failing, or the cluster is lost.
    StageError
        When an earlier stage is missing, or files do not fit each other.
    """
    graph, labels = _whole(run, "graph", "prepare"), _whole(run, "labels", "prepare")
    embeddings = _whole(run, "embeddings", "embed")
    parts = _parts(run, graph, embeddings, labels)
    classes = list(labels.facts["classes"])
    inputs = readout_inputs(graph, embeddings, labels, settings)
    with stage_errors(run.uri, "readout"):
        fitted = run.reuse("readout", inputs)
        if fitted is None:
            dim = int(embeddings.facts["dim"])
            fit = _Fit(client, parts, classes, settings, dim, progress)
            if settings.method == "xnq+":
                fitted = fit.commit_plus(run, graph, embeddings, labels, inputs)
            else:
                fitted = fit.commit(run, graph, labels, inputs)
    after = posteriors_inputs(fitted)
    with stage_errors(run.uri, "posteriors"):
        written = run.reuse("posteriors", after)
        if written is None:
            n_nodes = int(graph.facts["n_nodes"])
            written = _posteriors(run, client, parts, fitted, n_nodes, after, progress)
    return written


def _whole(run: RunDirectory, name: str, step: str) -> Manifest:
    found = run.stage(name).manifest()
    if found is None:
        raise StageError(f"{run.uri} has no whole stage {name!r}: run {step} first")
    return found


def _parts(
    run: RunDirectory, graph: Manifest, embeddings: Manifest, labels: Manifest
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
    where = run.stage("labels")
    return [
        Part(stages[0], node, stages[1], row, has_roles, None, LabelFile(where, own))
        for node, row, own in zip(nodes, rows, known, strict=True)
    ]


@dataclass(frozen=True)
class _Fit:
    """The stage ``readout`` as tasks."""

    client: Client
    parts: list[Part]
    classes: list[Any]
    settings: Settings
    dim: int
    progress: Progress

    def commit(
        self,
        run: RunDirectory,
        graph: Manifest,
        labels: Manifest,
        inputs: dict[str, Any],
    ) -> Manifest:
        """Fit the readout and make the stage whole."""
        began = time.perf_counter()
        client, readout = self.client, self.settings.readout
        stage = run.stage("readout")
        attempt = stage.begin()
        within = rows_fit(client, self.parts, self.dim, self.settings)
        groups = self._groups(run, graph, attempt)
        own = _write_groups(attempt, groups)
        if not within:
            files, facts = self._spilled(run.stage("labels"), labels, attempt)
            return _commit(stage, attempt, [*files, own], inputs, facts, began)
        pieces = client.map(gather_used, self.parts, pure=False)
        watch(client, pieces, "labelled rows", self.progress)
        rows = client.submit(assemble, pieces, pure=False)
        classes, seed = self.classes, self.settings.seed
        plan = client.submit(_plan, rows, classes, readout, seed, pure=False)
        # Assembled: let the workers drop the pieces.
        del pieces
        threads = max(workers(client).values())
        place = len(classes), self.settings.backend, threads
        ready = client.submit(_ready, rows, plan, *place, pure=False)
        count = result(client, client.submit(getattr, plan, "count", pure=False))
        fits = TaskFits(client, [ready], "folds", self.progress)
        (chosen,) = cross_fit([grid_of(readout)], count, climb, fits)
        known = rows, ready, plan, chosen, classes, readout, attempt
        finished = client.submit(_finish, *known, pure=False)
        files, facts = result(client, finished)
        return _commit(stage, attempt, [*files, own], inputs, facts, began)

    def _spilled(
        self, where: Stage, known: Manifest, attempt: Attempt
    ) -> tuple[list[FileRecord], dict[str, Any]]:
        """The readout of more rows than fit, its files and figures."""
        from xnq_dist.readout.spilled import spill

        if self.settings.backend == "gpu":
            log.warning("labelled rows beyond readout.memory are fitted on CPUs")
        readout, count = self.settings.readout, len(self.classes)
        labels, roles = load_labels(where, known), None
        used = labels >= 0
        if known.facts["has_roles"]:
            every = load_roles(where, known)
            used &= every >= 0
            roles = every[used]
        index, labels = np.flatnonzero(used), labels[used]
        plan = plan_folds(
            labels, roles, count, readout, self.settings.seed, self.classes
        )
        rows = Labelled(index, labels, roles, np.empty((len(index), 0), np.float32))
        spilled = spill(
            self.client, self.parts, rows, plan.folds, count, attempt, self.progress
        )

        def fit_all(jobs: Sequence[FitJob]) -> list[LogisticFit]:
            self.progress("folds", 0, len(jobs))
            found = fit_jobs(spilled, jobs)
            self.progress("folds", len(jobs), len(jobs))
            return found

        (chosen,) = cross_fit([plan.grid], plan.count, climb, fit_all)
        of_rows = index, labels, roles, readout, plan, chosen, self.classes
        fitted = finish(spilled, *of_rows)
        spilled.delete()
        return _write(fitted, self.dim, self.classes, attempt)

    def commit_plus(
        self,
        run: RunDirectory,
        graph: Manifest,
        embeddings: Manifest,
        known: Manifest,
        inputs: dict[str, Any],
    ) -> Manifest:
        """The same for xnq+, all labelled nodes with a role pooled."""
        from xnq_dist.readout.plus.learning import fit_plus
        from xnq_dist.readout.plus.work import Embedded

        began = time.perf_counter()
        labels = load_labels(run.stage("labels"), known)
        if known.facts["has_roles"]:
            labels[load_roles(run.stage("labels"), known) < 0] = -1
        stage = run.stage("readout")
        attempt = stage.begin()
        groups = self._groups(run, graph, attempt)
        fitted = fit_plus(
            self.client,
            Embedded(run.stage("graph"), graph, run.stage("embeddings"), embeddings),
            labels,
            self.classes,
            self.settings,
            attempt,
            self.progress,
            groups.links[0],
            load_label_weights(run.stage("labels"), known),
        )
        files = [*fitted.files, _write_groups(attempt, groups)]
        return _commit(stage, attempt, files, inputs, fitted.facts, began)

    def _groups(self, run: RunDirectory, graph: Manifest, attempt: Attempt) -> Groups:
        """The graph's own partitions, which the errors of posteriors are judged by."""
        where = run.stage("graph")
        return own_groups(where, graph, self.settings, attempt, self.client)


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
        facts["log_loss"],
        facts["accuracy"],
    )
    found = facts["skill"]
    if found is not None and found["lower"] <= 0:
        log.warning(
            "readout: posteriors are not shown to be better than the class shares "
            "alone: they save %.1f %% of the log-loss (95 %% interval %.1f to %.1f), "
            "so that every community's estimate is drawn to the labels' shares; add "
            "labels, or features that tell the classes apart",
            *(100 * found[name] for name in ("value", "lower", "upper")),
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
) -> Manifest:
    """The stage ``posteriors``: one task per partition."""
    began = time.perf_counter()
    stage = run.stage("posteriors")
    attempt = stage.begin()
    classes = fitted.facts["classes"]
    (record,) = fitted.named("readout-")
    readout = run.stage("readout")
    features = fitted.named(FEATURES)
    write: Callable[..., FileRecord] = write_posteriors
    more: list[tuple[FileRecord, ...]] = [()] * len(parts)
    if features:
        from xnq_dist.readout.plus.plus_model import write_plus_posteriors

        write, more = write_plus_posteriors, [(record,) for record in features]
    futures = [
        client.submit(
            write,
            part,
            number,
            readout,
            record,
            attempt,
            classes,
            *more[number],
            pure=False,
        )
        for number, part in enumerate(parts)
    ]
    watch(client, futures, "posteriors", progress)
    files = gather(client, futures)
    written = sum(file.rows for file in files)
    if written != n_nodes:
        raise StageError(
            f"posteriors have {written} rows for {n_nodes} nodes: run again with "
            "--overwrite"
        )
    facts = {"classes": classes, "prior": fitted.facts["prior"], "n_nodes": n_nodes}
    seconds = time.perf_counter() - began
    return stage.commit(attempt, files, fingerprint(inputs), inputs, facts, seconds)
