"""Stages ``readout`` and ``posteriors`` on Dask; arithmetic is in the other modules.

The labelled rows meet inside a task, the folds run as tasks beside each other, and one
task per partition writes its posteriors. Only counts and figures pass the client.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xnq_dist.config import ReadoutSettings, Settings, parse_bytes
from xnq_dist.errors import DoesNotFitError, StageError
from xnq_dist.progress import Progress, silent
from xnq_dist.readout.apply import SavedReadout
from xnq_dist.readout.fit import (
    FoldFit,
    FoldPlan,
    climb,
    finish,
    fit_fold,
    grid_of,
    plan_folds,
)
from xnq_dist.readout.rows import (
    Labelled,
    Part,
    assemble,
    count_used,
    gather_used,
    write_posteriors,
)
from xnq_dist.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = ["fit_readout"]

log = logging.getLogger(__name__)

VALUE_BYTES = 8
"""The readout is fitted in float64."""


def _plan(
    rows: Labelled, classes: list[Any], settings: ReadoutSettings, seed: int
) -> FoldPlan:
    count = len(classes)
    return plan_folds(rows.labels, rows.roles, count, settings, seed, classes)


def _fold_count(plan: FoldPlan) -> int:
    return plan.count


def _fold(
    rows: Labelled,
    plan: FoldPlan,
    n_classes: int,
    C: float,
    fold: int,
    before: FoldFit | None,
) -> FoldFit:
    return fit_fold(rows.x, rows.labels, plan, n_classes, C, fold, before)


def _loss(fitted: FoldFit) -> float:
    return fitted.loss


def _finish(
    rows: Labelled,
    plan: FoldPlan,
    fits: Sequence[FoldFit],
    place: int,
    losses: Sequence[float],
    classes: list[Any],
    settings: ReadoutSettings,
    attempt: Attempt,
) -> tuple[list[FileRecord], dict[str, Any]]:
    """Fit, calibrate and write the readout; its files and figures."""
    count = len(classes)
    fitted = finish(
        rows.x,
        rows.labels,
        rows.roles,
        count,
        settings,
        plan,
        fits,
        place,
        losses,
        classes,
    )
    facts = {
        "classes": classes,
        "prior": fitted.prior.tolist(),
        "dim": int(rows.x.shape[1]),
        **fitted.diagnostics,
    }
    saved = SavedReadout.of(fitted, rows.index)
    parameters = {
        name: values.tolist() for name, values in fitted.calibration.parameters.items()
    }
    text = json.dumps({**facts, "calibration_parameters": parameters}, indent=1)
    files = [
        attempt.write_arrays("readout", **saved.to_arrays()),
        attempt.write_bytes("summary", "json", text.encode()),
    ]
    return files, facts


def fit_readout(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    progress: Progress = silent,
) -> Manifest:
    """The stages ``readout`` and ``posteriors``, each reused when it is whole.

    Parameters
    ----------
    run
        A run directory with the stages ``graph`` and ``embeddings``.
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
        When the labelled rows need more than ``readout.memory``.
    StageError
        When an earlier stage is missing, files do not fit each other, or workers die.
    """
    from distributed import KilledWorker

    graph = _whole(run, "graph", "prepare")
    embeddings = _whole(run, "embeddings", "embed")
    parts = _parts(run, graph, embeddings)
    classes = list(graph.facts["classes"])
    inputs = readout_inputs(graph, embeddings, settings)
    try:
        fitted = run.reuse("readout", inputs)
        if fitted is None:
            dim = int(embeddings.facts["dim"])
            line = _Fit(client, parts, classes, settings, dim, progress)
            fitted = line.commit(run.stage("readout"), inputs)
        after = posteriors_inputs(fitted)
        written = run.reuse("posteriors", after)
        if written is None:
            n_nodes = int(graph.facts["n_nodes"])
            written = _posteriors(run, client, parts, fitted, n_nodes, after, progress)
    except KilledWorker as error:
        raise StageError(
            f"workers died again and again while the readout was made ({error}): most "
            "likely they ran out of memory; lower readout.memory or reservoir.dim, or "
            "raise cluster.memory_limit"
        ) from error
    return written


def readout_inputs(
    graph: Manifest, embeddings: Manifest, settings: Settings
) -> dict[str, Any]:
    """What the stage ``readout`` depends on."""
    return {
        "graph": graph.fingerprint,
        "embeddings": embeddings.fingerprint,
        "readout": settings.readout.model_dump(exclude={"memory"}),
        "seed": settings.seed,
    }


def posteriors_inputs(readout: Manifest) -> dict[str, Any]:
    """What the stage ``posteriors`` depends on."""
    return {"readout": readout.fingerprint}


def _whole(run: RunDirectory, name: str, step: str) -> Manifest:
    found = run.stage(name).manifest()
    if found is None:
        raise StageError(f"{run.uri} has no whole stage {name!r}: run {step} first")
    return found


def _parts(run: RunDirectory, graph: Manifest, embeddings: Manifest) -> list[Part]:
    nodes, rows = graph.named("nodes-"), embeddings.named("part-")
    if len(nodes) != len(rows):
        raise StageError(
            f"{run.uri} has {len(nodes)} partitions but embeddings of {len(rows)}: run "
            "again with --overwrite"
        )
    has_roles = bool(graph.facts["has_roles"])
    stages = run.stage("graph"), run.stage("embeddings")
    return [
        Part(stages[0], node, stages[1], row, has_roles)
        for node, row in zip(nodes, rows, strict=True)
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

    def commit(self, stage: Stage, inputs: dict[str, Any]) -> Manifest:
        """Fit the readout and make the stage whole."""
        began = time.perf_counter()
        client, readout = self.client, self.settings.readout
        at_once = self._folds_at_once()
        gathered = client.map(gather_used, self.parts, pure=False)
        _watch(gathered, "labelled rows", self.progress)
        rows = client.submit(assemble, gathered, pure=False)
        plan = client.submit(
            _plan, rows, self.classes, readout, self.settings.seed, pure=False
        )
        count = client.submit(_fold_count, plan, pure=False).result()
        # Assembled: let the workers drop the pieces.
        del gathered
        fits, place, losses = self._folds(rows, plan, count, at_once)
        attempt = stage.begin()
        files, facts = client.submit(
            _finish,
            rows,
            plan,
            fits,
            place,
            losses,
            self.classes,
            readout,
            attempt,
            pure=False,
        ).result()
        log.info(
            "readout: C = %g, log-loss %s, accuracy %s",
            facts["C"],
            facts["log_loss"],
            facts["accuracy"],
        )
        seconds = time.perf_counter() - began
        return stage.commit(attempt, files, fingerprint(inputs), inputs, facts, seconds)

    def _folds_at_once(self) -> int:
        """Folds that the memory set for the readout lets run beside each other."""
        there = parse_bytes(self.settings.readout.memory)
        counts = self.client.map(count_used, self.parts, pure=False)
        labelled: int = sum(_gathered(self.client, counts))
        need = max(1, labelled * self.dim * VALUE_BYTES)
        if need > there:
            raise DoesNotFitError(
                f"the embeddings of {labelled:,} labelled nodes (d' = {self.dim}) need "
                f"{need / 2**30:.3g} GiB but readout.memory is {there / 2**30:.3g} "
                f"GiB: set readout.memory to {-(-need // 2**20)}MiB or more, or lower "
                "reservoir.dim"
            )
        return int(there // need)

    def _folds(
        self, rows: _Future, plan: _Future, count: int, at_once: int
    ) -> tuple[list[_Future], int, list[float]]:
        """All folds at the best C, left on the workers; its place, the losses."""
        client, n_classes = self.client, len(self.classes)
        if not count:
            return [], 0, []
        grid = grid_of(self.settings.readout)
        tried: list[list[_Future]] = []

        def fit_all(C: float) -> list[float]:
            before = tried[-1] if tried else [None] * count

            def submit(fold: int) -> _Future:
                return client.submit(
                    _fold, rows, plan, n_classes, C, fold, before[fold], pure=False
                )

            def tell(what: str, done: int, total: int) -> None:
                self.progress(what, len(tried) * count + done, len(grid) * count)

            tried.append(_in_window(submit, count, at_once, tell))
            return _gathered(client, client.map(_loss, tried[-1], pure=False))

        best, losses = climb(grid, fit_all)
        self.progress("folds", len(grid) * count, len(grid) * count)
        return tried[best], best, losses


def _in_window(
    submit: Callable[[int], _Future], count: int, size: int, progress: Progress
) -> list[_Future]:
    """Futures of ``submit(0..count-1)``, all done, no more than `size` at a time."""
    from distributed import as_completed

    futures = [submit(number) for number in range(min(size, count))]
    running = as_completed(futures)
    for done, future in enumerate(running, start=1):
        _raise_failed(future)
        progress("folds", done, count)
        if len(futures) < count:
            futures.append(submit(len(futures)))
            running.add(futures[-1])
    return futures


def _watch(futures: Sequence[_Future], what: str, progress: Progress) -> None:
    """Wait for futures; the first failure is raised."""
    from distributed import as_completed

    running = as_completed(futures)
    for done, future in enumerate(running, start=1):
        _raise_failed(future)
        progress(what, done, len(futures))


def _gathered(client: Client, futures: Sequence[_Future]) -> list[Any]:
    return list(client.gather(futures))


def _raise_failed(future: _Future) -> None:
    # The result itself stays where it is.
    if future.status in ("error", "cancelled"):
        future.result()


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
    futures = [
        client.submit(
            write_posteriors,
            part,
            number,
            run.stage("readout"),
            record,
            attempt,
            classes,
            pure=False,
        )
        for number, part in enumerate(parts)
    ]
    _watch(futures, "posteriors", progress)
    files = _gathered(client, futures)
    written = sum(file.rows for file in files)
    if written != n_nodes:
        raise StageError(
            f"posteriors have {written} rows for {n_nodes} nodes: run again with "
            "--overwrite"
        )
    facts = {"classes": classes, "prior": fitted.facts["prior"], "n_nodes": n_nodes}
    seconds = time.perf_counter() - began
    return stage.commit(attempt, files, fingerprint(inputs), inputs, facts, seconds)
