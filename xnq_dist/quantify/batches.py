"""Batches of communities on workers: the files they live in, and what `auto` learns.

Functions of files, run by tasks; nothing here knows Dask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints
from xnq_dist.core.config import Settings
from xnq_dist.core.method_records import method_of
from xnq_dist.core.store import Attempt, FileRecord, RunDirectory, Stage
from xnq_dist.quantify.checks.evidence import EvidenceMoments, gather_evidence
from xnq_dist.quantify.checks.fit_check import fit_pvalues
from xnq_dist.quantify.checks.own_coverage import own_coverage
from xnq_dist.quantify.community_rows import answer_arrays
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.benchmark_answers import Benchmarked
from xnq_dist.quantify.default.benchmarks import Targets
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.scenarios import Surroundings
from xnq_dist.quantify.default.surroundings import learn, read_surroundings
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Prevalence,
    Quantifier,
    Reference,
    WeightedSizes,
    combine,
    combine_counts,
)
from xnq_dist.quantify.intervals.bootstrap import Bootstrap
from xnq_dist.quantify.loading import (
    NodeCache,
    load_groups,
    load_held_posteriors,
    load_neighbours,
    load_node_table,
)
from xnq_dist.quantify.registry import make_quantifier

__all__ = [
    "STAGE",
    "BatchJob",
    "CommunityBatch",
    "answer_batch",
    "answer_whole",
    "forget_nodes",
    "learn_from",
    "rake_to",
]

STAGE = "quantify"
ENDS = ("prevalence", "lower", "upper")


@dataclass(frozen=True)
class CommunityBatch:
    """A batch of communities, its members in a file."""

    number: int
    first: int
    communities: int
    members: FileRecord


@dataclass(frozen=True, eq=False)
class Loaded:
    """What all batches of a process share."""

    nodes: NodeTable
    reference: Reference
    moments: EvidenceMoments
    bootstrap: Bootstrap | None
    """What makes intervals; None: nothing does."""


@dataclass(frozen=True)
class BatchJob:
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
    around: tuple[tuple[FileRecord, ...], ...] = ()
    """Labels around every node, for `auto`; none: the choice of the labelled nodes is
    not studied."""
    learnt: FileRecord | None = None
    """What `auto` has learnt, once it has."""
    weights: FileRecord | None = None
    """Weight of every node; None: every node counts once."""
    raked: FileRecord | None = None
    """Posteriors raked to benchmarks; None: there are no benchmarks."""

    @property
    def stage(self) -> Stage:
        """The stage ``quantify``."""
        return RunDirectory(self.run).stage(STAGE)

    def members(self, batch: CommunityBatch) -> Communities:
        """A batch's communities."""
        arrays = self.stage.read_arrays(batch.members)
        return Communities(arrays["offsets"], arrays["members"])

    def loaded(self) -> Loaded:
        """The node table and what follows from it, loaded once a process."""
        # Settings too: they decide how intervals are made.
        settings = self.settings.model_dump_json()
        key = (self.run, self.graph, self.posteriors, settings)
        files = (*self.neighbours, *([self.weights] if self.weights else []))
        return _CACHE.get((*key, *(record.checksum for record in files)), self._load)

    def _load(self) -> Loaded:
        run = RunDirectory(self.run)
        nodes, reference = load_node_table(run, self.prior)
        if self.weights is not None:
            weights = self.stage.read_arrays(self.weights)["weights"]
            nodes = replace(nodes, weights=weights)
        if self.neighbours:
            found = load_neighbours(run, self.stage, self.neighbours)
            nodes = replace(nodes, neighbours=found)
            if reference.rows is not None:
                own = found.of(reference.rows)
                reference = replace(reference, neighbours=own)
        # Resamples are made on the CPU: a device would be sent every one of them.
        on_cpu = self.settings.model_copy(update={"backend": "cpu"})
        made = make_quantifier(on_cpu.quantifier, on_cpu)
        bootstrap = Bootstrap.of(made, self.settings, reference)
        moments = EvidenceMoments.of(nodes, reference.prior)
        return Loaded(nodes, reference, moments, bootstrap)

    def quantifier(self) -> Quantifier:
        """The quantifier; `auto` with what it has learnt."""
        found, record = (
            make_quantifier(self.settings.quantifier, self.settings),
            self.learnt,
        )
        if not isinstance(found, Auto) or record is None:
            return found

        def read() -> Learnt:
            groups = load_groups(RunDirectory(self.run)).stacked
            return Learnt.from_arrays(groups, self.stage.read_arrays(record))

        key = (self.run, self.attempt.id, record.checksum)
        return replace(found, learnt=_LEARNT.get(key, read))

    def benchmarked(self) -> Benchmarked | None:
        """What is made of the benchmarks; None where there are none."""
        if (record := self.raked) is None:
            return None

        def read() -> Benchmarked:
            return Benchmarked.from_arrays(self.stage.read_arrays(record))

        return _BENCHMARKED.get((self.run, self.attempt.id, record.checksum), read)


_CACHE: NodeCache[Loaded] = NodeCache()
_LEARNT: NodeCache[Learnt] = NodeCache()
_BENCHMARKED: NodeCache[Benchmarked] = NodeCache()


def forget_nodes() -> None:
    """Free the node table of this process."""
    for cache in (_CACHE, _LEARNT, _BENCHMARKED):
        cache.forget()


def answer_batch(job: BatchJob, batch: CommunityBatch) -> FileRecord:
    """One batch: members in, rows out, both through files."""
    at, labelled, quantifier = job.loaded(), job.settings.labelled, job.quantifier()
    asked = job.members(batch), at.nodes, at.reference
    found = quantifier.estimate(*asked)
    if at.bootstrap is not None:
        found = at.bootstrap.with_ends(*asked, found, batch.first)

    def put_together(estimates: Estimates) -> Prevalence:
        return combine(*asked[:2], estimates, labelled)

    learnt = quantifier.learnt if isinstance(quantifier, Auto) else None
    evidence = gather_evidence(*asked, learnt, at.moments)
    arrays = answer_arrays(put_together(found))
    if found.groups is not None:
        arrays["group_offsets"] = found.groups.offsets
        arrays["groups"] = found.groups.groups
        arrays["group_weights"] = found.groups.weights
        if found.groups.squares is not None:
            arrays["group_squares"] = found.groups.squares
    arrays |= _benchmark_arrays(job, quantifier, asked, put_together, batch.first)
    if found.scenarios is not None:
        plain, tilted = found.scenarios
        arrays |= {"plain": plain.prevalence, "tilted": tilted.prevalence}
        if tilted.groups is not None:
            arrays["tilted_weights"] = tilted.groups.weights
    return job.attempt.write_arrays(
        f"batch-{batch.number:05d}",
        **arrays,
        fit_pvalue=fit_pvalues(evidence),
        scores=evidence.scores,
        scores_error=evidence.error,
        scores_skew=evidence.skew,
    )


def _benchmark_arrays(
    job: BatchJob,
    quantifier: Quantifier,
    asked: tuple[Communities | None, NodeTable, Reference],
    put_together: Callable[[Estimates], Prevalence],
    first: int | None,
) -> dict[str, NDArray[Any]]:
    """The benchmarked answers; nothing where there are no benchmarks."""
    benchmarked = job.benchmarked()
    if benchmarked is None or not isinstance(quantifier, Auto) or not quantifier.learnt:
        return {}
    level = quantifier.level
    raked = benchmarked.estimate(*asked, quantifier.learnt, level)
    return benchmarked.finish(put_together(raked), first, level)


def answer_whole(job: BatchJob) -> FileRecord:
    """The whole graph as one community: as `answer_batch`, without its evidence.

    Only `auto` gives an interval: resamples of all nodes would not fit into memory. Its
    answers in both scenarios are named ``plain_*`` and ``tilted_*``.
    """
    at, quantifier = job.loaded(), job.quantifier()
    nodes, reference = at.nodes, at.reference
    n_nodes, n_classes = nodes.posteriors.shape
    known = nodes.labels[nodes.labels >= 0]
    counts = np.bincount(known, minlength=n_classes)[None].astype(np.int64)
    weighted = None
    if nodes.weights is not None:
        alone = np.zeros(n_nodes, np.int64)
        weighted = WeightedSizes.of(nodes.weights, nodes.labels, alone, (1, n_classes))
    known_of = np.array([n_nodes]), counts

    def put_together(found: Estimates) -> Prevalence:
        return combine_counts(*known_of, found, job.settings.labelled, weighted)

    if not isinstance(quantifier, Auto):
        everyone = Communities(np.array([0, n_nodes]), np.arange(n_nodes))
        answer = put_together(quantifier.estimate(everyone, nodes, reference))
        return job.attempt.write_arrays("whole", **answer_arrays(answer))
    arrays = answer_arrays(put_together(quantifier.estimate_all(nodes, reference)))
    for name, each in quantifier.scenarios(nodes, reference).items():
        own = answer_arrays(put_together(each))
        arrays |= {f"{name}_{end}": own[end] for end in ENDS}
    asked = None, nodes, reference
    arrays |= _benchmark_arrays(job, quantifier, asked, put_together, None)
    return job.attempt.write_arrays("whole", **arrays)


def rake_to(
    job: BatchJob, path: str, groups: list[str | None], targets: FileRecord
) -> FileRecord:
    """Posteriors raked to benchmarks, in one file.

    `path` and `groups` are the table of benchmarks and the groups that it names;
    `targets` is a file of `Targets.arrays`.
    """
    at, quantifier = job.loaded(), job.quantifier()
    if not isinstance(quantifier, Auto) or quantifier.learnt is None:
        raise ValueError("benchmarks need the quantifier auto")
    known = Targets.from_arrays(path, groups, job.stage.read_arrays(targets))
    made = Benchmarked.of(at.nodes, at.reference, quantifier.learnt, known)
    return job.attempt.write_arrays("raked", **made.arrays())


def learn_from(job: BatchJob) -> tuple[FileRecord, dict[str, Any]]:
    """What the answers of `auto` rest on, in one file, and figures for the manifest."""
    nodes, reference = job.loaded().nodes, job.loaded().reference
    run, settings = RunDirectory(job.run), job.settings
    held, groups = load_held_posteriors(run, nodes.labels), load_groups(run)

    def around(rows: Ints) -> Surroundings:
        files = run, job.stage, job.around, groups.links
        return read_surroundings(*files, rows, settings)

    found, selection = learn(nodes, reference, groups, held, settings, around)
    record = job.attempt.write_arrays("learnt", **found.arrays())
    studied, tilt = {} if selection is None else selection.facts(), found.tilt
    if tilt is not None:
        studied["bias"] = (-np.log(tilt.factors)).tolist()
    level = settings.intervals.level
    facts = {
        "groups": len(found.variances),
        "variance_within": found.within.tolist(),
        "variance_without_labels": found.without.tolist(),
        "variance_without_labels_measured": held is not None,
        "variance_shared": found.shared.tolist(),
        "own_coverage": None if held is None else own_coverage(held, found, level),
        "labels": {
            "drawn": settings.labels.drawn,
            "prior": settings.labels.prior is not None,
            **studied,
            "exchangeable": method_of(settings.method).cross_fitted,
            "tilted": None if tilt is None else tilt.share,
            "alone": tilt is not None and tilt.alone,
        },
    }
    return record, facts
