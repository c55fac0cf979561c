"""The stages of a run: their order, what each is made from, and where it runs.

A stage is due when its inputs differ (`due.INPUTS`), and with it what is made from it.
`jobs.each_stage` does those that are due.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STAGES", "StageRecord", "following"]


@dataclass(frozen=True)
class StageRecord:
    """A stage of a run, which writes one folder."""

    name: str
    format: int
    """Raise it when the stage writes different files from the same inputs."""
    made_by: str
    """Stage of a job that makes it."""
    after: tuple[str, ...] = ()
    """Stages that it is made from."""
    on_workers: bool = True
    """Whether it needs a cluster."""
    stays: bool = False
    """Whether it and what is made from it stay until their own inputs differ.

    A new selection may choose the same scales.
    """


STAGES = {
    stage.name: stage
    for stage in (
        StageRecord("graph", 5, "graph", on_workers=False),
        StageRecord("labels", 3, "graph", ("graph",), on_workers=False),
        StageRecord("scores", 2, "graph", ("graph",), on_workers=False),
        StageRecord("select", 3, "embed", ("graph", "labels"), stays=True),
        StageRecord("embeddings", 3, "embed", ("graph", "select")),
        StageRecord("readout", 14, "readout", ("embeddings", "labels", "scores")),
        StageRecord("posteriors", 2, "posteriors", ("readout",)),
        StageRecord("quantify", 14, "quantify", ("posteriors", "labels")),
        StageRecord("published", 5, "publish", ("quantify",), on_workers=False),
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
