"""Files of batches: members before the estimates, and rows of tables after them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints
from xnq_dist.core.errors import StageError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage, TableWriter
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.sort import PairChunk
from xnq_dist.quantify.batches import CommunityBatch
from xnq_dist.quantify.checks.combinations import MEMBERSHIPS
from xnq_dist.quantify.communities import Memberships, community_batches
from xnq_dist.quantify.community_rows import (
    evidence_rows,
    group_rows,
    prevalence_rows,
    scenario_rows,
)
from xnq_dist.quantify.interface import Communities
from xnq_dist.quantify.intervals.seed_runs import between_runs, read_seed_runs, widened

__all__ = ["widen", "write_batches", "write_prevalence"]


def write_batches(
    attempt: Attempt,
    chunks: Iterator[PairChunk],
    size: int,
    nodes: NodeIds,
    detected: TableWriter | None,
    gathered: list[Communities],
) -> Iterator[CommunityBatch]:
    """Write each batch's members to a file; detected ones to the table as well.

    The first communities, of at most `MEMBERSHIPS` members, are gathered, too.
    """
    left = MEMBERSHIPS
    batches = community_batches(chunks, size)
    for number, (first, batch) in enumerate(batches):
        left -= len(batch.members)
        if left >= 0:
            gathered.append(batch)
        record = attempt.write_arrays(
            f"members-{number:05d}", offsets=batch.offsets, members=batch.members
        )
        if detected is not None:
            codes = np.arange(first, first + len(batch))
            ids = nodes.values.take(pa.array(batch.members))
            if nodes.type == "string":
                ids = ids.cast(pa.string())
            columns = [pa.array(np.repeat(codes, np.diff(batch.offsets))), ids]
            detected.write(pa.table(columns, names=["community", "node_id"]))
        yield CommunityBatch(number, first, len(batch), record)


def widen(
    stage: Stage,
    attempt: Attempt,
    estimated: list[tuple[CommunityBatch, FileRecord]],
    names: pa.Array,
    labels: Manifest,
    settings: Settings,
) -> list[tuple[CommunityBatch, FileRecord]]:
    """Write the batches again, with intervals widened by the variance between seeds.

    Holds the prevalence of all communities in all runs: 8 C bytes each.
    """
    classes, exclude = labels.facts["classes"], settings.labelled == "exclude"
    other_runs = read_seed_runs(settings.intervals.seed_runs, names, classes)
    batches = [stage.read_arrays(record) for _, record in estimated]

    def joined(name: str) -> np.ndarray:
        return np.concatenate([arrays[name] for arrays in batches])

    n_estimated, members = joined("n_estimated"), joined("n_nodes")
    part = np.ones(len(members))
    if not exclude and "weight" in batches[0]:
        weight = joined("weight")
        part = joined("weight_estimated") / np.where(weight > 0, weight, 1.0)
    elif not exclude:
        part = n_estimated / np.maximum(members, 1)
    variance = between_runs(joined("prevalence"), other_runs, n_estimated, part)
    rewritten = []
    for (batch, record), arrays in zip(estimated, batches, strict=True):
        of_batch = variance[batch.first : batch.first + batch.communities]
        wider = widened(arrays, of_batch, settings.intervals.level, exclude)
        again = attempt.write_arrays(f"widened-{batch.number:05d}", **wider)
        stage.folder.delete(record.name)
        rewritten.append((batch, again))
    return rewritten


def write_prevalence(
    stage: Stage,
    attempt: Attempt,
    memberships: Memberships,
    row_info: tuple[list[Any], str, Settings],
    estimated: list[tuple[CommunityBatch, FileRecord]],
    reasons: NDArray[np.uint8],
) -> tuple[list[FileRecord], int, Ints]:
    """Write the batches to the tables of the stage.

    Returns the records, the number of communities without convergence, and their sizes.
    """
    not_converged, done = 0, 0
    sizes = np.zeros(len(memberships.names), np.int64)
    names, classes, parents = memberships.names, row_info[0], memberships.parents
    with ExitStack() as opened:
        writer = opened.enter_context(attempt.table_writer("prevalence", "prevalence"))
        evidence = opened.enter_context(attempt.table_writer("evidence", "evidence"))
        others: dict[str, TableWriter] = {}
        for batch, record in estimated:
            arrays = stage.read_arrays(record)
            if batch.first != done or len(arrays["n_nodes"]) != batch.communities:
                raise StageError(
                    f"{stage.folder.uri_of(record.name)} does not hold the communities "
                    f"from {done} on: this is an internal error, please report it"
                )
            arrays["suppressed"] = reasons[done : done + batch.communities]
            of_batch = names.slice(batch.first, batch.communities)
            above = parents.slice(batch.first, batch.communities)
            writer.write(prevalence_rows(arrays, of_batch, *row_info, above))
            evidence.write(evidence_rows(arrays, batch.first, classes))
            for stem, schema, rows in _more_rows(arrays, batch.first):
                if stem not in others:
                    others[stem] = opened.enter_context(
                        attempt.table_writer(stem, schema)
                    )
                others[stem].write(rows)
            stage.folder.delete(record.name)
            not_converged += int(np.count_nonzero(~arrays["converged"]))
            sizes[done : done + batch.communities] = arrays["n_nodes"]
            done += batch.communities
    if writer.record.rows != len(names) * len(classes):
        raise StageError(
            f"{writer.record.rows} rows for {len(names)} communities and "
            f"{len(classes)} classes: this is an internal error, please report it"
        )
    files = [writer.record, evidence.record]
    files += [other.record for other in others.values()]
    return files, not_converged, sizes


def _more_rows(
    arrays: dict[str, NDArray[Any]], first: int
) -> Iterator[tuple[str, str, pa.Table]]:
    """Yield a batch's rows of the other tables: file, schema and rows of each."""
    if "groups" in arrays:
        yield "sums", "group_sums", group_rows(arrays, first)
    if "tilted_weights" in arrays:
        tilted = group_rows(arrays, first, "tilted_weights")
        yield "tilted", "group_sums", tilted
        yield "scenarios", "scenarios", scenario_rows(arrays, first)
