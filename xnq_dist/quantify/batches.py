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
from xnq_dist.quantify.drawn import DrawnByClass
from xnq_dist.quantify.fit_check import FitCheck, fit_pvalues, flags
from xnq_dist.quantify.interface import (
    QUANTIFIERS,
    Communities,
    Estimates,
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
from xnq_dist.quantify.scenarios import Tilt, study, study_nodes, tilt_of
from xnq_dist.quantify.surroundings import read_surroundings
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
LEARNT = ("variances", "shared", "labelled", "within", "without")
"""Arrays of `Learnt` in its file."""
ENDS = ("prevalence", "lower", "upper")


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
    around: tuple[tuple[FileRecord, ...], ...] = ()
    """Labels around every node, for `auto`; none: the choice of the labelled nodes is
    not studied."""
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
            fit=FitCheck.of(reference, nodes),
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
        own = {name: arrays[name] for name in LEARNT}
        return Learnt(
            groups=self.read_groups(),
            least=float(arrays["least"]),
            tilt=Tilt.from_arrays(arrays),
            **own,
        )


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
    pvalues = fit_pvalues(members, nodes, reference.fit)
    flagged, notes = flags(
        "by_class" if isinstance(quantifier, DrawnByClass) else quantifier.name,
        pvalues,
        job.settings.fit.alpha,
        answer.n_labelled,
        answer.notes,
    )
    arrays = answer_arrays(replace(answer, notes=notes))
    if found.groups is not None:
        arrays["group_offsets"] = found.groups.offsets
        arrays["groups"] = found.groups.groups
        arrays["group_weights"] = found.groups.weights
    if found.scenarios is not None:
        arrays |= _scenario_arrays(found.scenarios)
    return job.attempt.write_arrays(
        f"batch-{batch.number:05d}", **arrays, fit_pvalue=pvalues, flagged=flagged
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


def answer_whole(job: Job) -> FileRecord:
    """The whole graph as one community: as `answer_batch`, without a fit check.

    Only `auto` gives an interval: resamples of all nodes would not fit into memory. Its
    answers in both scenarios are there as well, under the names ``plain_*`` and
    ``tilted_*``.
    """
    nodes, reference = job.nodes()
    quantifier, labelled = job.quantifier(), job.settings.labelled
    n_nodes, n_classes = nodes.posteriors.shape
    known = nodes.labels[nodes.labels >= 0]
    counts = np.bincount(known, minlength=n_classes)[None].astype(np.int64)

    def arrays_of(found: Estimates) -> dict[str, NDArray[Any]]:
        sizes = np.array([n_nodes])
        return answer_arrays(combine_counts(sizes, counts, found, labelled))

    if not isinstance(quantifier, Auto):
        everyone = Communities(np.array([0, n_nodes]), np.arange(n_nodes))
        found = quantifier.estimate(everyone, nodes, reference, labelled)
        return job.attempt.write_arrays("whole", **arrays_of(found))
    arrays = arrays_of(quantifier.estimate_all(nodes, reference))
    for name, each in quantifier.scenarios(nodes, reference).items():
        own = arrays_of(each)
        arrays |= {f"{name}_{end}": own[end] for end in ENDS}
    return job.attempt.write_arrays("whole", **arrays)


def learn(job: Job) -> tuple[FileRecord, dict[str, Any]]:
    """What the answers of `auto` rest on, in one file, and figures for people."""
    nodes, reference = job.nodes()
    run, settings = RunDirectory(job.run), job.settings
    held = load_held_posteriors(run, reference.rows)
    arrays = job.stage.read_arrays(job.groups) if job.groups else {}
    groups = tuple(arrays[name] for name in ("groups", "fine") if name in arrays)
    selection = None
    if job.around:
        rows = study_nodes(nodes, reference, settings.seed)
        around = read_surroundings(run, job.stage, job.around, groups, rows, settings)
        own_folds = settings.method == "xnq+"
        selection = study(nodes, reference, rows, around, own_folds)
    tilt = tilt_of(settings.labels, selection, nodes, reference.prior)
    found = Learnt.of(nodes, reference, job.read_groups(), held, tilt=tilt)
    record = job.attempt.write_arrays(
        "learnt",
        least=np.array(found.least),
        **{name: getattr(found, name) for name in LEARNT},
        **({} if tilt is None else tilt.to_arrays()),
    )
    studied = {} if selection is None else selection.facts()
    if tilt is not None:
        studied["bias"] = (-np.log(tilt.factors)).tolist()
    facts = {
        "groups": len(found.variances),
        "variance_within": found.within.tolist(),
        "variance_without_labels": found.without.tolist(),
        "variance_without_labels_measured": held is not None,
        "variance_shared": found.shared.tolist(),
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
