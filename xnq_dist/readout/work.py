"""What a readout is fitted to: the labelled nodes of an embedded graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.cluster import threads_each, workers
from xnq_dist.core.errors import DoesNotFitError, StageError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.random_bits import Purpose
from xnq_dist.core.settings import Settings
from xnq_dist.core.settings.method import VALUE_BYTES
from xnq_dist.core.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
)
from xnq_dist.core.waiting import wait_all
from xnq_dist.graph.layout import node_index
from xnq_dist.readout.rows import Part, gather_rows, located, sample_rows
from xnq_dist.reservoir.context import join

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = [
    "Embedded",
    "Fitted",
    "ReadoutWork",
    "to_fit",
]

log = logging.getLogger(__name__)

MIN_ROWS = 1_000
"""Number of labelled rows, if there are as many, that must fit in
``readout.memory``."""


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


Fitted = tuple[Sequence[FileRecord], dict[str, Any]]
"""A readout's files and facts, JSON values for manifests and reports."""


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
