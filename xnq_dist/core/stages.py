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
    made_by: str
    """Stage of a job that makes it: a method of `jobs.Job`, else of `pipeline`."""
    after: tuple[str, ...] = ()
    """Stages that it is made from."""
    tables: tuple[str, ...] = ()
    """Tables whose digests are inputs."""
    inputs: Callable[[Stages, Digests, Settings], dict[str, Any]] = lambda *_: {}
    """Settings that are inputs."""
    stays: bool = False
    """Whether it and what is made from it stay until their own inputs differ.

    A new selection may choose the same scales: they are inputs, its fingerprint is not.
    """

    def made_from(
        self, stages: Stages, tables: Digests, settings: Settings
    ) -> dict[str, Any]:
        """All its inputs."""
        made = (name for name in self.after if not STAGES[name].stays)
        return {
            "format": self.format,
            **{name: stages[name].fingerprint for name in made if name in stages},
            **{name: tables[name] for name in self.tables},
            **self.inputs(stages, tables, settings),
        }


STAGES = {
    stage.name: stage
    for stage in (
        StageRecord(
            "graph", 6, "graph", (), ("nodes", "features", "edges"), graph_inputs
        ),
        StageRecord("labels", 3, "graph", ("graph",), ("labels",)),
        StageRecord("scores", 2, "graph", ("graph",), ("scores",), scores_inputs),
        StageRecord(
            "select", 3, "embed", ("graph", "labels"), (), select_inputs, stays=True
        ),
        StageRecord(
            "embeddings", 3, "embed", ("graph", "select"), (), embeddings_inputs
        ),
        StageRecord(
            "readout",
            15,
            "readout",
            ("graph", "embeddings", "labels", "scores"),
            (),
            readout_inputs,
        ),
        StageRecord("posteriors", 2, "posteriors", ("readout",)),
        StageRecord(
            "quantify", 15, "quantify", ("posteriors", "labels"), (), quantify_inputs
        ),
        StageRecord("published", 5, "publish", ("quantify",), (), published_inputs),
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
