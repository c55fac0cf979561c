"""The faults of deployed runs, where each applies, and a seeded choice of cases."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

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

    def record(self) -> dict[str, Any]:
        """The case as JSON values."""
        return {"name": self.name, **asdict(self)}


def choose(count: int, seed: int, only: tuple[str, ...] = ()) -> list[Case]:
    """The first `count` cases of a seed: each kind in turn, with shuffled stages.

    Examples
    --------
    >>> choose(3, 0) == choose(40, 0)[:3]
    True
    """
    random = np.random.default_rng([8, seed])
    kinds = [kind for kind in KINDS if not only or kind.name in only]
    order = [kinds[at] for at in random.permutation(len(kinds))]
    stages: dict[str, list[str]] = {}
    cases: list[Case] = []
    while len(cases) < count:
        for kind in order:
            left = stages.setdefault(kind.name, [])
            if not left:
                left += [kind.stages[at] for at in random.permutation(len(kind.stages))]
            cases.append(Case(len(cases), seed, kind.name, left.pop()))
    return cases[:count]


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
