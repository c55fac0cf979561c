"""What every benchmark measures with: repeats, rows, ratios, child processes.

A benchmark is a function of a `Bench`. It records measurements, one row each, and the
few ratios that matter: ours against a peer on the same work in the same run, so that a
faster or slower machine moves both.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xnq_dist.core.errors import StageError

__all__ = ["OURS", "Bench", "Benchmark", "Measurement", "Ratio", "Size"]

log = logging.getLogger(__name__)

OURS = "xnq_dist"
"""The `what` of a row that is this package's own."""

Size = Literal["small", "full"]
Better = Literal["more", "less"]

_CHILD = "from xnq_dist.evaluation.bench.child import main; main()"


@dataclass(frozen=True)
class Benchmark:
    """An entry of the list of benchmarks; its code is imported when it runs."""

    name: str
    title: str
    """What it measures, one line."""
    function: str
    """``module:function``, called with a `Bench`."""

    def load(self) -> Callable[[Bench], None]:
        """The function."""
        module, _, name = self.function.partition(":")
        found: Callable[[Bench], None] = getattr(import_module(module), name)
        return found


@dataclass(frozen=True)
class Measurement:
    """One row: one quantity, measured once."""

    benchmark: str
    case: str
    """The work: how many of what."""
    quantity: str
    what: str
    """`OURS`, or the peer that did the same work."""
    value: float
    unit: str
    repeat: int
    """Number of the repeat, from 0."""
    note: str | None = None


@dataclass(frozen=True)
class Ratio:
    """A figure that is compared from run to run, without a unit."""

    benchmark: str
    name: str
    value: float
    better: Better
    aim: float | None = None
    """The budget, where there is one."""

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without an aim."""
        if self.aim is None:
            return None
        return (
            self.value >= self.aim if self.better == "more" else self.value <= self.aim
        )


@dataclass
class Bench:
    """What a benchmark is given, and what it leaves behind."""

    name: str
    size: Size
    repeat: int
    folder: Path
    """Empty folder for its files; removed afterwards."""
    rows: list[Measurement] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    """More files for the folder of the tables, by name."""

    def choose(self, small: Any, full: Any) -> Any:
        """The one for the size asked for."""
        return full if self.size == "full" else small

    def full(self, aim: float) -> float | None:
        """An aim that only full size is held to."""
        return aim if self.size == "full" else None

    def record(
        self,
        case: str,
        quantity: str,
        what: str,
        value: float,
        unit: str,
        repeat: int = 0,
        note: str | None = None,
    ) -> float:
        """Add a row; returns the value."""
        value = float(value)
        row = Measurement(self.name, case, quantity, what, value, unit, repeat, note)
        self.rows.append(row)
        return value

    def time(
        self,
        case: str,
        what: str,
        work: Callable[[], Any],
        *,
        quantity: str = "time",
        repeat: int | None = None,
        warm: bool = True,
        scale: float = 1.0,
        note: str | None = None,
    ) -> float:
        """Seconds that `work` takes, one row a repeat; returns their median.

        `warm` calls it once before, so that nothing is compiled inside the clock.
        Seconds are multiplied by `scale`: the peer did so much less work, as the note
        must say.
        """
        log.info("%s: %s, %s", self.name, case, what)
        if warm:
            work()
        found = []
        for number in range(self.repeat if repeat is None else repeat):
            began = time.perf_counter()
            work()
            seconds = (time.perf_counter() - began) * scale
            found.append(self.record(case, quantity, what, seconds, "s", number, note))
        return float(np.median(found))

    def ratio(
        self, name: str, value: float, better: Better, aim: float | None = None
    ) -> None:
        """Add a ratio that is compared with recorded ones."""
        self.ratios.append(Ratio(self.name, name, float(value), better, aim))

    def median(self, case: str, quantity: str, what: str) -> float:
        """Median over the repeats of a quantity that was recorded."""
        wanted = (case, quantity, what)
        found = [
            row.value
            for row in self.rows
            if (row.case, row.quantity, row.what) == wanted
        ]
        return float(np.median(found))

    def child(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call ``module:function`` in a process of its own.

        It takes the arguments by name and returns a dictionary; both are JSON values.
        The result also has ``base_memory`` and ``peak_memory``, the largest resident
        bytes before and after the call.

        Raises
        ------
        StageError
            When the process fails.
        """
        log.info("%s: %s %s", self.name, function, dict(arguments))
        command = [sys.executable, "-c", _CHILD, function, json.dumps(dict(arguments))]
        done = subprocess.run(  # noqa: S603 - our own interpreter and code
            command,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise StageError(
                f"benchmark {self.name}: {function} ended with status "
                f"{done.returncode} ({reason}): run it alone to see more"
            )
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
