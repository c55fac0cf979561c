"""Batches of communities on workers: the files they live in, and what `auto` learns.

Functions of files, run by tasks; nothing here knows Dask.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.core.store import Attempt, FileRecord, RunDirectory, Stage
from xnq_dist.quantify.checks.evidence import EvidenceMoments, gather_evidence
from xnq_dist.quantify.checks.fit_check import fit_pvalues
from xnq_dist.quantify.checks.own_coverage import own_coverage
from xnq_dist.quantify.community_rows import answer_arrays
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.benchmark_answers import Benchmarked
from xnq_dist.quantify.default.benchmarks import Targets
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.scenarios import study, study_nodes, tilt_of
from xnq_dist.quantify.default.surroundings import read_surroundings
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
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
from xnq_dist.quantify.weighted_sizes import WeightedSizes

__all__ = [
    "STAGE",
    "BatchJob",
    "CommunityBatch",
    "answer_batch",
    "answer_whole",
    "forget_nodes",
    "learn",
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


Loaded = tuple[NodeTable, Reference, EvidenceMoments, Bootstrap | None]


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

    def nodes(self) -> tuple[NodeTable, Reference]:
        """The node table, loaded once a process, with neighbours where needed."""
        nodes, reference, _, _ = self._loaded()
        return nodes, reference

    def bootstrap(self) -> Bootstrap | None:
        """What makes intervals, once a process; None: nothing does."""
        return self._loaded()[3]

    def moments(self) -> EvidenceMoments:
        """What the graph's posteriors are like, once a process."""
        return self._loaded()[2]

    def _loaded(self) -> Loaded:
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
        return nodes, reference, EvidenceMoments.of(nodes, reference.prior), bootstrap

    def quantifier(self) -> Quantifier:
        """The quantifier; `auto` with what it has learnt."""
        found = make_quantifier(self.settings.quantifier, self.settings)
        if isinstance(found, Auto) and self.learnt is not None:
            key = (self.run, self.attempt.id, self.learnt.checksum)
            return replace(found, learnt=_LEARNT.get(key, self._read_learnt))
        return found

    def benchmarked(self) -> Benchmarked | None:
        """What is made of the benchmarks; None where there are none."""
        if self.raked is None:
            return None
        key = (self.run, self.attempt.id, self.raked.checksum)
        return _BENCHMARKED.get(key, self._read_benchmarked)

    def _read_benchmarked(self) -> Benchmarked:
        if self.raked is None:
            raise ValueError("there are no benchmarks")
        return Benchmarked.from_arrays(self.stage.read_arrays(self.raked))

    def read_groups(self) -> NDArray[np.int32]:
        """Group of every node in each of the graph's own partitions, shape (L, N)."""
        return load_groups(RunDirectory(self.run)).stacked

    def _read_learnt(self) -> Learnt:
        if self.learnt is None:
            raise ValueError("nothing has been learnt")
        arrays = self.stage.read_arrays(self.learnt)
        return Learnt.from_arrays(self.read_groups(), arrays)


_CACHE: NodeCache[Loaded] = NodeCache()
_LEARNT: NodeCache[Learnt] = NodeCache()
_BENCHMARKED: NodeCache[Benchmarked] = NodeCache()


def forget_nodes() -> None:
    """Free the node table of this process."""
    _CACHE.forget()
    _LEARNT.forget()
    _BENCHMARKED.forget()


def answer_batch(job: BatchJob, batch: CommunityBatch) -> FileRecord:
    """One batch: members in, rows out, both through files."""
    nodes, reference = job.nodes()
    members = job.members(batch)
    labelled = job.settings.labelled
    quantifier = job.quantifier()
    found = quantifier.estimate(members, nodes, reference)
    bootstrap = job.bootstrap()
    if bootstrap is not None:
        found = bootstrap.with_ends(members, nodes, reference, found, batch.first)
    answer = combine(members, nodes, found, labelled)
    learnt = quantifier.learnt if isinstance(quantifier, Auto) else None
    evidence = gather_evidence(members, nodes, reference, learnt, job.moments())
    arrays = answer_arrays(answer)
    if found.groups is not None:
        arrays["group_offsets"] = found.groups.offsets
        arrays["groups"] = found.groups.groups
        arrays["group_weights"] = found.groups.weights
        if found.groups.squares is not None:
            arrays["group_squares"] = found.groups.squares
    benchmarked = job.benchmarked()
    if benchmarked is not None and isinstance(quantifier, Auto) and quantifier.learnt:
        level = quantifier.level
        raked = benchmarked.estimate(
            members, nodes, reference, quantifier.learnt, level
        )
        moved = combine(members, nodes, raked, labelled)
        arrays |= benchmarked.finish(moved, batch.first, level)
    if found.scenarios is not None:
        arrays |= _scenario_arrays(found.scenarios)
    return job.attempt.write_arrays(
        f"batch-{batch.number:05d}",
        **arrays,
        fit_pvalue=fit_pvalues(evidence),
        scores=evidence.scores,
        scores_error=evidence.error,
        scores_skew=evidence.skew,
    )


def _scenario_arrays(
    scenarios: tuple[Estimates, Estimates],
) -> dict[str, NDArray[Any]]:
    """Both answers for the unlabelled members, and the tilted sums by group."""
    plain, tilted = scenarios
    found: dict[str, NDArray[Any]] = {
        "plain": plain.prevalence,
        "tilted": tilted.prevalence,
    }
    if tilted.groups is not None:
        found["tilted_weights"] = tilted.groups.weights
    return found


def answer_whole(job: BatchJob) -> FileRecord:
    """The whole graph as one community: as `answer_batch`, without its evidence.

    Only `auto` gives an interval: resamples of all nodes would not fit into memory. Its
    answers in both scenarios are there as well, under the names ``plain_*`` and
    ``tilted_*``.
    """
    nodes, reference = job.nodes()
    quantifier, labelled = job.quantifier(), job.settings.labelled
    n_nodes, n_classes = nodes.posteriors.shape
    known = nodes.labels[nodes.labels >= 0]
    counts = np.bincount(known, minlength=n_classes)[None].astype(np.int64)
    weighted = None
    if nodes.weights is not None:
        alone = np.zeros(n_nodes, np.int64)
        weighted = WeightedSizes.of(nodes.weights, nodes.labels, alone, (1, n_classes))
    sizes = np.array([n_nodes])

    def arrays_of(found: Estimates) -> dict[str, NDArray[Any]]:
        return answer_arrays(combine_counts(sizes, counts, found, labelled, weighted))

    if not isinstance(quantifier, Auto):
        everyone = Communities(np.array([0, n_nodes]), np.arange(n_nodes))
        found = quantifier.estimate(everyone, nodes, reference)
        return job.attempt.write_arrays("whole", **arrays_of(found))
    arrays = arrays_of(quantifier.estimate_all(nodes, reference))
    for name, each in quantifier.scenarios(nodes, reference).items():
        own = arrays_of(each)
        arrays |= {f"{name}_{end}": own[end] for end in ENDS}
    benchmarked = job.benchmarked()
    if benchmarked is not None and quantifier.learnt:
        level = quantifier.level
        raked = benchmarked.estimate(None, nodes, reference, quantifier.learnt, level)
        moved = combine_counts(sizes, counts, raked, labelled, weighted)
        arrays |= benchmarked.finish(moved, None, level)
    return job.attempt.write_arrays("whole", **arrays)


def rake_to(
    job: BatchJob, path: str, groups: list[str | None], targets: FileRecord
) -> FileRecord:
    """Posteriors raked to benchmarks, in one file.

    Parameters
    ----------
    path, groups
        The table of benchmarks, and the groups that it names.
    targets
        File of `Targets.arrays`.

    Raises
    ------
    InputError
        When the benchmarks cannot hold together.
    """
    nodes, reference = job.nodes()
    quantifier = job.quantifier()
    if not isinstance(quantifier, Auto) or quantifier.learnt is None:
        raise ValueError("benchmarks need the quantifier auto")
    known = Targets.from_arrays(path, groups, job.stage.read_arrays(targets))
    made = Benchmarked.of(nodes, reference, quantifier.learnt, known)
    return job.attempt.write_arrays("raked", **made.arrays())


def learn(job: BatchJob) -> tuple[FileRecord, dict[str, Any]]:
    """What the answers of `auto` rest on, in one file, and figures for the manifest."""
    nodes, reference = job.nodes()
    run, settings = RunDirectory(job.run), job.settings
    held = load_held_posteriors(run, nodes.labels)
    groups = load_groups(run)
    selection = None
    if job.around:
        rows = study_nodes(nodes, reference, settings.seed)
        around = read_surroundings(
            run, job.stage, job.around, groups.links, rows, settings
        )
        own_folds = settings.method == "xnq+"
        selection = study(nodes, reference, rows, around, own_folds)
    tilt = tilt_of(settings.labels, selection, nodes, reference.prior)
    found = Learnt.of(nodes, reference, groups.stacked, held, tilt=tilt)
    record = job.attempt.write_arrays("learnt", **found.arrays())
    studied = {} if selection is None else selection.facts()
    if tilt is not None:
        studied["bias"] = (-np.log(tilt.factors)).tolist()
    facts = {
        "groups": len(found.variances),
        "variance_within": found.within.tolist(),
        "variance_without_labels": found.without.tolist(),
        "variance_without_labels_measured": held is not None,
        "variance_shared": found.shared.tolist(),
        "own_coverage": None
        if held is None
        else own_coverage(held, found, settings.intervals.level),
        "labels": {
            "drawn": settings.labels.drawn,
            "prior": settings.labels.prior is not None,
            **studied,
            "exchangeable": settings.method == "xnq+",
            "tilted": None if tilt is None else tilt.share,
            "alone": tilt is not None and tilt.alone,
        },
    }
    return record, facts
