"""XNQ+: reservoirs next to node descriptors, label features and a second stage."""

from __future__ import annotations

from xnq_dist.core.method_records import MethodRecord
from xnq_dist.methods.xnq import embed
from xnq_dist.readout.plus.plus_model import write_plus_posteriors as write_posteriors
from xnq_dist.readout.stage import fit_pooled as fit

__all__ = ["RECORDS", "embed", "fit", "write_posteriors"]

RECORDS = (
    MethodRecord(
        name="xnq+",
        title="XNQ+",
        rank=2,
        text="also labels of neighbours and a second stage (all labels are "
        "cross-fitted)",
        report="A logistic readout, fitted on the labelled nodes, turned states into "
        "scores; a second model combined them with the labels and scores of "
        "neighbouring nodes",
        descriptors=True,
        second_stage=True,
        cross_fitted=True,
        weights=True,
        min_folds=3,
        settings=("plus",),
        embedding_inputs={"descriptors": True},
    ),
)
