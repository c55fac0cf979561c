"""The faults, where each applies, and an enumeration of cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["FAULTS", "Case", "choose"]

STAGES = ("start", "graph", "embed", "readout", "quantify", "publish")
"""Where a run is hurt, as its log lines name it; ``start``: before the first stage,
``publish``: after the last batch was quantified."""
ON_WORKERS = STAGES[1:]


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    stages: tuple[str, ...] = STAGES
    """Where it can happen."""
    statuses: tuple[int, ...] = ()
    """Allowed exit statuses of an error; empty: an error is not allowed."""
    workers: int = 1
    """Number of worker processes of the run."""
    own_cluster: bool = True
    """Whether the run starts its scheduler and workers."""
    on_disk: bool = False
    """Whether the run directory is on a separate small disk."""


FAULTS = (
    Fault("kill-worker", ON_WORKERS, (3, 4), workers=2),
    Fault("kill-all-workers", ON_WORKERS, (3, 4), workers=2),
    Fault("stop-worker", ON_WORKERS, (3, 4), workers=2),
    Fault("lose-all-workers", ON_WORKERS, (3, 4), own_cluster=False),
    Fault("kill-scheduler", ON_WORKERS, (4,), own_cluster=False),
    Fault("kill-client"),
    Fault("terminate-client", statuses=(4,)),
    Fault("interrupt-client", statuses=(4,)),
    Fault("hang-up-client", statuses=(4,)),
    Fault("full-disk", STAGES, (3, 4), on_disk=True),
    Fault("read-only-disk", STAGES, (4,), on_disk=True),
)


@dataclass(frozen=True)
class Case:
    """One fault at one place."""

    number: int
    seed: int
    fault: str
    stage: str

    @property
    def name(self) -> str:
        """Name for folders and for resuming from a record."""
        return f"{self.number:04d}-{self.fault}-{self.stage}"

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
        stages = faults[at].stages
        stage = stages[(turn + at) % len(stages)]
        cases.append(Case(number, seed, faults[at].name, stage))
    return cases
