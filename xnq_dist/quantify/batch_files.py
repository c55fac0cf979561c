"""Files of batches: members before the estimates, and rows of tables after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Attempt, FileRecord, TableWriter
from xnq_dist.graph.ids import NodeIds
from xnq_dist.quantify.batches import BatchJob, CommunityBatch
from xnq_dist.quantify.checks.disclosure import too_small
from xnq_dist.quantify.communities import Memberships, community_batches
from xnq_dist.quantify.community_rows import community_ids, prevalence_rows

__all__ = ["write_batches", "write_tables"]


MIN_MEMBERSHIPS, MAX_MEMBERSHIPS = 1 << 16, 1 << 22
"""Bounds of the memberships in a batch: worth a task, and small enough for memory. One
community may have more."""
BATCHES_A_THREAD = 4


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
            writer.write(prevalence_rows(job, arrays, names))
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
