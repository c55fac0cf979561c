"""The stage ``scores``: another model's scores of a partitioned graph's nodes.

A separate stage, so that new scores do not change the graph and its embeddings. There
is one file for each partition, with rows in the order of its node table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from xnq_dist.core.inputs import scores_inputs
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory, fingerprint
from xnq_dist.graph.features import score_columns
from xnq_dist.graph.layout import file_stem, load_ids, node_index
from xnq_dist.graph.scaling import learn_scaling
from xnq_dist.graph.tables import Table, ids_of

__all__ = ["write_scores"]

log = logging.getLogger(__name__)

STAGE = "scores"


def write_scores(
    run: RunDirectory,
    graph: Manifest,
    table: Table,
    tables: Mapping[str, Mapping[str, Any]],
    settings: Settings,
    progress: Progress = silent,
) -> None:
    """Make the stage of `columns.scores`, robustly scaled; remove it without any.

    Kept if nothing changed. `table` is the node table, and `tables` holds the digest of
    its ``scores``. Memory is proportional to nodes times scores.

    Raises
    ------
    InputError
        For a column that is missing or holds no finite numbers.
    """
    stage, names = run.stage(STAGE), settings.columns.scores
    if not names:
        stage.folder.delete_folder()
        return
    inputs = scores_inputs(graph, tables, settings)
    if run.reuse(STAGE, inputs) is not None:
        return
    began = time.monotonic()
    columns = score_columns(table, names, bool(tables[STAGE].get("encoded")))
    ids = load_ids(run.stage("graph"), graph)
    node_id = settings.columns.node_id
    batches = table.batches([node_id])
    index = np.concatenate([ids.index_of(ids_of(each, node_id)) for each in batches])
    if (index < 0).any():
        raise columns.changed()
    columns.learn(ids, index, progress)
    scaling = learn_scaling(columns.batches(ids, index), len(index), False)
    width = len(columns.feature_names(columns.width))
    scores = np.empty((len(ids), width), np.float32)
    for at, raw in columns.batches(ids, index):
        scores[at] = scaling.apply(raw)
    attempt = stage.begin()
    files = [
        attempt.write_arrays(file_stem(STAGE, number), scores=scores[rows])
        for number, rows in enumerate(node_index(run.stage("graph"), graph))
    ]
    seconds = time.monotonic() - began
    stage.commit(attempt, files, fingerprint(inputs), inputs, {"width": width}, seconds)
