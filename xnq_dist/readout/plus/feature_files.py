"""Label features of xnq+ in files, one per partition, from sums over neighbours.

Every node has F float32 features (`label_features.feature_count`) with its own fold
hidden; labelled rows that models are fitted to have features in K variants. No process
holds all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.core.waiting import gather
from xnq_dist.readout.plus.label_features import (
    HOPS,
    HopStart,
    HopStep,
    VisibleLabels,
    label_features,
)
from xnq_dist.readout.plus.neighbours import PosteriorStart, PosteriorStep
from xnq_dist.readout.plus.work import PlusWork
from xnq_dist.readout.rows import FEATURES, KnownLabels, Part
from xnq_dist.readout.tasks import watch
from xnq_dist.reservoir.propagation import propagate

__all__ = ["read_own", "spread_features"]


def spread_features(
    work: PlusWork,
    visible: VisibleLabels,
    parts: tuple[Part, ...],
    models: FileRecord,
    priors: Floats,
) -> tuple[FileRecord, ...]:
    """Compute the label features of every partition from sums over neighbours.

    `models` has the arrays of `FirstStage`; `priors` are `class_priors` of all labels.
    """
    client, settings, attempt = work.client, work.settings, work.attempt
    turns = range(1, HOPS + 1)
    hops, means = (
        propagate(
            client,
            work.source.graph,
            work.source.manifest,
            start,
            step,
            HOPS,
            attempt,
            stem,
            turns,
            backend=settings.backend,
            progress=work.progress,
            engine=settings.exchange.engine,
        )
        for start, step, stem in (
            (HopStart(visible), HopStep(), "labels around"),
            (
                PosteriorStart(visible, parts, models),
                PosteriorStep(tuple(map(tuple, priors.tolist()))),
                "posteriors around",
            ),
        )
    )
    futures = [
        client.submit(
            _write_features,
            visible,
            number,
            [hops[turn][number] for turn in turns],
            [means[turn][number] for turn in turns],
            priors,
            settings.plus.smoothing,
            attempt,
            pure=False,
        )
        for number in range(len(parts))
    ]
    watch(client, futures, "label features", work.progress)
    files = gather(client, futures)
    for sums in (hops, means):
        for records in sums.values():
            for record in records:
                attempt.folder.delete(record.name)
    return tuple(files)


def _write_features(
    visible: VisibleLabels,
    number: int,
    hops: Sequence[FileRecord],
    means: Sequence[FileRecord],
    priors: Floats,
    smoothing: float,
    attempt: Attempt,
) -> FileRecord:
    """Write features of all rows, their fold hidden; of fitted ones in K variants."""
    where = visible.where
    counts = [where.read_arrays(record)["values"] for record in hops]
    mean = [where.read_arrays(record)["values"] for record in means]
    _, folds = visible.load(number)
    fitted = np.flatnonzero(KnownLabels(where, visible.records[number]).load() >= 0)
    variants = visible.variants
    places = variants.places()
    own = label_features(
        counts, mean, priors, folds.astype(np.int64), variants, smoothing
    )
    counts, mean = [x[fitted] for x in counts], [x[fitted] for x in mean]
    by_fold = [
        label_features(
            counts, mean, priors, places[folds[fitted], fold], variants, smoothing
        )
        for fold in range(variants.folds)
    ]
    return attempt.write_arrays(
        f"{FEATURES}{number:05d}", own=own, fitted=np.stack(by_fold, axis=1)
    )


def read_own(where: Stage, record: FileRecord) -> Floats32:
    """Read label features of a partition's rows, their own fold hidden, (n, F)."""
    features: Floats32 = where.read_arrays(record)["own"]
    return features
