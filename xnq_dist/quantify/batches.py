"""Batches of communities on workers: the files they live in, and what `auto` learns.

Functions of files, run by tasks; nothing here knows Dask.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.quantify.auto import Auto
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.evidence import Moments, gather_evidence
from xnq_dist.quantify.fit_check import fit_pvalues
from xnq_dist.quantify.interface import (
    QUANTIFIERS,
    Communities,
    NodeTable,
    Quantifier,
    Reference,
    combine,
    combine_counts,
)
from xnq_dist.quantify.learning import Learnt
from xnq_dist.quantify.loading import (
    NodeCache,
    load_held_posteriors,
    load_neighbours,
    load_node_table,
)
from xnq_dist.quantify.rows import answer_arrays
from xnq_dist.store import Attempt, FileRecord, RunDirectory, Stage

__all__ = [
    "STAGE",
    "Batch",
    "Job",
    "answer_batch",
    "answer_whole",
    "forget_nodes",
    "learn",
]

STAGE = "quantify"


@dataclass(frozen=True)
class Batch:
    """A batch of communities, its members in a file."""

    number: int
    first: int
    communities: int
    members: FileRecord


@dataclass(frozen=True)
class Job:
    """What every batch of a run needs, small enough to send with each."""

    run: str = field(repr=False)
    """Location of the run directory."""
    graph: str
    posteriors: str
    """Attempts of the stages, to notice when another run has replaced them."""
    prior: tuple[float, ...]
    attempt: Attempt
    settings: Settings
    neighbours: tuple[FileRecord, ...] = ()
    """Files of the sums over neighbours, for a quantifier that needs them."""
    groups: FileRecord | None = None
    """Group of every node, for `auto`."""
    learnt: FileRecord | None = None
    """What `auto` has learnt, once it has."""

    @property
    def stage(self) -> Stage:
        """The stage ``quantify``."""
        return RunDirectory(self.run).stage(STAGE)

    def members(self, batch: Batch) -> Communities:
        """A batch's communities."""
        arrays = self.stage.read_arrays(batch.members)
        return Communities(arrays["offsets"], arrays["members"])

    def nodes(self) -> tuple[NodeTable, Reference]:
        """The node table, loaded once a process, with neighbours where needed."""
        # Settings too: the reference holds what intervals are drawn by.
        settings = self.settings.model_dump_json()
        key = (self.run, self.graph, self.posteriors, settings)
        return _CACHE.get((*key, *(r.checksum for r in self.neighbours)), self._load)

    def _load(self) -> tuple[NodeTable, Reference]:
        run = RunDirectory(self.run)
        nodes, reference = load_node_table(run, self.prior)
        if self.neighbours:
            found = load_neighbours(run, self.stage, self.neighbours)
            nodes = replace(nodes, neighbours=found)
            if reference.rows is not None:
                own = found.of(reference.rows)
                reference = replace(reference, neighbours=own)
        return nodes, replace(
            reference,
            moments=Moments.of(nodes, reference.prior),
            bootstrap=Bootstrap.of(
                self.settings.quantifier, self.settings, reference, nodes.classes
            ),
        )

    def quantifier(self) -> Quantifier:
        """The quantifier; `auto` with what it has learnt."""
        found = QUANTIFIERS[self.settings.quantifier](self.settings)
        if isinstance(found, Auto) and self.learnt is not None:
            key = (self.run, self.attempt.id, self.learnt.checksum)
            return replace(found, learnt=_LEARNT.get(key, self._read_learnt))
        return found

    def read_groups(self) -> NDArray[np.int32]:
        """Group of every node, shape (N,)."""
        if self.groups is None:
            raise ValueError("the graph has not been partitioned into groups")
        return self.stage.read_arrays(self.groups)["groups"]

    def _read_learnt(self) -> Learnt:
        if self.learnt is None:
            raise ValueError("nothing has been learnt")
        arrays = self.stage.read_arrays(self.learnt)
        least = float(arrays.pop("least"))
        return Learnt(groups=self.read_groups(), least=least, **arrays)


_CACHE: NodeCache[tuple[NodeTable, Reference]] = NodeCache()
_LEARNT: NodeCache[Learnt] = NodeCache()


def forget_nodes() -> None:
    """Free the node table of this process."""
    _CACHE.forget()
    _LEARNT.forget()


def answer_batch(job: Job, batch: Batch) -> FileRecord:
    """One batch: members in, rows out, both through files."""
    nodes, reference = job.nodes()
    members = job.members(batch)
    labelled = job.settings.labelled
    quantifier = job.quantifier()
    found = quantifier.estimate(members, nodes, reference, labelled)
    if reference.bootstrap is not None:
        found = reference.bootstrap.with_ends(
            members, nodes, reference, found, batch.first
        )
    answer = combine(members, nodes, found, labelled)
    learnt = quantifier.learnt if isinstance(quantifier, Auto) else None
    evidence = gather_evidence(members, nodes, reference, learnt)
    arrays = answer_arrays(answer)
    if found.groups is not None:
        arrays["group_offsets"] = found.groups.offsets
        arrays["groups"] = found.groups.groups
        arrays["group_weights"] = found.groups.weights
    return job.attempt.write_arrays(
        f"batch-{batch.number:05d}",
        **arrays,
        fit_pvalue=fit_pvalues(evidence),
        scores=evidence.scores,
        scores_error=evidence.error,
        scores_skew=evidence.skew,
    )


def answer_whole(job: Job) -> FileRecord:
    """The whole graph as one community: as `answer_batch`, without its evidence.

    Only `auto` gives an interval: resamples of all nodes would not fit into memory.
    """
    nodes, reference = job.nodes()
    quantifier, labelled = job.quantifier(), job.settings.labelled
    n_nodes, n_classes = nodes.posteriors.shape
    if isinstance(quantifier, Auto):
        found = quantifier.estimate_all(nodes, reference)
    else:
        everyone = Communities(np.array([0, n_nodes]), np.arange(n_nodes))
        found = quantifier.estimate(everyone, nodes, reference, labelled)
    known = nodes.labels[nodes.labels >= 0]
    counts = np.bincount(known, minlength=n_classes)[None].astype(np.int64)
    answer = combine_counts(np.array([n_nodes]), counts, found, labelled)
    return job.attempt.write_arrays("whole", **answer_arrays(answer))


def learn(job: Job) -> tuple[FileRecord, dict[str, Any]]:
    """What the intervals of `auto` rest on, in one file, and figures for people."""
    nodes, reference = job.nodes()
    held = load_held_posteriors(RunDirectory(job.run), reference.rows)
    found = Learnt.of(nodes, reference, job.read_groups(), held)
    record = job.attempt.write_arrays(
        "learnt",
        variances=found.variances,
        shared=found.shared,
        labelled=found.labelled,
        within=found.within,
        without=found.without,
        least=np.array(found.least),
    )
    facts = {
        "groups": len(found.variances),
        "variance_within": found.within.tolist(),
        "variance_without_labels": found.without.tolist(),
        "variance_without_labels_measured": held is not None,
        "variance_shared": found.shared.tolist(),
    }
    return record, facts
