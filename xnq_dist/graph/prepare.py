"""The stages ``graph``, ``labels`` and ``scores``: partitions in bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core import limits
from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.errors import StageError
from xnq_dist.core.leftovers import scratch_folder
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import Attempt, FileRecord, Manifest, RunDirectory, fingerprint
from xnq_dist.core.tasks import Tasks, in_process
from xnq_dist.core.threads import ahead, map_threads
from xnq_dist.graph.contents import Digests
from xnq_dist.graph.csr import Csr
from xnq_dist.graph.distances import effective_diameter
from xnq_dist.graph.edge_tasks import read_edges, visible
from xnq_dist.graph.feature_types import chosen_columns
from xnq_dist.graph.features import (
    FeatureBlocks,
    FeatureColumns,
)
from xnq_dist.graph.halo import PartitionBook
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.labelling import label, read_scores, write_scores
from xnq_dist.graph.labels import Labels, read_nodes
from xnq_dist.graph.layout import (
    HALO_SIZES,
    SCALING,
    file_stem,
)
from xnq_dist.graph.partition import divide
from xnq_dist.graph.partition_files import write_partitions
from xnq_dist.graph.profile.inputs import read_contents
from xnq_dist.graph.scaling import CONSTANT
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.spectral import adjacency_radius, is_symmetric
from xnq_dist.graph.tables import Table
from xnq_dist.graph.values import column_of

__all__ = ["partitions_table", "prepare"]

log = logging.getLogger(__name__)

STAGE = "graph"


def prepare(
    run: RunDirectory,
    sources: Sources,
    settings: Settings,
    partitions: int,
    progress: Progress = silent,
    contents: Digests | None = None,
    workers: Callable[[], AbstractContextManager[Tasks | None]] = nullcontext,
) -> Manifest:
    """Read, check, partition and write a graph; keep it if nothing changed.

    Labels and scores are separate stages: if only they changed, the graph is kept.

    Parameters
    ----------
    contents
        Digests from `profile.inputs.read_contents`; None: computed here.
    workers
        Opens the workers' tasks, which then read and sort edges, and write the
        partitions' edges, with the same bits; called if the stage is due. It may
        return None: tasks of this process do.

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
        contents = read_contents(run, sources, settings)
    nodes = sources.table("nodes", settings.input)
    edges = sources.table("edges", settings.input)
    planned = settings.model_copy(update={"partitions": partitions})
    inputs = STAGES[STAGE].made_from({}, contents, planned)
    made, labels, scores = run.stage(STAGE).manifest(), None, None
    if made is not None and made.fingerprint == fingerprint(inputs):
        log.info("stage %s: complete, nothing to do", STAGE)
    else:
        memory = settings.input.memory_bytes
        with scratch_folder(settings.scratch) as folder, ExitStack() as held:
            # Values that cannot be used are refused before the edges are sorted.
            rows = _read_rows(nodes, settings, progress)
            labels, scores = rows.labels, rows.scores
            run.reuse(STAGE, inputs)
            attempt = run.stage(STAGE).begin()
            given = held.enter_context(workers())
            tasks = in_process(folder, memory)
            edges, tasks = _seeing(edges, given) or (edges, tasks)
            graph = _read_graph(edges, tasks, rows.ids, planned, progress)
            files, facts = _write(attempt, rows, graph, memory, folder, tasks, progress)
            made = attempt.commit(files, inputs, facts)
    label(run, made, nodes, contents, settings, labels)
    write_scores(run, made, nodes, contents, settings, scores)
    return made


@dataclass(frozen=True)
class _Rows:
    """What the rows of the node table say, and how their features are read."""

    ids: NodeIds
    index: Ints
    """Canonical index of each row."""
    labels: Labels
    features: FeatureColumns
    scores: Floats32 | None
    """Scores of another model, `columns.scores`."""


def _read_rows(nodes: Table, settings: Settings, progress: Progress) -> _Rows:
    """Read ids and labels; learn how features are encoded and scaled."""
    chosen = chosen_columns(nodes, settings).features
    if settings.columns.features == "auto":
        log.info("columns.features = auto: %s", chosen or "none, the graph alone")
    features = FeatureColumns(nodes, chosen, progress)
    ids, index, labels = read_nodes(nodes, settings, progress)
    features.learn(index, settings.features.scale)
    scores = read_scores(nodes, settings, index)
    return _Rows(ids, index, labels, features, scores)


def _seeing(edges: Table, tasks: Tasks | None) -> tuple[Table, Tasks] | None:
    """The edge table, without its copy if need be, and tasks that can read it."""
    if tasks is None:
        return None
    for table in (edges, replace(edges, copy=None)):
        if visible(tasks, table):
            return table, tasks
    log.warning(
        "edges are read in this process: not every worker can read %s and %s",
        edges.path,
        tasks.folder,
    )
    return None


@dataclass(frozen=True)
class _Graph:
    """The edges of the graph, and what is known of them."""

    csr: Csr
    book: PartitionBook
    facts: dict[str, Any]
    """Those of the stage that the edges, the settings and the partitioner give."""


def _read_graph(
    edges: Table, tasks: Tasks, ids: NodeIds, settings: Settings, progress: Progress
) -> _Graph:
    """Sort the edges, measure the adjacency, and assign nodes to partitions.

    `settings` have the number of partitions.
    """
    csr, counts = read_edges(edges, ids, settings, tasks, progress)
    # The threads that sorted leave free memory: return it to the system.
    pa.default_memory_pool().release_unused()
    limits.release()
    # An unweighted graph with added reverses is symmetric.
    added = not settings.input.directed and not csr.weighted
    symmetric = added or is_symmetric(csr)
    progress("spectral radius", 0, 1)
    rho = adjacency_radius(csr, symmetric)
    progress("spectral radius", 1, 1)
    facts = {
        "weighted": csr.weighted,
        "directed": settings.input.directed,
        "symmetric": symmetric,
        "rho": rho,
        "counts": dict(counts),
    }
    if settings.reservoir.supersteps == "auto":
        facts["effective_diameter"] = effective_diameter(csr)
    partitions, memory = int(settings.partitions), settings.input.memory_bytes
    progress("partition", 0, 1)
    part, facts["partitioner"] = divide(
        csr, partitions, settings.partitioner, memory, symmetric
    )
    progress("partition", 1, 1)
    return _Graph(csr, PartitionBook.of(part, partitions), facts)


def _write(
    attempt: Attempt,
    rows: _Rows,
    graph: _Graph,
    memory: int,
    folder: Path,
    tasks: Tasks,
    progress: Progress,
) -> tuple[list[FileRecord], dict[str, Any]]:
    """Write nodes and edges of all partitions, and how features were scaled.

    Nodes are written on a thread meanwhile, with temporary files in `folder`. Returns
    the files, and the facts of the stage.
    """
    book = graph.book
    with ThreadPoolExecutor(1) as aside:
        nodes = aside.submit(_write_nodes, attempt, rows, book, memory, folder)
        edges = write_partitions(graph.csr, book, tasks, attempt, progress)
        files = [*(each.record for each in edges), *nodes.result()]
    halo = np.stack([each.sent for each in edges]).astype(np.int32)
    files.append(attempt.write_arrays(HALO_SIZES, sizes=halo))
    files += _write_scaling(attempt, rows.features)
    sizes = {name: [each.counts[name] for each in edges] for name in edges[0].counts}
    of_partitions = sum(sizes["owned"]), sum(sizes["edges"])
    total = len(rows.ids), int(graph.csr.indptr[-1])
    if of_partitions != total:
        raise StageError(
            f"partitions hold {of_partitions} nodes and edges of {total}: internal "
            "error, please report it"
        )
    return files, {
        "n_nodes": total[0],
        "n_edges": total[1],
        "n_features": rows.features.n_features,
        **graph.facts,
        "partitions": len(edges),
        "offsets": book.offsets.tolist(),
        **sizes,
    }


def _write_scaling(attempt: Attempt, features: FeatureColumns) -> list[FileRecord]:
    """Write the names of the features, and how they were scaled."""
    names, scaling = features.feature_names, features.scaling
    if not names:
        return []
    if (scaling.kinds == CONSTANT).all():
        log.warning(
            "every feature column is constant and has no effect: name other "
            "columns in columns.features, or set it to null to use the graph alone"
        )
    return [attempt.write_table(SCALING, scaling.table(names), "feature_scaling")]


def _write_nodes(
    attempt: Attempt, rows: _Rows, book: PartitionBook, memory: int, folder: Path
) -> list[FileRecord]:
    """Write ids and features of the nodes of each partition."""
    ids, features = rows.ids, rows.features
    blocks = FeatureBlocks(features, rows.index, book, memory, folder)

    def write(number: int) -> FileRecord:
        name = file_stem("nodes", number)
        with attempt.table_writer(name, "graph_nodes") as writer:
            for first, last, matrix in ahead(blocks.read(number)):
                index = pa.array(book.order[first:last].astype(np.int64))
                table = {
                    "node_id": ids.values.take(index).cast(ids.type),
                    "index": index,
                    "features": column_of(matrix),
                }
                writer.write(pa.table(table))
        return writer.record

    return map_threads(write, range(book.partitions), 2)


def partitions_table(manifest: Manifest, itemsize: int, width: int) -> pa.Table:
    """Quality of the partitioning (schema ``partitions``), one row per partition.

    `itemsize`: bytes of an exchanged value; `width`: columns of the state, d'.
    """
    facts = manifest.facts
    halo = np.asarray(facts["halo"], np.int64)
    return pa.table(
        {
            "partition": np.arange(len(halo), dtype=np.int32),
            "owned": facts["owned"],
            "halo": halo,
            "edges": facts["edges"],
            "bytes": halo * itemsize * width,
        }
    )
