"""The harness of all benchmarks: repeats, rows, ratios, child processes.

A benchmark is a function of a `Bench`. It records measurements, one row each, and a few
ratios, such as our time over that of another library for the same work in the same run,
which depend little on the speed of the machine.
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
"""The value of `what` in rows that measure this package."""

Size = Literal["small", "full"]
Better = Literal["more", "less"]

_CHILD = "from xnq_dist.evaluation.bench.child import main; main()"


@dataclass(frozen=True)
class Benchmark:
    """An entry in the list of benchmarks; its code is imported when it runs."""

    name: str
    title: str
    """One line on what it measures."""
    function: str
    """``module:function``, called with a `Bench`."""

    def load(self) -> Callable[[Bench], None]:
        """Import and return the function."""
        module, _, name = self.function.partition(":")
        function: Callable[[Bench], None] = getattr(import_module(module), name)
        return function


@dataclass(frozen=True)
class Measurement:
    """One row: a quantity, measured once."""

    benchmark: str
    case: str
    """The work and its size."""
    quantity: str
    what: str
    """`OURS`, or the other library that did the same work."""
    value: float
    unit: str
    repeat: int
    """Number of the repeat, from 0."""
    note: str | None = None


@dataclass(frozen=True)
class Ratio:
    """A number without a unit that is compared between runs."""

    benchmark: str
    name: str
    value: float
    better: Better
    aim: float | None = None
    """The goal; None if there is none."""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.aim is None:
            return None
        return (
            self.value >= self.aim if self.better == "more" else self.value <= self.aim
        )


@dataclass
class Bench:
    """Settings and results of one benchmark."""

    name: str
    size: Size
    repeat: int
    folder: Path
    """Empty folder for temporary files; removed afterwards."""
    rows: list[Measurement] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

    def choose(self, small: Any, full: Any) -> Any:
        """Return the value for the size of this benchmark."""
        return full if self.size == "full" else small

    def full(self, aim: float) -> float | None:
        """Return the goal at full size; None at small size."""
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
        """Add a row and return the value."""
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
        """Time `work`, add one row per repeat and return the median seconds.

        With `warm`, `work` is called once before, so that compilation is not timed.
        Seconds are multiplied by `scale` if a library did only part of the work; the
        note must state this.
        """
        log.info("%s: %s, %s", self.name, case, what)
        if warm:
            work()
        times = []
        for number in range(self.repeat if repeat is None else repeat):
            began = time.perf_counter()
            work()
            seconds = (time.perf_counter() - began) * scale
            times.append(self.record(case, quantity, what, seconds, "s", number, note))
        return float(np.median(times))

    def ratio(
        self, name: str, value: float, better: Better, aim: float | None = None
    ) -> None:
        """Add a ratio, which can be compared with recorded ones."""
        self.ratios.append(Ratio(self.name, name, float(value), better, aim))

    def median(self, case: str, quantity: str, what: str) -> float:
        """Median over the repeats of a recorded quantity."""
        key = (case, quantity, what)
        values = [r.value for r in self.rows if (r.case, r.quantity, r.what) == key]
        return float(np.median(values))

    def child(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call ``module:function`` in a new process.

        The function takes the arguments by name and returns a dictionary; both must be
        JSON values. The result also has ``base_memory`` and ``peak_memory``, the peak
        resident bytes before and after the call.

        Raises
        ------
        StageError
            When the process fails.
        """
        log.info("%s: %s %s", self.name, function, dict(arguments))
        command = [sys.executable, "-c", _CHILD, function, json.dumps(dict(arguments))]
        done = subprocess.run(  # noqa: S603 - our own interpreter and code
            command, check=False, capture_output=True, text=True
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise StageError(
                f"benchmark {self.name}: {function} ended with status "
                f"{done.returncode} ({reason}): call it directly to see its output"
            )
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return result
