"""The stage ``scores``: another model's scores of a partitioned graph's nodes.

A separate stage, so that new scores do not change the graph and its embeddings. There
is one file for each partition, with rows in the order of its node table.
"""

from __future__ import annotations

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.graph.contents import Digests
from xnq_dist.graph.features import FeatureColumns
from xnq_dist.graph.layout import file_stem, load_ids, node_index
from xnq_dist.graph.tables import Table

__all__ = ["read_scores", "write_scores"]

STAGE = "scores"


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
    stage, names = run.stage(STAGE), settings.columns.scores
    if not names:
        stage.delete_folder()
        return
    inputs = STAGES[STAGE].made_from({"graph": graph}, tables, settings)
    if run.reuse(STAGE, inputs):
        return
    attempt = stage.begin()
    if scores is None:
        ids, named = load_ids(graph), settings.columns.node_id
        rows = table.batches([named])
        index = np.concatenate([ids.find(batch, named, "drop") for batch in rows])
        scores = read_scores(table, settings, index)
    made = np.asarray(scores)
    files = [
        attempt.write_arrays(file_stem(STAGE, number), scores=made[owned])
        for number, owned in enumerate(node_index(graph))
    ]
    attempt.commit(files, inputs, {"width": made.shape[1]})
