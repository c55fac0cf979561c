"""The stages ``labels`` and ``scores`` of a partitioned graph's nodes.

Labels, roles and label weights, and another model's scores. Separate stages, so that
new labels or scores do not change the graph and its embeddings. There is one file for
each partition, with rows in the order of its node table, and one for label weights.
"""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import FileRecord, Manifest, RunDirectory, fingerprint
from xnq_dist.graph.contents import Digests
from xnq_dist.graph.features import FeatureColumns
from xnq_dist.graph.labels import ROLES, Labels, read_labels
from xnq_dist.graph.layout import LABEL_WEIGHTS, file_stem, load_ids, node_index
from xnq_dist.graph.tables import Table

__all__ = ["label", "read_scores", "write_scores"]

log = logging.getLogger(__name__)


def label(
    run: RunDirectory,
    graph: Manifest,
    table: Table,
    tables: Digests,
    settings: Settings,
    known: Labels | None = None,
) -> Manifest:
    """Make the stage ``labels`` of an existing graph; keep it if nothing changed.

    `tables` holds the digest of the table's ``labels``. `known`: the labels, read from
    the table if not passed. Stages that depend on different labels are removed.

    Raises
    ------
    InputError
        As `graph.labels.read_labels`; the old stage is then still there.
    """
    stage = run.stage("labels")
    inputs = STAGES["labels"].made_from({"graph": graph}, tables, settings)
    current = stage.manifest()
    if current is not None and current.fingerprint == fingerprint(inputs):
        log.info("stage labels: complete, nothing to do")
        return current
    if known is None:
        known = read_labels(table, settings, load_ids(graph))
    run.reuse("labels", inputs)
    attempt = stage.begin()
    files: list[FileRecord] = []
    for number, index in enumerate(node_index(graph)):
        codes, roles = known.codes[index], known.roles[index]
        columns = {
            "index": index,
            "label": pa.array(codes, mask=codes < 0),
            "role": pa.array(ROLES).take(pa.array(roles, mask=roles < 0)),
        }
        stem, rows = file_stem("labels", number), pa.table(columns)
        files.append(attempt.write_table(stem, rows, "node_labels"))
    if known.weights is not None:
        files.append(attempt.write_arrays(LABEL_WEIGHTS, weights=known.weights))
    return attempt.commit(files, inputs, known.facts())


def read_scores(
    table: Table,
    settings: Settings,
    index: Ints,
) -> Floats32 | None:
    """Read `columns.scores`, robustly scaled, in canonical order, shape (N, S).

    None without any. `index` is the canonical index of each row of the node table.

    Raises
    ------
    InputError
        For a column that is missing or holds no finite numbers.
    """
    names = settings.columns.scores
    if not names:
        return None
    columns = FeatureColumns(table, names, scores=True)
    if (index < 0).any():
        raise columns.changed()
    columns.learn(index)
    scores = np.empty((len(index), columns.n_features), np.float32)
    for at, scaled in columns.batches(index):
        scores[at] = scaled
    return scores


def write_scores(
    run: RunDirectory,
    graph: Manifest,
    table: Table,
    tables: Digests,
    settings: Settings,
    scores: Floats32 | None,
) -> None:
    """Make the stage of `columns.scores`; remove it without any.

    Kept if nothing changed. `tables` holds the digest of the ``scores`` of the table;
    `scores`, from `read_scores`, are read if None. Errors are those of
    `read_scores`.
    """
    stage, names = run.stage("scores"), settings.columns.scores
    if not names:
        stage.delete_folder()
        return
    inputs = STAGES["scores"].made_from({"graph": graph}, tables, settings)
    if run.reuse("scores", inputs):
        return
    attempt = stage.begin()
    if scores is None:
        ids, named = load_ids(graph), settings.columns.node_id
        rows = table.batches([named])
        index = np.concatenate([ids.find(batch, named, "drop") for batch in rows])
        scores = read_scores(table, settings, index)
    made = np.asarray(scores)
    files = [
        attempt.write_arrays(file_stem("scores", number), scores=made[owned])
        for number, owned in enumerate(node_index(graph))
    ]
    attempt.commit(files, inputs, {"width": made.shape[1]})
