"""Label features of xnq+ in files, one per partition, from sums over neighbours.

Every node has F float32 features (`label_features.feature_count`) with each of the K
folds hidden; labelled rows that models are fitted to have them with their own fold
hidden, too. No process holds all of them. All cross-fits share the rounds, and one pass
over the embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from xnq_dist.core.arrays import Floats32
from xnq_dist.core.store import FileRecord, Stage
from xnq_dist.core.waiting import gather
from xnq_dist.readout.plus.label_features import HOPS, label_features
from xnq_dist.readout.plus.neighbours import AroundStart, AroundStep, FirstFit
from xnq_dist.readout.rows import FEATURES, Part
from xnq_dist.readout.tasks import watch
from xnq_dist.readout.work import ReadoutWork
from xnq_dist.reservoir.propagation import propagate

__all__ = ["fits_at_once", "read_each", "spread_features"]

SMOOTHING = 10.0
"""Pseudo-counts of the prior of class shares among labelled neighbours."""


def fits_at_once(columns: int, units: int) -> int:
    """Number of cross-fits that share rounds, each with `columns` columns.

    Two, if they need no more memory than the states did, of `units` at a time.
    """
    return 2 if 2 * columns <= units else 1


def spread_features(
    work: ReadoutWork, fits: Sequence[FirstFit], parts: tuple[Part, ...]
) -> list[tuple[FileRecord, ...]]:
    """Compute the label features of every fit and partition from sums over neighbours.

    Features of all rows are written for the first fit, else only those of fitted rows.
    """
    client, settings, attempt = work.client, work.settings, work.attempt
    turns = range(1, HOPS + 1)
    units = work.source.embedded.facts["units_at_once"]
    size = fits_at_once(fits[0].width, units)
    files: list[list[FileRecord]] = [[] for _ in fits]
    for first in range(0, len(fits), size):
        batch = tuple(fits[first : first + size])
        rounds = propagate(
            client,
            work.source.graph,
            work.source.manifest,
            AroundStart(batch, parts),
            AroundStep(batch),
            HOPS,
            attempt,
            "labels around",
            turns,
            backend=settings.backend,
            progress=work.progress,
        )
        futures = [
            client.submit(
                _write_features,
                batch,
                number,
                [rounds[turn][number] for turn in turns],
                SMOOTHING,
                first == 0,
                pure=False,
            )
            for number in range(len(parts))
        ]
        watch(client, futures, "label features", work.progress)
        for records in gather(client, futures):
            for of_fit, record in zip(files[first:], records, strict=False):
                of_fit.append(record)
        for records in rounds.values():
            for record in records:
                attempt.folder.delete(record.name)
    return [tuple(of_fit) for of_fit in files]


def _write_features(
    fits: Sequence[FirstFit],
    number: int,
    rounds: Sequence[FileRecord],
    smoothing: float,
    complete: bool,
) -> list[FileRecord]:
    """Write features of fitted rows in K variants; of all, their fold hidden, once."""
    where = fits[0].visible.where
    values = [where.read_arrays(record)["values"] for record in rounds]
    written: list[FileRecord] = []
    for fit, *of_fit in zip(
        fits, *(np.hsplit(each, len(fits)) for each in values), strict=True
    ):
        visible, variants = fit.visible, fit.visible.variants
        known = where.read_arrays(visible.records[number])
        folds, rows = known["folds"], np.flatnonzero(known["fitted"])
        fitted = [each[rows] for each in of_fit]
        places, arrays = variants.places()[folds[rows]], {}
        features = partial(
            label_features, priors=fit.priors, variants=variants, smoothing=smoothing
        )
        if complete and not written:
            every = [
                features(*fit.columns(of_fit), chosen=np.full(len(folds), fold))
                for fold in range(variants.folds)
            ]
            arrays["each"] = np.stack(every, axis=1)
        by_fold = [
            features(*fit.columns(fitted), chosen=places[:, fold])
            for fold in range(variants.folds)
        ]
        arrays["fitted"] = np.stack(by_fold, axis=1)
        written.append(fit.attempt.write_arrays(f"{FEATURES}{number:05d}", **arrays))
    return written


def read_each(where: Stage, record: FileRecord) -> Floats32:
    """Read label features of a partition's rows with each fold hidden, (n, K, F)."""
    features: Floats32 = where.read_arrays(record)["each"]
    return features
