"""The stages ``readout`` and ``posteriors``, and what methods fit readouts to.

One task joins the rows that models are fitted to, few tasks fit them on their threads,
and one task per partition writes its posteriors. The client has labels and facts; the
numerics are in the other modules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.cluster import threads_each, workers
from xnq_dist.core.errors import DoesNotFitError, StageError
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.random_bits import Purpose
from xnq_dist.core.records import METHODS
from xnq_dist.core.sections import VALUE_BYTES
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
)
from xnq_dist.core.waiting import gather, wait_all
from xnq_dist.graph.layout import load_labels, node_index
from xnq_dist.groups.own_groups import node_groups
from xnq_dist.readout.rows import (
    FEATURES,
    GROUPS,
    Part,
    gather_rows,
    located,
    sample_rows,
)
from xnq_dist.reservoir.context import join

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = [
    "Embedded",
    "Fitted",
    "ReadoutWork",
    "fit_readout",
    "to_fit",
    "write_posteriors",
]

log = logging.getLogger(__name__)

MIN_ROWS = 1_000
"""Number of labelled rows, if there are as many, that must fit in
``readout.memory``."""

Fitted = tuple[Sequence[FileRecord], dict[str, Any]]
"""A readout's files and facts, JSON values for manifests and reports."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """A graph with its embedding and labels: complete stages of a run."""

    run: RunDirectory
    manifest: Manifest
    """Of the stage ``graph``."""
    embedded: Manifest
    labels: Manifest
    scores: Manifest | None = None
    """Of the scores of another model; None: there are none."""

    @classmethod
    def of(cls, run: RunDirectory, settings: Settings) -> Embedded:
        """The complete stages of a run, ``scores`` only if the settings name columns.

        Raises
        ------
        StageError
            When one is missing, or not of the present graph.
        """
        graph, embedded, labels = map(run.complete, ("graph", "embeddings", "labels"))
        for made in (embedded, labels):
            if made.inputs["graph"] != graph.fingerprint:
                raise StageError(
                    f"{run.uri}: the stage {made.stage} is not of the present graph: "
                    "run prepare and embed again"
                )
        scores = run.complete("scores") if settings.columns.scores else None
        return cls(run, graph, embedded, labels, scores)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of columns of each block."""
        return tuple(self.embedded.facts["blocks"])

    def parts(self, client: Client) -> list[Part]:
        """Return every partition's files."""
        files = [
            self.manifest.named("nodes-"),
            self.embedded.named("part-"),
            self.labels.named("labels-"),
        ]
        if self.scores is not None:
            files.append(self.scores.named("scores-"))
        threads = threads_each(client, len(files[0]))
        return [Part(self.run, threads, *each) for each in zip(*files, strict=True)]


@dataclass(frozen=True, eq=False)
class ReadoutWork:
    """Labels of an embedded graph, with settings, client and output folder."""

    client: Client
    source: Embedded
    labels: Ints32
    """Class codes by canonical index, -1 for labels that are not used, shape (N,)."""
    weights: Floats
    """Inclusion weights of the labels by canonical index, shape (N,)."""
    classes: Sequence[Any]
    """The classes in the order of their codes."""
    settings: Settings
    attempt: Attempt
    """Where the readout's files are written."""
    progress: Progress = silent
    roles: NDArray[np.int8] | None = None
    """0 train, 1 calibration by canonical index; None: labels have no roles."""
    groups: Ints32 | None = None
    """Groups of the graph's nodes, for the errors that posteriors share."""

    @cached_property
    def parts(self) -> list[Part]:
        """Files of every partition."""
        return self.source.parts(self.client)

    @cached_property
    def owned(self) -> Sequence[Ints]:
        """Canonical indexes of every partition's nodes."""
        return node_index(self.source.manifest)

    @cached_property
    def threads(self) -> int:
        """Threads of a task that fits models."""
        return min(workers(self.client).values(), default=1)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> _Future:
        """Start a task."""
        return self.client.submit(function, *arguments, pure=False)

    def watch(self, what: str, tasks: Sequence[_Future]) -> None:
        """Wait for tasks and report progress; raise the first failure."""
        wait_all(self.client, tasks, partial(self.progress, what))

    def gather(self, index: Ints) -> _Future:
        """Read the embeddings of the nodes `index`, ascending, into one array."""
        pieces, places = [], []
        for part, rows, at in zip(self.parts, *located(self.owned, index), strict=True):
            if len(rows):
                pieces.append(self.submit(gather_rows, part, rows))
                places.append(at)
        self.watch("labelled rows", pieces)
        return self.submit(join, pieces, places)


def to_fit(labels: Ints32, width: int, settings: Settings) -> Ints:
    """Select the labelled nodes that models are fitted to, by canonical index.

    At most `ReadoutSettings.max_rows`, with `width` columns of the embedding.

    Raises
    ------
    DoesNotFitError
        When there is no room for `MIN_ROWS` of them.
    """
    labelled = np.flatnonzero(labels >= 0)
    memory, least = settings.readout.memory_bytes, min(len(labelled), MIN_ROWS)
    need = VALUE_BYTES * width * least
    if memory < need:
        raise DoesNotFitError(
            f"the embeddings of {least:,} labelled nodes ({width} columns) need "
            f"{need / 2**20:.3g} MiB but readout.memory is {memory / 2**20:.3g} MiB: "
            f"set readout.memory to {-(-need // 2**20)}MiB or more, or lower "
            "reservoir.dim"
        )
    count = settings.readout.max_rows(width)
    if len(labelled) <= count:
        return labelled
    log.info(
        "readout: models are fitted to %d of %d labelled nodes", count, len(labelled)
    )
    return sample_rows(labelled, count, settings.seed, Purpose.FITTED_ROWS)


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
        When ``readout.memory`` is too small for enough labelled rows, or workers die
        again and again.
    InfrastructureError
        When the disk is full or failing, or the cluster is lost.
    StageError
        When an earlier stage is missing, or files do not fit each other.
    """
    source = Embedded.of(run, settings)
    graph, labels = source.manifest, source.labels
    inputs = STAGES["readout"].made_from(run.manifests(), {}, settings)
    with stage_errors(run.uri, "readout"):
        fitted = run.reuse("readout", inputs)
        if fitted is not None:
            return fitted
        attempt = run.stage("readout").begin()
        groups = node_groups(graph, settings)
        loaded = load_labels(labels)
        used, weights = loaded.codes, loaded.weights
        roles = loaded.roles if labels.facts["has_roles"] else None
        if roles is not None:
            used[roles < 0] = -1  # they leave a label out
        work = ReadoutWork(
            client,
            source,
            used,
            np.broadcast_to(1.0, len(used)) if weights is None else weights,
            labels.facts["classes"],
            settings,
            attempt,
            progress,
            roles=roles,
            groups=groups.links[0],
        )
        files, facts = METHODS.module_of(settings.method).fit(work)
        by_links = dict(zip(("groups", "fine"), groups.links, strict=False))
        kept = attempt.write_arrays(GROUPS, **by_links, degree=groups.degree)
        _report(facts)
        return attempt.commit([*files, kept], inputs, facts)


def write_posteriors(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress = silent
) -> Manifest:
    """Run the stage ``posteriors``, or reuse it if complete.

    Arguments and errors as for `fit_readout`, which made the stage ``readout``.
    """
    fitted = run.complete("readout")
    inputs = STAGES["posteriors"].made_from({"readout": fitted}, {}, settings)
    with stage_errors(run.uri, "posteriors"):
        written = run.reuse("posteriors", inputs)
        if written is not None:
            return written
        source = Embedded.of(run, settings)
        attempt, classes = run.stage("posteriors").begin(), fitted.facts["classes"]
        write = METHODS.module_of(settings.method).write_posteriors
        (record,), features = fitted.named("readout-"), fitted.named(FEATURES)
        made = run.stage("readout"), record, attempt, classes
        tasks = [
            client.submit(
                write, part, number, *made, *features[number : number + 1], pure=False
            )
            for number, part in enumerate(source.parts(client))
        ]
        files = [*chain(*gather(client, tasks, partial(progress, "partitions")))]
        facts = {name: fitted.facts[name] for name in ("classes", "prior")}
        facts["n_nodes"] = source.manifest.facts["n_nodes"]
        return attempt.commit(files, inputs, facts)


def _report(facts: Mapping[str, Any]) -> None:
    """Log how good held-out posteriors are, and what scores of another model add."""
    log.info(
        "readout: C = %g, log-loss %.6g, accuracy %.6g",
        *(facts[name] for name in ("C", "log_loss", "accuracy")),
    )
    skill = facts["skill"]
    if skill is not None and skill["lower"] <= 0:
        log.warning(
            "readout: posteriors are not significantly better than the class shares "
            "alone: they reduce %s, so estimates of all communities are close to the "
            "labels' shares; add labels, or features that distinguish the classes",
            _reduction(skill),
        )
    if scores := facts.get("scores"):
        names, gain = ", ".join(scores["columns"]), scores["gain"]
        if gain["lower"] > 0:
            log.info("readout: the scores (%s) reduce %s", names, _reduction(gain))
        else:
            log.warning(
                "readout: the scores (%s) do not help measurably: they reduce %s; "
                "leave them out of columns.scores, or add labels",
                names,
                _reduction(gain),
            )


def _reduction(skill: Mapping[str, float]) -> str:
    """How much a `skill` takes off the log-loss, in words."""
    value, lower, upper = (100 * skill[name] for name in ("value", "lower", "upper"))
    return f"the log-loss by {value:.1f} % (95 % interval {lower:.1f} to {upper:.1f})"
