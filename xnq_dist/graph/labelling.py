"""The stage ``labels``: labels, roles and label weights of a partitioned graph.

A separate stage, so that new labels do not change the graph and its embeddings. There
is one file for each partition, with rows in the order of its node table, and one for
label weights.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import FileRecord, Manifest, RunDirectory, fingerprint
from xnq_dist.graph.contents import Digests
from xnq_dist.graph.labels import ROLES, Labels, read_labels
from xnq_dist.graph.layout import LABEL_WEIGHTS, file_stem, load_ids, node_index
from xnq_dist.graph.tables import Table

__all__ = ["label"]

log = logging.getLogger(__name__)

STAGE = "labels"


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
    stage = run.stage(STAGE)
    inputs = STAGES[STAGE].made_from({"graph": graph}, tables, settings)
    current = stage.manifest()
    if current is not None and current.fingerprint == fingerprint(inputs):
        log.info("stage %s: complete, nothing to do", STAGE)
        return current
    if known is None:
        known = read_labels(table, settings, load_ids(graph))
    run.reuse(STAGE, inputs)
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
