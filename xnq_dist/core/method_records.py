"""The records of all methods: what the rest of the package knows about them.

A method is one record here and one module with three functions: ``embed(run, settings,
client, progress)`` makes the stage ``embeddings`` and returns its manifest;
``fit(work)`` fits the readout (`readout.work.ReadoutWork`) and returns its files and
facts; ``write_posteriors``, a task, writes a partition's posteriors with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xnq_dist.core.records import PartRecord, Registry

__all__ = ["INPUT_SCALE", "METHODS", "RECURRENT_SCALES", "MethodRecord"]

RECURRENT_SCALES = (1.0, 3.0, 8.0, 20.0)
"""Recurrent scales of the reservoirs that xnq+ uses together, from contractive to
chaotic: with all of them it needs no search."""
INPUT_SCALE = 0.3
"""Input scale of xnq+."""


@dataclass(frozen=True, kw_only=True)
class MethodRecord(PartRecord):
    """One method: an embedding and a readout."""

    title: str
    """Name in results of comparisons."""
    report: str
    """What the readout does, in the report after "Every node has a state."."""
    searches: bool = False
    """Whether the stage ``select`` searches the reservoir's scales."""
    second_stage: bool = False
    """Whether the readout has a second stage of label features, which takes scores and
    inclusion weights of labels, and needs three folds. Embeddings then have further
    blocks (features of neighbours, spectrum), and labels of all roles are pooled, each
    held out in turn."""


METHODS = Registry(
    "method",
    (
        MethodRecord(
            name="xnq",
            title="XNQ",
            text="reservoir and logistic readout, as in the paper",
            report=(
                "A logistic readout, fitted on the labelled nodes, turned states into "
                "scores"
            ),
            searches=True,
            module="xnq_dist.methods.xnq",
        ),
        MethodRecord(
            name="xnq+",
            title="XNQ+",
            text=(
                "also labels of neighbours and a second stage (all labels are "
                "cross-fitted)"
            ),
            report=(
                "A logistic readout, fitted on the labelled nodes, turned states into "
                "scores; a second model combined them with the labels and scores of "
                "neighbouring nodes"
            ),
            second_stage=True,
            module="xnq_dist.methods.xnq_plus",
        ),
    ),
)
