"""Tasks of the stage ``quantify``: estimate a batch of communities, learn for `auto`.

The tasks are functions that read and write files; this module does not import Dask.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Floats
from xnq_dist.core.method_records import METHODS
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord, RunDirectory
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.pooling import label_evidence
from xnq_dist.quantify.default.surroundings import (
    learn,
    read_reached,
    studies_choice,
)
from xnq_dist.quantify.interface import (
    Communities,
    NodeTable,
    Prevalence,
    Quantifier,
    combine,
)
from xnq_dist.quantify.loading import (
    load_groups,
    load_held_posteriors,
    load_learnt,
    load_node_table,
    with_own_folds,
)
from xnq_dist.quantify.registry import make_quantifier

__all__ = [
    "BatchJob",
    "CommunityBatch",
    "estimate_batch",
    "estimate_graph",
    "evidence_of_batch",
    "forget_nodes",
    "learn_from",
]


@dataclass(frozen=True)
class CommunityBatch:
    """A batch of communities; its members are in a file."""

    number: int
    first: int
    """Number of its first community."""
    members: FileRecord


@dataclass(frozen=True, eq=False)
class BatchJob:
    """Arguments that all batches of a run share, small enough to send with each."""

    run: RunDirectory
    attempt: Attempt
    settings: Settings
    method: str
    """Name of the quantifier in the column ``method``."""
    classes: list[Any]
    """The classes, in the type of the labels."""
    sums: Sequence[Sequence[FileRecord]] = ()
    """Files of each round of sums over neighbours: of their posteriors and votes, or
    for `auto` of their labels by fold. Empty: the quantifier needs none."""
    learnt: FileRecord | None = None
    """Variances that `auto` has learnt; None: not learnt yet, or another quantifier."""
    parts: Floats | None = None
    """Weights of the parts of the intercepts' prior; None: `auto` does not pool."""

    def members(self, batch: CommunityBatch) -> Communities:
        """A batch's communities."""
        arrays = self.attempt.read_arrays(batch.members)
        return Communities(arrays["offsets"], arrays["members"])

    def loaded(self) -> NodeTable:
        """Return the table of all nodes, loaded once per process."""
        with _LOCK:
            if self.attempt.id not in _LOADED:
                _LOADED.clear()
                _LOADED[self.attempt.id] = self._load()
            return _LOADED[self.attempt.id]

    def _load(self) -> NodeTable:
        run, settings = self.run, self.settings
        nodes = load_node_table(run)
        if settings.quantifier != "auto":
            # Classic quantifiers compare members with labelled nodes.
            nodes = with_own_folds(run, nodes)
            every = np.arange(len(nodes.labels))
            for sums in read_reached(run, self.attempt, self.sums, every):
                nodes = nodes.with_neighbours(sums)
        return nodes

    def quantifier(self) -> Quantifier:
        """Return the quantifier; `auto` with its learnt variances."""
        settings, record = self.settings, self.learnt
        if record is None:
            return make_quantifier(settings.quantifier, settings)
        learnt = self.loaded().reference.learnt(
            self.attempt.id, lambda: load_learnt(self.run, record)
        )
        return Auto(settings.intervals.level, learnt, self.parts)


_LOCK = threading.Lock()
_LOADED: dict[str, NodeTable] = {}
"""What this process loaded for the current attempt, by its id."""


def forget_nodes() -> None:
    """Free the node table of this process."""
    with _LOCK:
        _LOADED.clear()


def evidence_of_batch(job: BatchJob, batch: CommunityBatch) -> Floats:
    """Evidence of the batch's communities that have labelled members, in order."""
    return label_evidence(job.members(batch), job.loaded())


def estimate_batch(job: BatchJob, batch: CommunityBatch) -> FileRecord:
    """Estimate the prevalence of one batch, from its file of members to a new file."""
    nodes, quantifier = job.loaded(), job.quantifier()
    inputs = job.members(batch), nodes
    estimates = quantifier.estimate(*inputs)
    bootstrap = nodes.reference.learnt(
        "bootstrap", lambda: Bootstrap.of(quantifier, job.settings, nodes)
    )
    if bootstrap is not None:
        estimates = bootstrap.with_ends(*inputs, estimates, batch.first)
    prevalence = combine(*inputs, estimates, job.settings.labelled)
    return job.attempt.write_arrays(f"batch-{batch.number:05d}", **vars(prevalence))


def estimate_graph(job: BatchJob) -> dict[str, Prevalence]:
    """Estimate the prevalence of the complete graph, as one community of all nodes.

    The result is ``answer``; for `auto` also ``if_random`` and, where there is a tilt,
    ``if_by_class``: the estimates in the two scenarios. Only `auto` gives an interval:
    resamples of all nodes would not fit into memory.
    """
    nodes, quantifier = job.loaded(), job.quantifier()
    inputs = Communities.of([np.arange(len(nodes.labels))]), nodes
    estimates = {"answer": quantifier.estimate(*inputs)}
    if isinstance(quantifier, Auto):
        estimates["if_random"] = quantifier.in_scenario(None, *inputs)
        if quantifier.learnt is not None and quantifier.learnt.tilt is not None:
            tilted = quantifier.in_scenario(quantifier.learnt.tilt, *inputs)
            estimates["if_by_class"] = tilted
    return {
        name: combine(*inputs, each, job.settings.labelled)
        for name, each in estimates.items()
    }


def learn_from(job: BatchJob) -> tuple[FileRecord, dict[str, Any]]:
    """Learn the variances of `auto`; return their file and the fact ``labels``."""
    nodes, run, settings = job.loaded(), job.run, job.settings
    held, groups = load_held_posteriors(run), load_groups(run)
    reached_from = partial(read_reached, run, job.attempt, job.sums)
    compared = with_own_folds(run, nodes) if studies_choice(settings) else nodes
    learnt, selection = learn(nodes, compared, groups, held, settings, reached_from)
    record = job.attempt.write_arrays("learnt", **learnt.arrays())
    studied, tilt = {} if selection is None else selection.facts(), learnt.tilt
    if tilt is not None:
        studied["bias"] = (-np.log(tilt.factors)).tolist()
    return record, {
        "drawn": settings.labels.drawn,
        "prior": settings.labels.prior is not None,
        **studied,
        "exchangeable": METHODS[settings.method].second_stage,
        "tilted": None if tilt is None else tilt.share,
        "alone": tilt is not None and tilt.alone,
    }
