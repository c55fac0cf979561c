"""The stages of a run: their order, what each is made from, and where it runs.

A stage is due when its inputs differ (`due.INPUTS`), and with it what is made from it.
`jobs.each_stage` does those that are due.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STAGES", "Stage", "following"]


@dataclass(frozen=True)
class Stage:
    """A stage of a run, which writes one folder."""

    name: str
    format: int
    """Raise it when the stage writes different files from the same inputs."""
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
        Stage("graph", 5, on_workers=False),
        Stage("labels", 3, ("graph",), on_workers=False),
        Stage("scores", 2, ("graph",), on_workers=False),
        Stage("select", 3, ("graph", "labels"), stays=True),
        Stage("embeddings", 2, ("graph", "select")),
        Stage("readout", 14, ("embeddings", "labels", "scores")),
        Stage("posteriors", 2, ("readout",)),
        Stage("quantify", 14, ("posteriors", "labels")),
        Stage("published", 5, ("quantify",), on_workers=False),
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
