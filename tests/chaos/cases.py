"""The faults, where each applies, and an enumeration of cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

__all__ = ["FAULTS", "Case", "Fault", "choose", "enumerated"]

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
    """Where it can happen; ``between``: between two runs, not during one."""
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

    def cells(self) -> Iterator[tuple[str, str]]:
        """Stages and ways of starting that it can be combined with."""
        yield from product(self.stages, self.ways)


BETWEEN = ("between",)
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
    Fault("flip-bit", BETWEEN),
    Fault("truncate", BETWEEN),
    Fault("zero-sector", BETWEEN),
    Fault("stale-lock", BETWEEN),
    Fault("live-lock", BETWEEN, (4,)),
    Fault("lock-of-a-slow-clock", BETWEEN, (4,)),
    Fault("dead-lock-of-a-fast-clock", BETWEEN),
    Fault("foreign-manifest", BETWEEN),
    Fault("truncated-run-record", BETWEEN),
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


class Placed(Protocol):
    """A fault of a name that can happen at some places."""

    name: str

    def cells(self) -> Iterator[tuple[str, ...]]:
        """The places."""


def enumerated(
    faults: Sequence[Placed], count: int, seed: int
) -> Iterator[tuple[str, ...]]:
    """Name and place of as many cases: faults in turn, each at its places in turn.

    The seed is where the enumeration begins.
    """
    for number in range(seed, seed + count):
        turn, at = divmod(number, len(faults))
        cells = list(faults[at].cells())
        yield faults[at].name, *cells[(turn + at) % len(cells)]


def choose(count: int, seed: int, only: tuple[str, ...] = ()) -> list[Case]:
    """The first `count` cases of a seed.

    Examples
    --------
    >>> choose(3, 0) == choose(40, 0)[:3]
    True
    """
    faults = [fault for fault in FAULTS if not only or fault.name in only]
    found = enumerated(faults, count, seed)
    return [Case(number, seed, *place) for number, place in enumerate(found)]
