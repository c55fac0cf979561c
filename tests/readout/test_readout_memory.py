"""Arrays of the readout: how many bytes are alive at once, and the plan's figure."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa

from tests.readout.test_plus_label_features import VARIANTS
from xnq_dist.core.config import load_settings
from xnq_dist.core.need import PartitionCounts
from xnq_dist.core.store import RunDirectory
from xnq_dist.plan import GraphSize, Workers, add_up
from xnq_dist.readout.plus.label_features import Around, label_width
from xnq_dist.readout.rows import Part
from xnq_dist.reservoir.context import join


def peak_of(work):
    """Peak bytes that a call allocates, its result included."""
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def test_labelled_rows_of_all_partitions_are_joined_in_one_copy():
    rng = np.random.default_rng(0)
    index = np.array_split(rng.permutation(20_000), [3_000, 11_000])
    values = (np.arange(20_000)[:, None] + np.arange(64) / 64).astype(np.float32)
    pieces = [values[rows] for rows in index]
    peak, joined = peak_of(lambda: join(pieces, index))
    np.testing.assert_array_equal(joined, values)
    assert peak < 1.25 * joined.nbytes


def test_embeddings_are_read_a_row_group_at_a_time(tmp_path):
    """Arrow's reader keeps what it read of all groups until its last batch."""
    run = RunDirectory(tmp_path)
    attempt = run.stage("embeddings").begin()
    rng, ids = np.random.default_rng(1), pa.array(np.arange(40_000))
    with attempt.table_writer("part-00000", "embeddings") as writer:
        for first in range(0, len(ids), 4_000):
            values = pa.array(rng.random(4_000 * 256, np.float32))
            rows = pa.FixedSizeListArray.from_arrays(values, 256)
            part = {"node_id": ids[first : first + 4_000], "embedding": rows}
            writer.write(pa.table(part))
    part = Part(run, 1, None, writer.record, None)
    read = part.states()
    # The reader keeps the bytes objects that our stream returns.
    peak, sizes = peak_of(lambda: [x.nbytes for _, x in read])
    assert sum(sizes) == 40_000 * 256 * 4
    assert peak < 3 * sizes[0]  # of ten groups


def test_a_round_of_label_features_takes_no_more_than_its_sums():
    count, classes = 200_000, 2
    priors = np.full((len(VARIANTS), classes), 1 / classes)
    around = Around((), None, (), None, priors, VARIANTS)
    sums = np.ones((count, label_width(VARIANTS, classes)), np.float32)
    peak, after = peak_of(lambda: around.step(0, 1, sums, sums))
    assert after is sums
    assert peak < 0.25 * sums.nbytes


def test_the_planned_memory_is_that_of_a_measured_run():
    """Peak resident MiB of a worker in the readout (docs/results.md)."""
    nodes, sizes, measured = 300_000, (157_000, 143_000), 712
    halo = int(0.36 * nodes / 2)
    counts = PartitionCounts(
        sizes, [5 * nodes] * 2, [halo] * 2, np.array([[0, halo], [halo, 0]])
    )
    size = GraphSize(
        nodes,
        10 * nodes,
        16,
        labelled=nodes // 10,
        partition_counts=counts,
        diameter=6,
    )
    plan = add_up(size, load_settings(), 2, Workers(2, 1, 2**34))
    assert measured < plan.needs["readout"]["worker"] / 2**20 < 1.25 * measured
