"""The stage ``labels``: labels, roles and label weights of a partitioned graph.

A separate stage, so that new labels do not change the graph and its embeddings. There
is one file for each partition, with rows in the order of its node table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from xnq_dist.core.errors import StageError
from xnq_dist.core.inputs import labels_inputs
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import FileRecord, Manifest, RunDirectory, fingerprint
from xnq_dist.graph.labels import ROLES, Labels, read_labels
from xnq_dist.graph.layout import file_stem, load_ids, node_index
from xnq_dist.graph.tables import Table

__all__ = ["label", "write_labels"]

log = logging.getLogger(__name__)

STAGE = "labels"


def label(
    run: RunDirectory,
    graph: Manifest,
    table: Table,
    tables: Mapping[str, Mapping[str, Any]],
    settings: Settings,
    unknown: Any = "error",
    progress: Progress = silent,
) -> Manifest:
    """Make the stage ``labels`` of an existing graph; keep it if nothing changed.

    `tables` holds the digests of the table's ``labels`` and ``roles``. `unknown` is
    ``error`` or ``drop``: what to do with nodes that are not in the graph.

    Raises
    ------
    InputError
        As `graph.labels.read_labels`; the old stage is then still there.
    """
    current = run.stage(STAGE).manifest()
    due = fingerprint(labels_inputs(graph, tables))
    if current is not None and current.fingerprint == due:
        log.info("stage %s: complete, nothing to do", STAGE)
        return current
    began = time.monotonic()
    nodes = load_ids(run.stage("graph"), graph)
    missing = settings.labels.missing
    known = read_labels(table, settings.columns, nodes, unknown, progress, missing)
    del nodes
    return write_labels(run, graph, known, tables, began)


def write_labels(
    run: RunDirectory,
    graph: Manifest,
    known: Labels,
    tables: Mapping[str, Mapping[str, Any]],
    began: float,
) -> Manifest:
    """Write the stage, and remove the stages that depend on it."""
    inputs = labels_inputs(graph, tables)
    run.reuse(STAGE, inputs)
    stage = run.stage(STAGE)
    attempt = stage.begin()
    files: list[FileRecord] = []
    weights: list[FileRecord] = []
    for number, index in enumerate(node_index(run.stage("graph"), graph)):
        codes, roles = known.codes[index], known.roles[index]
        table = {
            "index": pa.array(index),
            "label": pa.array(codes, mask=codes < 0),
            "role": pa.array(ROLES).take(pa.array(roles, mask=roles < 0)),
        }
        stem = file_stem("labels", number)
        files.append(attempt.write_table(stem, pa.table(table), "node_labels"))
        if known.weights is not None:
            arrays = {"index": index, "weights": known.weights[index]}
            weights.append(
                attempt.write_arrays(file_stem("label-weights", number), **arrays)
            )
    if sum(record.rows for record in files) != len(known.codes):
        raise StageError(
            f"{run.uri}: {sum(record.rows for record in files)} rows of labels for "
            f"{len(known.codes)} nodes: internal error, please report it"
        )
    seconds = time.monotonic() - began
    digest = fingerprint(inputs)
    files += weights
    return stage.commit(attempt, files, digest, inputs, known.facts(), seconds)
