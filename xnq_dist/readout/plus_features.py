"""Label and node features of xnq+ in files, one a partition, by runs of neighbour sums.

N x K x F float32 in all, K folds, F of them as `label_features.feature_count` says, and
the node features with their means over neighbours; no process ever holds them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.progress import Progress, silent
from xnq_dist.readout.label_features import (
    HOPS,
    NEIGHBOUR_HOPS,
    HopStart,
    HopStep,
    VisibleLabels,
    VoteStart,
    VoteStep,
    label_features,
)
from xnq_dist.readout.neighbours import (
    FeatureStart,
    FeatureStep,
    PosteriorStart,
    PosteriorStep,
)
from xnq_dist.readout.rows import FEATURES, Part
from xnq_dist.readout.tasks import watch
from xnq_dist.reservoir.propagation import propagate
from xnq_dist.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.waiting import gather

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["boosting_wanted", "read_features", "spread_features"]


def spread_features(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    visible: VisibleLabels,
    parts: tuple[Part, ...],
    models: FileRecord,
    prior: NDArray[np.float64],
    settings: Settings,
    attempt: Attempt,
    progress: Progress = silent,
) -> tuple[FileRecord, ...]:
    """Label and node features of every partition, by runs of neighbour sums."""
    wanted = settings.plus
    rounds = sorted(set(wanted.rounds))
    hops = propagate(
        client,
        graph,
        manifest,
        HopStart(visible),
        HopStep(),
        HOPS,
        attempt,
        "hops",
        range(1, HOPS + 1),
        backend=settings.backend,
        progress=progress,
    )
    start = VoteStart(visible, tuple(prior.tolist()))
    votes = propagate(
        client,
        graph,
        manifest,
        start,
        VoteStep(visible),
        rounds[-1],
        attempt,
        "votes",
        rounds,
        backend=settings.backend,
        progress=progress,
    )
    near = propagate(
        client,
        graph,
        manifest,
        PosteriorStart(visible, parts, models),
        PosteriorStep(visible.n_folds, tuple(prior.tolist())),
        NEIGHBOUR_HOPS,
        attempt,
        "near",
        range(1, NEIGHBOUR_HOPS + 1),
        backend=settings.backend,
        progress=progress,
    )
    described: dict[int, list[FileRecord]] = {}
    width = int(manifest.facts["n_features"])
    if (
        boosting_wanted(settings, visible.n_classes)
        and 0 < width <= wanted.node_features
    ):
        described = propagate(
            client,
            graph,
            manifest,
            FeatureStart(graph, manifest),
            FeatureStep(),
            NEIGHBOUR_HOPS,
            attempt,
            "described",
            range(NEIGHBOUR_HOPS + 1),
            backend=settings.backend,
            progress=progress,
        )
    made = [
        client.submit(
            _write_features,
            Stage(attempt.folder, "readout"),
            number,
            [hops[turn][number] for turn in range(1, HOPS + 1)],
            [votes[turn][number] for turn in rounds]
            + [records[number] for records in near.values()],
            [records[number] for records in described.values()],
            prior,
            visible.n_folds,
            wanted.smoothing,
            attempt,
            pure=False,
        )
        for number in range(len(visible.records))
    ]
    watch(client, made, "label features", progress)
    files = gather(client, made)
    for turns in (hops, votes, near, described):
        for records in turns.values():
            for record in records:
                attempt.folder.delete(record.name)
    return tuple(files)


def boosting_wanted(settings: Settings, n_classes: int) -> bool:
    """Whether boosted trees compete in the second stage."""
    return settings.plus.boosting == "auto" and n_classes == 2


def _write_features(
    where: Stage,
    number: int,
    hops: Sequence[FileRecord],
    means: Sequence[FileRecord],
    described: Sequence[FileRecord],
    prior: NDArray[np.float64],
    n_folds: int,
    smoothing: float,
    attempt: Attempt,
) -> FileRecord:
    def values(records: Sequence[FileRecord]) -> list[NDArray[np.float32]]:
        return [where.read_arrays(record)["values"] for record in records]

    arrays = {
        "features": label_features(
            values(hops), values(means), prior, n_folds, smoothing
        )
    }
    if described:
        # The last column of each counts weights.
        columns = [x[:, :-1] for x in values(described)]
        arrays["described"] = np.concatenate(columns, axis=1)
    return attempt.write_arrays(f"{FEATURES}{number:05d}", **arrays)


def read_features(
    where: Stage, record: FileRecord
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """A partition's label features, shape (n, K, F), and node features, (n, D).

    The latter None where trees do not see any.
    """
    arrays = where.read_arrays(record)
    return arrays["features"], arrays.get("described")
