"""The stages of a run: their order, and what each is made from.

A stage is due when its inputs differ, and with it what is made from it.
`jobs.each_stage` does those that are due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xnq_dist.core.inputs import (
    Digests,
    Stages,
    embeddings_inputs,
    graph_inputs,
    labels_inputs,
    posteriors_inputs,
    published_inputs,
    quantify_inputs,
    readout_inputs,
    scores_inputs,
    select_inputs,
)
from xnq_dist.core.settings import Settings

__all__ = ["STAGES", "StageRecord", "following"]


@dataclass(frozen=True)
class StageRecord:
    """A stage of a run, which writes one folder."""

    name: str
    format: int
    """Raise it when the stage writes different files from the same inputs."""
    inputs: Callable[[Stages, Digests, Settings], dict[str, Any]]
    """What it is made from."""
    made_by: str
    """Stage of a job that makes it: a method of `jobs.Job`, else of `pipeline`."""
    after: tuple[str, ...] = ()
    """Stages that it is made from."""
    stays: bool = False
    """Whether it and what is made from it stay until their own inputs differ.

    A new selection may choose the same scales.
    """

    def made_from(
        self, stages: Stages, tables: Digests, settings: Settings
    ) -> dict[str, Any]:
        """Its inputs, and its format."""
        return {"format": self.format, **self.inputs(stages, tables, settings)}


STAGES = {
    stage.name: stage
    for stage in (
        StageRecord("graph", 6, graph_inputs, "graph"),
        StageRecord("labels", 3, labels_inputs, "graph", ("graph",)),
        StageRecord("scores", 2, scores_inputs, "graph", ("graph",)),
        StageRecord(
            "select", 3, select_inputs, "embed", ("graph", "labels"), stays=True
        ),
        StageRecord("embeddings", 3, embeddings_inputs, "embed", ("graph", "select")),
        StageRecord(
            "readout", 15, readout_inputs, "readout", ("embeddings", "labels", "scores")
        ),
        StageRecord("posteriors", 2, posteriors_inputs, "posteriors", ("readout",)),
        StageRecord(
            "quantify", 15, quantify_inputs, "quantify", ("posteriors", "labels")
        ),
        StageRecord("published", 5, published_inputs, "publish", ("quantify",)),
    )
}


def following(name: str) -> tuple[str, ...]:
    """A stage, and the stages to remove when it is done again, in their order."""
    found = [name]
    if not STAGES[name].stays:
        for stage in STAGES.values():
            if not stage.stays and not set(found).isdisjoint(stage.after):
                found.append(stage.name)
    return tuple(found)
