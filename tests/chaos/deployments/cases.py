"""The faults of deployed runs, where each applies, and an enumeration of cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.chaos.cases import enumerated

__all__ = ["KINDS", "STAGES", "Case", "Kind", "choose", "reached"]

STAGES = ("start", "graph", "embed", "readout", "quantify", "publish")
DONE = ("graph", "embeddings", "posteriors", "quantify")
"""The folder whose manifest ends each stage after the first."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    stages: tuple[str, ...] = STAGES
    """Where it can happen; ``between``: between two runs, not during one."""
    own_cluster: bool = False
    """Whether scheduler and workers are started apart from the run."""
    on_disk: bool = False
    """Whether the run directory is on a separate small disk."""

    def cells(self) -> Iterator[tuple[str]]:
        """The stages."""
        yield from ((stage,) for stage in self.stages)


WORKING = STAGES[1:]
KINDS = (
    Kind("kill-flow"),
    Kind("terminate-flow"),
    Kind("pause-flow"),
    Kind("stop-flow"),
    Kind("kill-worker"),
    Kind("terminate-worker"),
    Kind("lose-power"),
    Kind("lose-all"),
    Kind("kill-dask-worker", WORKING),
    Kind("kill-all-dask-workers", WORKING),
    Kind("stop-dask-worker", WORKING),
    Kind("kill-scheduler", WORKING, own_cluster=True),
    Kind("full-disk", on_disk=True),
    Kind("damaged-file", ("between",)),
    Kind("kill-api"),
    Kind("pause-api"),
    Kind("change-input"),
)
"""``pause``: stopped for some seconds; ``stop``: stopped until Prefect has started it
again; ``lose-power``: all processes of a machine but the server's at once;
``lose-all``: the server's, too."""


@dataclass(frozen=True)
class Case:
    """One fault at one place."""

    number: int
    seed: int
    kind: str
    stage: str

    @property
    def name(self) -> str:
        """Name for folders and for resuming from a record."""
        return f"{self.number:04d}-{self.kind}-{self.stage}"

    @property
    def fault(self) -> Kind:
        """Its fault."""
        return next(kind for kind in KINDS if kind.name == self.kind)

    def random(self) -> np.random.Generator:
        """Random stream of its times and places."""
        return np.random.default_rng([8, self.seed, self.number])


def choose(count: int, seed: int, only: tuple[str, ...] = ()) -> list[Case]:
    """The first `count` cases of a seed.

    Examples
    --------
    >>> choose(3, 0) == choose(40, 0)[:3]
    True
    """
    kinds = [kind for kind in KINDS if not only or kind.name in only]
    found = enumerated(kinds, count, seed)
    return [Case(number, seed, *place) for number, place in enumerate(found)]


def reached(out: Path) -> str:
    """The stage that a run in a new directory is in; ``over`` when it has published."""
    if (out / "published.json").exists():
        return "over"
    if not (out / "_run.json").exists():
        return "start"
    missing = (
        stage
        for stage, folder in zip(STAGES[1:], DONE, strict=False)
        if not (out / folder / "_manifest.json").exists()
    )
    return next(missing, "publish")
