"""The faults, where each applies, and an enumeration of cases."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

__all__ = ["FAULTS", "Case", "choose"]

STAGES = ("start", "graph", "embed", "readout", "quantify", "publish")
"""Where a run is hurt, as its log lines name it; ``start``: before the first stage,
``publish``: after the last batch was quantified."""
ON_WORKERS = STAGES[1:]
WAYS = ("command", "functions")


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    stages: tuple[str, ...] = STAGES
    """Where it can happen."""
    statuses: tuple[int, ...] = ()
    """Allowed exit statuses of an error; empty: an error is not allowed."""
    ways: tuple[str, ...] = WAYS
    workers: int = 1
    """Number of worker processes of the run."""
    cluster: str = "local"
    """``address``: scheduler and workers are not the run's own; ``beyond``: and one
    worker is behind a link of its own."""
    on_disk: bool = False
    """Whether the run directory is on a separate small disk."""


FAULTS = (
    Fault("kill-worker", ON_WORKERS, (3, 4), workers=2),
    Fault("kill-all-workers", ON_WORKERS, (3, 4), workers=2),
    Fault("stop-worker", ON_WORKERS, (3, 4), workers=2),
    Fault("lose-all-workers", ON_WORKERS, (3, 4), cluster="address"),
    Fault("kill-scheduler", ON_WORKERS, (4,), cluster="address"),
    Fault("cut-link", ON_WORKERS, (3, 4), cluster="beyond"),
    Fault("kill-client"),
    Fault("terminate-client", statuses=(4,), ways=("command",)),
    Fault("interrupt-client", statuses=(4,), ways=("command",)),
    Fault("hang-up-client", statuses=(4,), ways=("command",)),
    Fault("full-disk", STAGES, (3, 4), on_disk=True),
    Fault("read-only-disk", STAGES, (4,), on_disk=True),
    Fault("api-dead", ("start",), ways=("command",)),
    Fault("api-silent", ("start",), ways=("command",)),
    Fault("api-killed", STAGES[1:], ways=("command",)),
)


@dataclass(frozen=True)
class Case:
    """One fault at one place."""

    number: int
    seed: int
    fault: str
    stage: str
    way: str

    @property
    def name(self) -> str:
        """Name for folders and for resuming from a record."""
        return f"{self.number:04d}-{self.fault}-{self.stage}-{self.way}"

    @property
    def kind(self) -> Fault:
        """Its fault."""
        return next(fault for fault in FAULTS if fault.name == self.fault)

    def random(self) -> np.random.Generator:
        """Random stream of its times and places."""
        return np.random.default_rng([self.seed, self.number])


def choose(count: int, seed: int, only: tuple[str, ...] = ()) -> list[Case]:
    """The first `count` cases of a seed: faults in turn, each at its places in turn.

    The seed is where the enumeration begins.

    Examples
    --------
    >>> choose(3, 0) == choose(40, 0)[:3]
    True
    """
    faults = [fault for fault in FAULTS if not only or fault.name in only]
    cases = []
    for number in range(count):
        turn, at = divmod(seed + number, len(faults))
        cells = list(product(faults[at].stages, faults[at].ways))
        place = cells[(turn + at) % len(cells)]
        cases.append(Case(number, seed, faults[at].name, *place))
    return cases
