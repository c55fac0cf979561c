"""Trained message passing as methods of the comparison: GCN, GAT, GIN.

Training labels train, validation labels stop the training and calibration labels are
held out, so that each fold has the labels that every other method has. One worker holds
the whole graph: full-batch training knows no other way.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from xnq_dist.core.config import Settings
from xnq_dist.evaluation.methods.method_interface import Configuration, Scores
from xnq_dist.evaluation.split_fit import FeatureRows
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.layout import read_adjacency

__all__ = ["check_trained", "trained_matters", "trained_scores"]


def check_trained() -> None:
    """Refuse where PyTorch is not installed."""
    from xnq_dist.evaluation.methods.gnn import require_gnn

    require_gnn()


def trained_matters(settings: Settings) -> dict[str, Any]:
    """Settings that a trained network depends on, beside its configuration."""
    from xnq_dist.evaluation.methods.gnn import GnnSettings

    return {"seed": settings.seed, "training": asdict(GnnSettings())}


def trained_scores(
    kind: Literal["gcn", "gat", "gin"],
    work: EvaluationWork,
    configuration: Configuration,
    split: int,
) -> Scores:
    """Scores of a network trained on one split."""
    from xnq_dist.evaluation.methods.gnn import gnn_logits

    task = work.task()
    graph, manifest = work.graph()
    adjacency = read_adjacency(graph, manifest)
    parts = list(FeatureRows(graph, manifest).parts())
    order = np.argsort(np.concatenate([index for index, _ in parts]))
    features = np.concatenate([x for _, x in parts])[order]
    found = gnn_logits(
        kind,
        int(configuration["layers"]),
        int(configuration["width"]),
        adjacency.indptr,
        adjacency.indices,
        features,
        task.known(split, "train"),
        task.known(split, "validation"),
        len(task.classes),
        work.settings.seed,
    )
    held = task.rows(split, "calibration")
    target = task.rows(split, "validation", "test")
    return Scores(
        held,
        found.logits[held],
        target,
        found.logits[target],
        seconds=found.seconds,
    )
