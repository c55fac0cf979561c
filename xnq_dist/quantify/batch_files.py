"""Files of batches: members before the estimates, and rows of tables after them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.errors import StageError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord, Stage, TableWriter
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.sort import PairChunk
from xnq_dist.quantify.batches import CommunityBatch
from xnq_dist.quantify.checks import disclosure
from xnq_dist.quantify.checks.quality import contradicted
from xnq_dist.quantify.communities import Memberships, community_batches
from xnq_dist.quantify.community_rows import (
    evidence_rows,
    group_rows,
    prevalence_rows,
    scenario_rows,
)

__all__ = ["write_batches", "write_prevalence"]


def write_batches(
    attempt: Attempt,
    chunks: Iterator[PairChunk],
    size: int,
    nodes: NodeIds,
    detected: TableWriter | None,
) -> Iterator[CommunityBatch]:
    """Write each batch's members to a file; detected ones to the table as well."""
    batches = community_batches(chunks, size)
    for number, (first, batch) in enumerate(batches):
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


def write_prevalence(
    stage: Stage,
    attempt: Attempt,
    memberships: Memberships,
    row_info: tuple[list[Any], str, Settings],
    estimated: list[tuple[CommunityBatch, FileRecord]],
) -> tuple[list[FileRecord], dict[str, int]]:
    """Write the batches to the tables of the stage.

    Returns the records and facts: the numbers of communities without convergence, of
    those that labels contradict and of suppressed ones, and of all members.
    """
    done, names, (classes, method, settings) = 0, memberships.names, row_info
    counts = {"not_converged": 0, "contradicted": 0, "suppressed": 0, "members": 0}
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
            arrays["suppressed"] = disclosure.too_small(arrays, settings)
            of_batch = names.slice(batch.first, batch.communities)
            writer.write(prevalence_rows(arrays, of_batch, classes, method, settings))
            evidence.write(evidence_rows(arrays, batch.first, classes))
            for stem, schema, rows in _more_rows(arrays, batch.first):
                if stem not in others:
                    others[stem] = opened.enter_context(
                        attempt.table_writer(stem, schema)
                    )
                others[stem].write(rows)
            stage.folder.delete(record.name)
            counts["not_converged"] += int(np.count_nonzero(~arrays["converged"]))
            counts["contradicted"] += int(
                np.count_nonzero(contradicted(arrays["fit_pvalue"]))
            )
            counts["suppressed"] += int(np.count_nonzero(arrays["suppressed"]))
            counts["members"] += int(arrays["n_nodes"].sum())
            done += batch.communities
    if writer.record.rows != len(names) * len(classes):
        raise StageError(
            f"{writer.record.rows} rows for {len(names)} communities and "
            f"{len(classes)} classes: this is an internal error, please report it"
        )
    files = [writer.record, evidence.record]
    files += [other.record for other in others.values()]
    return files, counts


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
