"""Batches of communities on workers: the files they live in, and what `auto` learns.

Functions of files, run by tasks; nothing here knows Dask. Sums over nodes and edges
are integers (reals are rounded to a fixed step first), so that neither partitions nor
batches change a bit of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.graph import layout
from xnq_dist.quantify.auto import Auto, Learnt
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.cohesion import COUNTS, EdgeCounts, Mixing, internal_edges
from xnq_dist.quantify.fit_check import FitCheck, fit_pvalues, flags
from xnq_dist.quantify.hypotheses import HYPOTHESES, learn_by_class
from xnq_dist.quantify.interface import (
    QUANTIFIERS,
    Communities,
    NodeTable,
    Quantifier,
    Reference,
    combine,
)
from xnq_dist.quantify.loading import (
    NodeCache,
    load_neighbours,
    load_node_table,
    vectors,
    whole_stage,
)
from xnq_dist.quantify.rows import answer_arrays
from xnq_dist.store import Attempt, FileRecord, RunDirectory, Stage

__all__ = [
    "STAGE",
    "Batch",
    "Job",
    "answer_batch",
    "count_edges",
    "forget_nodes",
    "learn",
    "summarise_batch",
]

STAGE = "quantify"
STEP = 2.0**-24
"""Reals are added up in multiples of this."""
MOST_LEARNT_FROM = 5_000
"""Communities that `auto` learns from, evenly spread over all."""


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

    def quantifier(self, batch: Batch, edges: FileRecord | None) -> Quantifier:
        """The quantifier; `auto` with what it has learnt, and the batch's edges."""
        found = QUANTIFIERS[self.settings.quantifier](self.settings)
        if isinstance(found, Auto) and self.learnt is not None:
            learnt = _read_learnt(self, self.learnt, batch, edges)
            return replace(found, learnt=learnt)
        return found


_CACHE = NodeCache()


def forget_nodes() -> None:
    """Free the node table of this process."""
    _CACHE.forget()


def answer_batch(job: Job, batch: Batch, edges: FileRecord | None = None) -> FileRecord:
    """One batch: members in, rows out, both through files.

    Parameters
    ----------
    edges
        The batch's file of `learn`, for `auto` on a graph with edges.
    """
    nodes, reference = job.nodes()
    members = job.members(batch)
    labelled = job.settings.labelled
    quantifier = job.quantifier(batch, edges)
    found = quantifier.estimate(members, nodes, reference, labelled)
    if reference.bootstrap is not None:
        found = reference.bootstrap.with_ends(
            members, nodes, reference, found, batch.first
        )
    answer = combine(members, nodes, found, labelled)
    pvalues = fit_pvalues(members, nodes, reference.fit)
    flagged, notes = flags(
        job.settings.quantifier,
        pvalues,
        job.settings.fit.alpha,
        answer.n_labelled,
        answer.notes,
    )
    arrays = answer_arrays(replace(answer, notes=notes))
    return job.attempt.write_arrays(
        f"batch-{batch.number:05d}", **arrays, fit_pvalue=pvalues, flagged=flagged
    )


def summarise_batch(
    job: Job, batch: Batch, multiplicity: FileRecord, every: int
) -> FileRecord:
    """What a batch's labelled members say of the hypotheses of `auto`."""
    nodes, reference = job.nodes()
    found = Auto.of(job.settings).summarise(
        job.members(batch),
        nodes,
        reference,
        job.stage.read_arrays(multiplicity)["multiplicity"],
        every,
        batch.first,
    )
    return job.attempt.write_arrays(
        f"evidence-{batch.first:09d}", evidence=found.evidence, shares=found.shares
    )


def count_edges(
    job: Job, number: int, batches: Sequence[Batch], sums: FileRecord
) -> FileRecord:
    """Edges of all communities, and links between classes, in one partition.

    Parameters
    ----------
    number
        The partition.
    batches
        All batches, in order.
    sums
        The partition's sums over neighbours (`loading.NeighbourValues`).
    """
    run = RunDirectory(job.run)
    graph, posteriors = whole_stage(run, "graph"), whole_stage(run, "posteriors")
    stage = run.stage("graph")
    partition = layout.load_partition(stage, graph, number)
    index = layout.node_index(stage, graph)
    rows, n_nodes = index[number], int(graph.facts["n_nodes"])
    columns = np.concatenate([rows, np.concatenate(index)[partition.halo]])
    sources = columns[partition.indices].astype(np.int64)
    row_of = np.full(n_nodes, -1, np.int64)
    row_of[rows] = np.arange(len(rows))
    stamps = np.full(n_nodes, -1, np.int64)
    total = sum(batch.communities for batch in batches)
    counts = np.zeros((total, COUNTS), np.int64)
    for batch in batches:
        members = job.members(batch)
        internal_edges(
            partition.indptr.astype(np.int64),
            sources,
            row_of,
            members.offsets,
            members.members,
            stamps,
            batch.first,
            counts[batch.first : batch.first + batch.communities],
        )
    width = len(whole_stage(run, "labels").facts["classes"])
    table = run.stage("posteriors").read_table(
        posteriors.named("part-")[number], "posteriors", ["posterior"]
    )
    own = vectors(table["posterior"], width).astype(np.float64)
    near = job.stage.read_arrays(sums)["sums"].astype(np.float64)
    arrays: dict[str, NDArray[Any]] = {
        "counts": counts,
        "between": np.array(
            [
                [_exact(own[:, k] * near[:, 1 + other]) for other in range(width)]
                for k in range(width)
            ]
        ),
        "into": np.array([_exact(own[:, k] * near[:, 0]) for k in range(width)]),
        "out_of": np.array([_exact(near[:, 1 + k]) for k in range(width)]),
        "edges": np.array(_exact(near[:, 0])),
        "mass": np.array([_exact(own[:, k]) for k in range(width)]),
    }
    if job.settings.input.directed:
        heads = np.repeat(rows, np.diff(partition.indptr))
        arrays["outgoing"] = np.bincount(
            sources[sources != heads], minlength=n_nodes
        ).astype(np.int64)
    return job.attempt.write_arrays(f"edges-{number:05d}", **arrays)


def _exact(values: NDArray[np.float64]) -> int:
    """Sum in multiples of `STEP`: the same in any order."""
    return int(np.rint(values / STEP).astype(np.int64).sum())


def learn(
    job: Job,
    evidence: Sequence[FileRecord],
    edges: Sequence[FileRecord],
    batches: Sequence[Batch],
) -> tuple[FileRecord, list[FileRecord], dict[str, Any]]:
    """Weights of the hypotheses from all batches, and the counts put together.

    Parameters
    ----------
    evidence
        Files of `summarise_batch`, in the order of the batches.
    edges
        Files of `count_edges`; empty for a graph without edges.
    batches
        Those that will be answered.

    Returns
    -------
    tuple
        The file with what holds for all, the edges of each batch (none without edges),
        and figures for the manifest.
    """
    found = [job.stage.read_arrays(record) for record in evidence]
    shares = [arrays["shares"] for arrays in found]
    weights = learn_by_class([arrays["evidence"] for arrays in found], shares)
    arrays: dict[str, NDArray[Any]] = {"weights": weights}
    for record in edges:
        for name, values in job.stage.read_arrays(record).items():
            arrays[name] = arrays[name] + values if name in arrays else values
    facts = {
        "learnt_from": sum(len(piece) for piece in shares),
        "label_weight": float(sum(piece.sum() for piece in shares)),
        "hypotheses": _described(weights),
    }
    slices = []
    if "counts" in arrays:
        counts = arrays.pop("counts")
        for batch in batches:
            own = counts[batch.first : batch.first + batch.communities]
            stem = f"inside-{batch.first:09d}"
            slices.append(job.attempt.write_arrays(stem, counts=own))
    return job.attempt.write_arrays("learnt", **arrays), slices, facts


def _described(weights: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The weightiest hypotheses, for people; mean over classes."""
    mean = weights.mean(axis=0)
    order = np.argsort(-mean, kind="stable")[:5]
    return [
        {
            "weight": float(mean[h]),
            "sharpness": HYPOTHESES[h].sharpness,
            "pseudo": HYPOTHESES[h].pseudo,
            "strength": HYPOTHESES[h].strength,
            "spread": HYPOTHESES[h].spread,
        }
        for h in order
    ]


def _read_learnt(
    job: Job, record: FileRecord, batch: Batch, edges: FileRecord | None
) -> Learnt:
    arrays = job.stage.read_arrays(record)
    if edges is None or not int(arrays["edges"]):
        return Learnt(arrays["weights"])
    inside = job.stage.read_arrays(edges)["counts"]
    outgoing = inside[:, 1]
    if "outgoing" in arrays:
        members = job.members(batch)
        community = np.repeat(np.arange(len(members)), np.diff(members.offsets))
        # Below 2^53: exact in float64.
        sums = np.bincount(
            community, arrays["outgoing"][members.members], minlength=len(members)
        )
        outgoing = sums.astype(np.int64)
    mixing = Mixing(
        arrays["between"] * STEP,
        arrays["into"] * STEP,
        arrays["out_of"] * STEP,
        float(arrays["edges"] * STEP),
        arrays["mass"] * STEP,
    )
    return Learnt(arrays["weights"], mixing, EdgeCounts(inside, outgoing))
