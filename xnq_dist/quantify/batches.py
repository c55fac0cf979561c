"""Batches of communities: their files, their estimates, their rows in the tables.

The tasks are functions that read and write files; this module does not import Dask.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.errors import StageError
from xnq_dist.core.records import METHODS
from xnq_dist.core.schemas import class_column
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord, RunDirectory, TableWriter
from xnq_dist.graph.ids import NodeIds
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.communities import Memberships, community_batches
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
    make_quantifier,
)
from xnq_dist.quantify.loading import (
    load_groups,
    load_held_posteriors,
    load_learnt,
    load_node_table,
    with_own_folds,
)
from xnq_dist.quantify.quality import qualities, standard_errors, too_small

__all__ = [
    "BatchJob",
    "CommunityBatch",
    "community_ids",
    "estimate_batch",
    "estimate_graph",
    "evidence_of_batch",
    "forget_nodes",
    "label_facts",
    "learn_from",
    "total_rows",
    "write_batches",
    "write_tables",
]

MIN_MEMBERSHIPS, MAX_MEMBERSHIPS = 1 << 16, 1 << 22
"""Bounds of the memberships in a batch: worth a task, and small enough for memory. One
community may have more."""
BATCHES_A_THREAD = 4
"""Batches for each thread, so that threads end at about the same time."""

_LOCK = threading.Lock()
_LOADED: dict[str, NodeTable] = {}
"""What this process loaded for the current attempt, by its id."""
SCENARIOS = "if_random", "if_by_class"
"""Estimates of the complete graph by how labels may have been chosen."""


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


def forget_nodes() -> None:
    """Free the node table of this process."""
    with _LOCK:
        _LOADED.clear()


def write_batches(
    attempt: Attempt,
    memberships: Memberships,
    threads: int,
    nodes: NodeIds,
    detected: TableWriter | None,
) -> Iterator[CommunityBatch]:
    """Write each batch's members to a file; detected ones to the table as well.

    `threads` is the number of batches that are estimated at a time.
    """
    per_batch = memberships.total // (threads * BATCHES_A_THREAD) + 1
    size = min(max(per_batch, MIN_MEMBERSHIPS), MAX_MEMBERSHIPS)
    batches = community_batches(memberships.sorter.chunks(), size)
    for number, (first, batch) in enumerate(batches):
        record = attempt.write_arrays(
            f"members-{number:05d}", offsets=batch.offsets, members=batch.members
        )
        if detected is not None:
            ids = community_ids(nodes.values.take(pa.array(batch.members)))
            columns = [pa.array(first + batch.community), ids]
            detected.write(pa.table(columns, names=["community", "node_id"]))
        yield CommunityBatch(number, first, record)


def evidence_of_batch(job: BatchJob, batch: CommunityBatch) -> Floats:
    """Evidence of the batch's communities that have labelled members, in order."""
    return label_evidence(job.members(batch), job.loaded())


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


def write_tables(
    job: BatchJob,
    memberships: Memberships,
    estimated: list[tuple[CommunityBatch, FileRecord]],
) -> tuple[FileRecord, dict[str, int]]:
    """Write the batches to the table ``prevalence``.

    Returns its record and facts: the numbers of communities, of memberships, of
    communities without convergence, and of suppressed ones.
    """
    found: Counter[str] = Counter()
    with job.attempt.table_writer("prevalence", "prevalence") as writer:
        for batch, record in estimated:
            arrays = job.attempt.read_arrays(record)
            arrays["suppressed"] = too_small(arrays, job.settings)
            names = memberships.names.slice(batch.first, len(arrays["n_nodes"]))
            writer.write(_prevalence_rows(job, arrays, names))
            job.attempt.delete(record.name)
            found["n_communities"] += len(names)
            found["n_memberships"] += int(arrays["n_nodes"].sum())
            found["not_converged"] += int((~arrays["converged"]).sum())
            found["suppressed"] += int(arrays["suppressed"].sum())
    expected = len(memberships.names), memberships.total - memberships.sorter.duplicates
    if (found["n_communities"], found["n_memberships"]) != expected:
        raise StageError(
            f"batches hold {found['n_communities']} communities and "
            f"{found['n_memberships']} memberships instead of {expected[0]} and "
            f"{expected[1]}: this is an internal error, please report it"
        )
    return writer.record, dict(found)


def _prevalence_rows(
    job: BatchJob, arrays: dict[str, NDArray[Any]], names: pa.Array
) -> pa.Table:
    """One row per community and class (schema ``prevalence``).

    `arrays` are the fields of `Prevalence`, and ``suppressed``.
    """
    repeat = np.repeat(np.arange(len(names)), len(job.classes))
    note = f"suppressed: fewer than {job.settings.disclosure.min_size} members"
    notes = np.where(arrays["suppressed"], note, arrays["notes"])[repeat]
    return pa.table(
        {
            "community": community_ids(names.take(pa.array(repeat))),
            **_estimate_columns(job, arrays),
            "note": pa.array(notes, pa.string(), mask=notes == ""),
        }
    )


def total_rows(job: BatchJob, graph: Prevalence, labels: Mapping[str, Any]) -> pa.Table:
    """One row per class for the complete graph (schema ``totals``), with `labels`."""
    arrays = vars(graph) | {"suppressed": np.zeros(1, np.bool_)}
    ends = "", "_lower", "_upper"
    rows = [
        {
            "scope": "graph",
            "drawn": labels["drawn"],
            "verdict": labels.get("verdict"),
            "pvalue": labels.get("pvalue"),
            "bias": answer["bias"],
            "detectable_factor": answer["detectable"],
            "weight_by_class": labels.get("tilted"),
            **{
                f"{name}{end}": answer[name] and answer[name][at]
                for name in SCENARIOS
                for at, end in enumerate(ends)
            },
        }
        for answer in labels["answers"]
    ]
    texts = dict.fromkeys(("scope", "drawn", "verdict"), pa.string())
    kinds = dict.fromkeys(rows[0], pa.float64()) | texts
    chosen = pa.Table.from_pylist(rows, pa.schema(kinds))
    estimates = _estimate_columns(job, arrays)
    return pa.table(estimates | {name: chosen[name] for name in kinds})


def label_facts(
    job: BatchJob, studied: Mapping[str, Any] | None, graph: Mapping[str, Prevalence]
) -> dict[str, Any]:
    """Facts on how the labelled nodes were chosen and on both estimates, JSON values.

    `studied` is from `learn_from`, None where nothing was learnt; `graph` is from
    `estimate_graph`.
    """
    selection = studied or {"drawn": job.settings.labels.drawn}
    bias, detectable = selection.get("bias"), selection.get("detectable")
    answers = []
    for code, name in enumerate(job.classes):
        answer: dict[str, Any] = dict.fromkeys(("bias", "factor", *SCENARIOS))
        answer["class"] = str(name)
        answer["detectable"] = detectable and detectable[code]
        if bias is not None:
            answer["bias"] = bias[code]
            others = np.mean(np.delete(bias, code))
            answer["factor"] = float(np.exp(bias[code] - others))
        for scenario, found in graph.items():
            estimates = found.prevalence, found.lower, found.upper
            ends = [float(each[0, code]) for each in estimates]
            answer[scenario] = ends if np.isfinite(ends).all() else None
        answers.append(answer)
    return {**selection, "answers": answers}


def _estimate_columns(job: BatchJob, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Columns of sizes, estimates, intervals and quality, by community and class."""
    settings, ends = job.settings, (arrays["lower"], arrays["upper"])
    se = standard_errors(arrays["sd"], *ends, settings.intervals.level)
    shares = {**arrays, "se": se}
    judged = arrays["converged"], arrays["suppressed"]
    quality = qualities(*ends, settings.quality, *judged)
    times = len(job.classes)
    return {
        "class": class_column(job.classes, len(quality)),
        **{
            name: np.repeat(arrays[name], times)
            for name in ("n_nodes", "n_labelled", "n_estimated")
        },
        # NaN becomes null.
        **{
            name: pa.array(shares[name].reshape(-1), from_pandas=True)
            for name in ("prevalence", "lower", "upper", "se")
        },
        "quality": pa.array(np.repeat(quality, times), pa.string()),
        "method": pa.array([job.method] * len(quality) * times, pa.string()),
    }


def community_ids(names: pa.Array) -> pa.Array:
    """Names as ids of a table: int64 or string."""
    return names if pa.types.is_integer(names.type) else names.cast(pa.string())
