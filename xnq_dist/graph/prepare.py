"""The stages ``graph`` and ``labels``: from tables to partitions, in bounded memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core.arrays import Ints32
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import StageError
from xnq_dist.core.inputs import graph_inputs
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.store import Attempt, FileRecord, Manifest, RunDirectory, fingerprint
from xnq_dist.core.worker_tasks import Tasks
from xnq_dist.graph.ahead import BackgroundCalls
from xnq_dist.graph.distances import MAX_STEPS, effective_diameter
from xnq_dist.graph.edge_tasks import read_edges_by_tasks, visible
from xnq_dist.graph.edges import read_edges
from xnq_dist.graph.feature_types import chosen_columns
from xnq_dist.graph.features import FeatureBlocks, FeatureColumns, scaling_of
from xnq_dist.graph.gpu_ingest import edge_engine
from xnq_dist.graph.halo import PartitionBook
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.labelling import label, write_labels
from xnq_dist.graph.labels import read_nodes
from xnq_dist.graph.layout import (
    ENCODING,
    HALO_SIZES,
    SCALING,
    file_stem,
)
from xnq_dist.graph.partition import divide
from xnq_dist.graph.partition_files import write_partitions
from xnq_dist.graph.partition_tasks import write_partitions_by_tasks
from xnq_dist.graph.profile.inputs import read_contents
from xnq_dist.graph.row_tasks import RowPasses
from xnq_dist.graph.scaling import Scaling
from xnq_dist.graph.scratch import scratch_folder
from xnq_dist.graph.spectral import adjacency_radius, is_symmetric
from xnq_dist.graph.tables import Sources, open_table

__all__ = ["partitions_table", "prepare"]

log = logging.getLogger(__name__)

STAGE = "graph"


def prepare(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    partitions: int,
    progress: Progress = silent,
    contents: Mapping[str, Mapping[str, Any]] | None = None,
    workers: Callable[[], AbstractContextManager[Tasks | None]] = nullcontext,
) -> Manifest:
    """Read, check, partition and write a graph; keep it if nothing changed.

    Labels are a separate stage: if only they changed, the graph is kept.

    Parameters
    ----------
    contents
        Digests from `contents.read_contents`; None: computed here.
    workers
        Opens tasks that read and sort edges, find distances and rho(A), and write the
        partitions' edges, with the same bits; called if the stage is due. None: this
        process does.

    Returns
    -------
    Manifest
        Manifest of the stage ``graph``: a table ``nodes-*`` and arrays ``adjacency-*``
        for each partition, the feature scaling, and counts of the graph.

    Raises
    ------
    InputError, SettingsError
        For tables or settings that cannot be used.
    StageError
        When temporary files cannot be written, or counts do not add up.

    Notes
    -----
    Memory: arrays proportional to the nodes, `input.memory` for sorting, a sample of
    the features (about 100 MiB while they are measured), and the edges of one
    partition. Only METIS needs all edges at once.
    """
    if contents is None:
        contents = read_contents(run.folder, sources, settings)
    nodes = open_table(sources.nodes, "node table", settings.input)
    edges = open_table(sources.edges, "edge table", settings.input)
    inputs = graph_inputs(contents, settings, partitions)
    current = run.stage(STAGE).manifest()
    if current is not None and current.fingerprint == fingerprint(inputs):
        log.info("stage %s: complete, nothing to do", STAGE)
        label(run, current, nodes, contents, settings, progress=progress)
        return current
    began = time.monotonic()
    with scratch_folder(settings.scratch) as folder, ExitStack() as held:
        mode = settings.features.scale
        chosen = chosen_columns(nodes, settings).features
        if settings.columns.features == "auto":
            log.info("columns.features = auto: %s", chosen or "none, the graph alone")
        encoded = bool(contents["features"].get("encoded"))
        features = FeatureColumns(nodes, chosen, mode != "none", encoded)
        missing = settings.labels.missing
        ids, index, labels = read_nodes(nodes, settings.columns, progress, missing)
        rows = ids, index
        # Refuse values that cannot be used before the edges are sorted.
        features.learn(*rows, settings.features, progress)
        scaling = scaling_of(features, *rows, mode, progress)
        run.reuse(STAGE, inputs)
        tasks = held.enter_context(workers())
        if tasks is not None and not visible(tasks, edges):
            log.warning(
                "edges are read in this process: not every worker can read %s and %s",
                edges.path,
                tasks.folder,
            )
            tasks = None
        of_edges = edges, ids, settings.columns, settings.input
        if tasks is None:
            engine = edge_engine(settings, ids)
            into = _new_folder(folder / "csr")
            csr, counts = read_edges(*of_edges, into, progress, engine)
        else:
            csr, counts = read_edges_by_tasks(*of_edges, tasks, progress)
        # An unweighted graph with added reverses is symmetric.
        added = not settings.input.directed and not csr.weighted
        symmetric = added or is_symmetric(csr)
        passes = None if tasks is None else RowPasses(csr, tasks)
        rho = settings.reservoir.rho
        if rho == "auto":
            progress("spectral radius", 0, 1)
            rho = adjacency_radius(csr, symmetric, passes.times if passes else None)
            progress("spectral radius", 1, 1)
        distances: dict[str, int] = {}
        if settings.reservoir.supersteps == "auto":
            diameter = effective_diameter(
                csr, MAX_STEPS, passes.spread if passes else None
            )
            distances = {"effective_diameter": diameter}
        memory = settings.input.memory_bytes
        progress("partition", 0, 1)
        how = settings.partitioner, settings.seed, memory, symmetric
        part, partitioner = divide(csr, partitions, *how)
        progress("partition", 1, 1)
        book = PartitionBook.of(part, partitions)
        blocks = FeatureBlocks(book.offsets, memory, _new_folder(folder / "features"))
        blocks.fill(features, *rows, book.relabelled, scaling, progress)
        stage = run.stage(STAGE)
        attempt = stage.begin()
        tables: list[FileRecord] = []

        def write_nodes(*numbers: int) -> None:
            for number in numbers:
                tables.append(_write_nodes(attempt, number, ids, book, blocks))

        with BackgroundCalls() as behind:

            def on_partition(number: int) -> None:
                behind.call(partial(write_nodes, number))
                if number:
                    progress("write partitions", number, partitions)

            if tasks is None:
                written = write_partitions(
                    csr, book, memory, folder, attempt, on_partition
                )
            else:
                behind.call(partial(write_nodes, *range(partitions)))
                written = write_partitions_by_tasks(csr, book, tasks, attempt, progress)
        progress("write partitions", partitions, partitions)
        pairs = zip(tables, (each.record for each in written), strict=True)
        files = [record for pair in pairs for record in pair]
        sizes = np.stack([each.sent for each in written]).astype(np.int32)
        files.append(attempt.write_arrays(HALO_SIZES, sizes=sizes))
        if scaling is not None:
            table = scaling.table(features.feature_names(blocks.width))
            files.append(attempt.write_table(SCALING, table, "feature_scaling"))
            _report_scaling(scaling)
        encoding = features.encoding
        if encoding is not None:
            table = encoding.table()
            files.append(attempt.write_table(ENCODING, table, "feature_encoding"))
        facts = {
            "n_nodes": len(ids),
            "n_edges": int(csr.indptr[-1]),
            "n_features": blocks.width,
            "scaling": None if scaling is None else scaling.facts(),
            **({} if encoding is None else {"encoded": encoding.facts()}),
            "id_type": ids.type,
            "directed": settings.input.directed,
            "weighted": csr.weighted,
            "symmetric": symmetric,
            "rho": float(rho),
            **distances,
            "partitions": partitions,
            "partitioner": partitioner,
            "offsets": book.offsets.tolist(),
            **{
                name: [each.counts[name] for each in written]
                for name in written[0].counts
            },
            "counts": counts.facts(),
        }
        _check_counts(facts, sizes)
        seconds = time.monotonic() - began
        digest = fingerprint(inputs)
        made = stage.commit(attempt, files, digest, inputs, facts, seconds)
    write_labels(run, made, labels, contents, time.monotonic())
    return made


def _report_scaling(scaling: Scaling) -> None:
    """Log how many feature columns were standardised, and the setting to avoid it."""
    counts = scaling.facts()
    total = len(scaling.kinds)
    if counts["constant"] == total:
        log.warning(
            "every feature column is constant and has no effect: name other columns in "
            "columns.features, or set it to null to use the graph alone"
        )
    elif counts["kept"] < total:
        log.info(
            "features: %d of %d columns standardised (set features.scale = none to "
            "avoid it)",
            total - counts["kept"],
            total,
        )


def _new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _write_nodes(
    attempt: Attempt,
    number: int,
    ids: NodeIds,
    book: PartitionBook,
    blocks: FeatureBlocks,
) -> FileRecord:
    kind = pa.int64() if ids.type == "int64" else pa.string()
    with attempt.table_writer(file_stem("nodes", number), "graph_nodes") as writer:
        for first, last, matrix in blocks.read(number):
            index = book.order[first:last].astype(np.int64)
            values = pa.FixedSizeListArray.from_arrays(
                pa.array(matrix.reshape(-1)), matrix.shape[1]
            )
            table = {
                "node_id": ids.values.take(pa.array(index)).cast(kind),
                "index": pa.array(index),
                "features": values,
            }
            writer.write(pa.table(table))
    return writer.record


def _check_counts(facts: dict[str, Any], sizes: Ints32) -> None:
    """Check the totals of nodes and edges, and that sent rows equal received rows."""
    received = sizes.sum(axis=0, dtype=np.int64).tolist()
    for what, actual, expected in (
        ("nodes", sum(facts["owned"]), facts["n_nodes"]),
        ("edges", sum(facts["edges"]), facts["n_edges"]),
        ("halo rows", received, facts["halo"]),
    ):
        if actual != expected:
            raise StageError(
                f"partitions hold {actual} {what} instead of {expected}: internal "
                "error, please report it"
            )


def partitions_table(manifest: Manifest, itemsize: int, width: int) -> pa.Table:
    """Quality of the partitioning (schema ``partitions``), one row per partition.

    `itemsize`: bytes of an exchanged value; `width`: columns of the state, d'.
    """
    facts = manifest.facts
    halo = np.asarray(facts["halo"], np.int64)
    return pa.table(
        {
            "partition": pa.array(np.arange(len(halo), dtype=np.int32)),
            "owned": pa.array(facts["owned"], pa.int64()),
            "halo": pa.array(halo),
            "edges": pa.array(facts["edges"], pa.int64()),
            "bytes": pa.array(halo * itemsize * width),
        }
    )
